/**
 * A separate connection for tools: events of a server, past and live, and its description of itself. It has its own
 * session, in which nothing is claimed, so it can end at any time.
 */

import { UnsupportedError } from "../../errors.ts";
import type { ServerEvent, ServerInfo } from "../../protocol/admin-frames.ts";
import * as frames from "../../protocol/admin-frames.ts";
import type { ServerHello } from "../../protocol/handshake.ts";
import { ProtocolError } from "../../protocol/handshake.ts";
import type { Driver } from "../../spi/driver.ts";
import { randomId } from "../../util/ids.ts";
import { getServerEndpoint } from "./address.ts";
import { Connection } from "./connection.ts";

/** Receives the events of a watch. */
export interface ServerEventListener {
  /** gap: events before these were dropped. */
  onEvents(events: readonly ServerEvent[], gap: boolean): void;
  /** The server has been reached. restarted: it is another run than before. */
  onConnected(hello: ServerHello, restarted: boolean): void;
  /** The connection has ended; it reconnects by itself. */
  onDisconnected(): void;
  /** The server refuses the watch. */
  onRefused(error: Error): void;
}

export interface AdminConnection {
  /** The server's hello; null while not connected. */
  readonly hello: ServerHello | null;
  /** The last events of a key, oldest first. @throws StoreRefusedError if the credential may not see them */
  history(key: string, max: number): Promise<ServerEvent[]>;
  /** The server's description of itself, and this client's permissions on that key. */
  info(key: string): Promise<ServerInfo>;
  /** Reports events on keys that begin with prefix, until close(). */
  watch(prefix: string, listener: ServerEventListener): void;
  close(): void;
}

/**
 * Opens a connection beside the driver's; null if the driver is not for a Holdfast server.
 * @throws as Driver.open()
 */
export async function openAdminConnection(driver: Driver): Promise<AdminConnection | null> {
  const endpoint = getServerEndpoint(driver);
  if (endpoint === undefined) return null;
  let subscription: { readonly prefix: string; readonly listener: ServerEventListener } | null = null;
  let watchCallId = 0;
  let lastSeq = 0;

  const connection: Connection = new Connection(
    // a session of its own, so that its end ends no claim
    { ...endpoint.connection, sessionId: randomId() },
    {
      lastSeenState: () => null,
      onConnected(hello, previousRunId) {
        if (previousRunId !== null && subscription !== null) startWatch(hello, previousRunId);
      },
      onDisconnected: () => subscription?.listener.onDisconnected(),
      onPush(frame) {
        if (frame[0] !== "events" || frame[1] !== watchCallId || subscription === null) return;
        const { events, gap } = frames.decodeWatchFrame(frame);
        lastSeq = events.at(-1)?.seq ?? lastSeq;
        subscription.listener.onEvents(events, gap);
      },
      isNeeded: () => subscription !== null,
      needsHeartbeat: () => subscription !== null,
    },
  );

  /** previousRunId: the server run that was watched before; null: this is the first. */
  function startWatch(hello: ServerHello, previousRunId: string | null): void {
    const { prefix, listener } = subscription as NonNullable<typeof subscription>;
    const isNewRun = previousRunId !== null && previousRunId !== hello.runId;
    listener.onConnected(hello, isNewRun);
    // every event of a new run is new to this client
    const after = previousRunId === null ? undefined : isNewRun ? 0 : lastSeq;
    callServer(
      (callId) => {
        watchCallId = callId;
        return frames.encodeWatch(callId, prefix, after);
      },
      (result) => {
        if (previousRunId === null || isNewRun) lastSeq = Number(result);
      },
      "watch",
    ).catch((error: unknown) => {
      // an error without a code is the end of the connection, which onDisconnected() reports
      if ((error as { code?: unknown }).code !== undefined) listener.onRefused(error as Error);
    });
  }

  function callServer<T>(
    encode: (callId: number) => string,
    decode: (result: unknown) => T,
    operation: string,
  ): Promise<T> {
    const version = connection.hello?.version;
    return connection.call(encode, decode).catch((error: unknown) => {
      const { cause } = error as Error;
      if (!(cause instanceof ProtocolError) || cause.code !== "PROTOCOL") throw error;
      // an older server ends the connection at a frame it does not know
      throw new UnsupportedError(`this server (version ${version ?? "unknown"}) does not know "${operation}"`, {
        keys: [],
        cause: error,
      });
    });
  }

  await connection.open();
  return {
    get hello() {
      return connection.hello;
    },
    history: (key, max) =>
      callServer((callId) => frames.encodeHistory(callId, key, max), frames.decodeEvents, "history"),
    info: (key) => callServer((callId) => frames.encodeInfo(callId, key), frames.decodeInfo, "info"),
    watch(prefix, listener) {
      subscription = { prefix, listener };
      if (connection.hello !== null) startWatch(connection.hello, null);
      connection.updateDemand();
    },
    close() {
      subscription = null;
      connection.close();
    },
  };
}

/**
 * A connection of its own for tools: what happened on a server, live or before, and what the server says of itself. It has
 * a session of its own, in which nothing is ever claimed, so it can end at any time.
 */

import { UnsupportedError } from "../../errors.ts";
import type { Connector } from "../../net/transport.ts";
import type { ServerEvent, ServerInfo } from "../../protocol/admin-frames.ts";
import * as frames from "../../protocol/admin-frames.ts";
import type { ServerHello } from "../../protocol/handshake.ts";
import { ProtocolError } from "../../protocol/handshake.ts";
import type { Driver } from "../../spi/driver.ts";
import { systemClock } from "../../util/clock.ts";
import { randomId } from "../../util/ids.ts";
import { createClientHello } from "./client-hello.ts";
import { Connection } from "./connection.ts";
import { getServerEndpoint } from "./keep-session.ts";

/** What somebody who watches is told. */
export interface ServerEventListener {
  /** gap: some before these are lost. */
  onEvents(events: readonly ServerEvent[], gap: boolean): void;
  /** The server is there. restarted: it is not the one from before. */
  onConnected(hello: ServerHello, restarted: boolean): void;
  /** The connection has ended; the next attempt comes by itself. */
  onDisconnected(error: Error | null): void;
  /** The server does not let us watch. */
  onRefused(error: Error): void;
}

export interface AdminConnection {
  /** What the server said first; null: there is no connection. */
  readonly hello: ServerHello | null;
  /** The last events of a key, oldest first. @throws FatalDriverError if the credential may not see them */
  history(key: string, max: number): Promise<ServerEvent[]>;
  /** What the server says of itself, and what we may do with that key. */
  info(key: string): Promise<ServerInfo>;
  /** Tells what happens on keys that begin with prefix, until close(). */
  watch(prefix: string, listener: ServerEventListener): void;
  close(): void;
}

/**
 * Opens a connection beside the driver's. Null: no server of ours is behind this driver.
 * @throws as Driver.open()
 */
export async function openAdminConnection(driver: Driver): Promise<AdminConnection | null> {
  const endpoint = getServerEndpoint(driver);
  if (endpoint === undefined) return null;
  const { options, connector } = endpoint;
  const { clock = systemClock, random = Math.random, connectTimeoutMs = 5_000, beforeConnect } = options;
  const sessionId = randomId();
  let subscription: { readonly prefix: string; readonly listener: ServerEventListener } | null = null;
  let watchCallId = 0;
  let lastSeq = 0;

  const connection: Connection = new Connection(
    {
      connector: notifyOnClose(connector, (error) => subscription?.listener.onDisconnected(error)),
      beforeConnect,
      clock,
      random,
      connectTimeoutMs,
    },
    {
      encodeHello: () => createClientHello(options, sessionId, null),
      onConnected(hello, previousRunId) {
        if (previousRunId !== null && subscription !== null) startWatch(hello, previousRunId);
      },
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

  /** previous: the start of the server that was followed before; null: none was. */
  function startWatch(hello: ServerHello, previousRunId: string | null): void {
    const { prefix, listener } = subscription as NonNullable<typeof subscription>;
    const isRestarted = previousRunId !== null && previousRunId !== hello.start;
    listener.onConnected(hello, isRestarted);
    // of a new start everything is new
    const after = previousRunId === null ? undefined : isRestarted ? 0 : lastSeq;
    callServer(
      (callId) => {
        watchCallId = callId;
        return frames.encodeWatch(callId, prefix, after);
      },
      (result) => {
        if (previousRunId === null || isRestarted) lastSeq = Number(result);
      },
      "watch",
    ).catch((error: unknown) => {
      // a connection that ended is told by onDisconnected()
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
      // an older one ends the connection at a frame it does not know
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

/** As dial, telling when a wire that was connected has ended, whoever ended it. */
function notifyOnClose(connector: Connector, onDisconnected: (error: Error | null) => void): Connector {
  return (events) => {
    let isConnected = false;
    const notifyEnd = (error: Error | null): void => {
      if (isConnected) onDisconnected(error);
      isConnected = false;
    };
    const transport = connector({
      onLines(lines) {
        isConnected = true;
        events.onLines(lines);
      },
      onClosed(error) {
        notifyEnd(error);
        events.onClosed(error);
      },
    });
    return {
      write: (text) => transport.write(text),
      keepAlive: (on) => transport.keepAlive(on),
      close() {
        transport.close();
        notifyEnd(null);
      },
    };
  };
}

/**
 * A connection of its own for tools: what happened on a server, live or before, and what the server says of itself. It has
 * a session of its own, in which nothing is ever claimed, so it can end at any time.
 */

import { systemClock } from "../../clock.ts";
import { UnsupportedError } from "../../errors.ts";
import { newId } from "../../ids.ts";
import type { ServerHello } from "../../protocol/hello.ts";
import { ProtocolError } from "../../protocol/hello.ts";
import type { ServerInfo, ToldEvent } from "../../protocol/tools.ts";
import * as frames from "../../protocol/tools.ts";
import type { Driver } from "../../spi/driver.ts";
import { Connection } from "./connection.ts";
import { greeting } from "./greeting.ts";
import { reachOf } from "./tether.ts";
import type { Dial } from "./wire.ts";

/** What somebody who watches is told. */
export interface Watcher {
  /** gap: some before these are lost. */
  events(events: readonly ToldEvent[], gap: boolean): void;
  /** The server is there. restarted: it is not the one from before. */
  up(hello: ServerHello, restarted: boolean): void;
  /** The connection has ended; the next attempt comes by itself. */
  down(error: Error | null): void;
  /** The server does not let us watch. */
  refused(error: Error): void;
}

export interface ToolLink {
  /** What the server said first; null: there is no connection. */
  readonly hello: ServerHello | null;
  /** The last events of a key, oldest first. @throws FatalDriverError if the credential may not see them */
  history(key: string, max: number): Promise<ToldEvent[]>;
  /** What the server says of itself, and what we may do with that key. */
  info(key: string): Promise<ServerInfo>;
  /** Tells what happens on keys that begin with prefix, until close(). */
  watch(prefix: string, watcher: Watcher): void;
  close(): void;
}

/**
 * Opens a connection beside the driver's. Null: no server of ours is behind this driver.
 * @throws as Driver.open()
 */
export async function openTools(driver: Driver): Promise<ToolLink | null> {
  const reach = reachOf(driver);
  if (reach === undefined) return null;
  const { options, dial } = reach;
  const { clock = systemClock, random = Math.random, connectTimeoutMs = 5_000, prepare } = options;
  const session = newId();
  let watched: { readonly prefix: string; readonly watcher: Watcher } | null = null;
  let watch = 0;
  let last = 0;

  const connection: Connection = new Connection(
    { dial: told(dial, (error) => watched?.watcher.down(error)), prepare, clock, random, connectTimeoutMs },
    {
      hello: () => greeting(options, session, null),
      up(hello, previous) {
        if (previous !== null && watched !== null) follow(hello, previous);
      },
      pushed(frame) {
        if (frame[0] !== "events" || frame[1] !== watch || watched === null) return;
        const { events, gap } = frames.decodeWatched(frame);
        last = events.at(-1)?.seq ?? last;
        watched.watcher.events(events, gap);
      },
      isNeeded: () => watched !== null,
      mustSpeak: () => watched !== null,
    },
  );

  /** previous: the start of the server that was followed before; null: none was. */
  function follow(hello: ServerHello, previous: string | null): void {
    const { prefix, watcher } = watched as NonNullable<typeof watched>;
    const isRestarted = previous !== null && previous !== hello.start;
    watcher.up(hello, isRestarted);
    // of a new start everything is new
    const after = previous === null ? undefined : isRestarted ? 0 : last;
    asked(
      (n) => {
        watch = n;
        return frames.encodeWatch(n, prefix, after);
      },
      (raw) => {
        if (previous === null || isRestarted) last = Number(raw);
      },
      "watch",
    ).catch((error: unknown) => {
      // a connection that ended is told by down()
      if ((error as { code?: unknown }).code !== undefined) watcher.refused(error as Error);
    });
  }

  function asked<T>(encode: (n: number) => string, read: (raw: unknown) => T, what: string): Promise<T> {
    const version = connection.hello?.version;
    return connection.call(encode, read).catch((error: unknown) => {
      const { cause } = error as Error;
      if (!(cause instanceof ProtocolError) || cause.code !== "PROTOCOL") throw error;
      // an older one ends the connection at a frame it does not know
      throw new UnsupportedError(`this server (version ${version ?? "unknown"}) does not know "${what}"`, {
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
    history: (key, max) => asked((n) => frames.encodeHistory(n, key, max), frames.decodeEvents, "history"),
    info: (key) => asked((n) => frames.encodeInfo(n, key), frames.decodeInfo, "info"),
    watch(prefix, watcher) {
      watched = { prefix, watcher };
      if (connection.hello !== null) follow(connection.hello, null);
      connection.watch();
    },
    close() {
      watched = null;
      connection.close();
    },
  };
}

/** As dial, telling when a wire that was connected has ended, whoever ended it. */
function told(dial: Dial, down: (error: Error | null) => void): Dial {
  return (events) => {
    let isUp = false;
    const end = (error: Error | null): void => {
      if (isUp) down(error);
      isUp = false;
    };
    const wire = dial({
      lines(lines) {
        isUp = true;
        events.lines(lines);
      },
      closed(error) {
        end(error);
        events.closed(error);
      },
    });
    return {
      write: (text) => wire.write(text),
      keepAlive: (on) => wire.keepAlive(on),
      close() {
        wire.close();
        end(null);
      },
    };
  };
}

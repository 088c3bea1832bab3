/**
 * The watches of one session. A watch is added when the server has answered the request that set it, never before. All
 * watches are sent again on every new connection, since servers forget them with the connection.
 */

import type { JuteWriter } from "./jute.ts";
import type { WatchedEvent, WatchedKind } from "./records.ts";

/** Watches of each kind fire once. */
export type WatchKind = "data" | "exists" | "children";

/** Called with the event; null: the session has ended, and the watch with it. */
export type Watcher = (event: WatchedEvent | null) => void;

/** The order of the kinds in SetWatches2. */
const KINDS: readonly WatchKind[] = ["data", "exists", "children"];

/** Which watches an event fires. */
const KINDS_BY_EVENT: Readonly<Record<WatchedKind, readonly WatchKind[]>> = {
  created: ["data", "exists"],
  changed: ["data", "exists"],
  deleted: ["data", "exists", "children"],
  children: ["children"],
};

/** A server accepts requests of at most a megabyte; other clients use this limit. */
const CHUNK_BYTES = 128 * 1_024;

type WatchersByPath = Map<string, Set<Watcher>>;

export class Watches {
  readonly #all: Readonly<Record<WatchKind, WatchersByPath>> = {
    data: new Map(),
    exists: new Map(),
    children: new Map(),
  };

  get size(): number {
    return KINDS.reduce((sum, kind) => sum + this.#all[kind].size, 0);
  }

  add(kind: WatchKind, path: string, watcher: Watcher): void {
    const paths = this.#all[kind];
    const watchers = paths.get(path);
    if (watchers === undefined) paths.set(path, new Set([watcher]));
    else watchers.add(watcher);
  }

  /** Removes the watches for the creation of that node. */
  forget(path: string): void {
    this.#all.exists.delete(path);
  }

  fire(event: WatchedEvent): void {
    const notified = new Set<Watcher>();
    for (const kind of KINDS_BY_EVENT[event.kind]) {
      for (const watcher of this.#all[kind].get(event.path) ?? []) notified.add(watcher);
      this.#all[kind].delete(event.path);
    }
    for (const watcher of notified) watcher(event);
  }

  /** Ends all watches with the session. */
  end(): void {
    const notified = new Set<Watcher>();
    for (const kind of KINDS) {
      for (const watchers of this.#all[kind].values()) for (const watcher of watchers) notified.add(watcher);
      this.#all[kind].clear();
    }
    for (const watcher of notified) watcher(null);
  }

  /**
   * All watches as the bodies of SetWatches2 requests, each within the size that a server accepts. If there are none,
   * the result is one empty request, since a server that does not support it must be detected at once.
   */
  *encodeChunks(): Generator<(writer: JuteWriter, lastZxid: bigint) => void> {
    let chunk: Record<WatchKind, string[]> = createChunk();
    let bytes = 0;
    for (const kind of KINDS) {
      for (const path of this.#all[kind].keys()) {
        const size = Buffer.byteLength(path) + 4;
        if (bytes + size > CHUNK_BYTES && bytes > 0) {
          yield createBodyWriter(chunk);
          [chunk, bytes] = [createChunk(), 0];
        }
        chunk[kind].push(path);
        bytes += size;
      }
    }
    yield createBodyWriter(chunk);
  }
}

function createChunk(): Record<WatchKind, string[]> {
  return { data: [], exists: [], children: [] };
}

function createBodyWriter(chunk: Readonly<Record<WatchKind, readonly string[]>>) {
  return (writer: JuteWriter, lastZxid: bigint): void => {
    writer.long(lastZxid);
    for (const kind of KINDS) writer.vector(chunk[kind], (pathWriter, path) => pathWriter.text(path));
    // this client has no persistent and no recursive watches
    writer.vector([], () => undefined).vector([], () => undefined);
  };
}

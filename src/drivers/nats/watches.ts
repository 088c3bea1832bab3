/** Watches of keys that outlive connections. */

import type { KvLike } from "./connection.ts";

interface Watch {
  readonly key: string;
  readonly changed: () => void;
  /** Where it is; null: nowhere yet. */
  kv: KvLike | null;
  stop(): void;
}

export class KvWatches {
  readonly #watches = new Set<Watch>();

  /** Takes effect with the next moveTo(). Returns a function that ends the watch. */
  add(key: string, changed: () => void): () => void {
    const watch: Watch = { key, changed, kv: null, stop: () => undefined };
    this.#watches.add(watch);
    return () => this.#stop(watch);
  }

  /** Begins all watches here that are elsewhere: where they were, they have ended with the connection. */
  moveTo(kv: KvLike): void {
    for (const watch of this.#watches) {
      if (watch.kv === kv) continue;
      watch.kv = kv;
      // a connection that breaks ends it, and the end of the connection is told by itself
      this.#run(watch, kv).catch(() => undefined);
    }
  }

  /** For a break in which changes were missed. */
  tellAll(): void {
    for (const { changed } of this.#watches) changed();
  }

  stopAll(): void {
    for (const watch of this.#watches) this.#stop(watch);
  }

  #stop(watch: Watch): void {
    this.#watches.delete(watch);
    watch.stop();
  }

  async #run(watch: Watch, kv: KvLike): Promise<void> {
    const changes = await kv.watch({ key: watch.key, include: "updates", headers_only: true });
    watch.stop = () => changes.stop();
    if (!this.#watches.has(watch)) return changes.stop();
    // something may have changed before it began
    watch.changed();
    for await (const _ of changes) watch.changed();
  }
}

/** Calls on a bucket over one connection at a time, and what is watched there. */

import type { NatsConnectionOptions, OpenBucket } from "./connection.ts";
import { openBucket } from "./connection.ts";
import { KvWatches } from "./watches.ts";

/** A connection from its beginning on. */
interface Session {
  readonly bucket: Promise<OpenBucket>;
  callCount: number;
  /** Later calls use another one. */
  isLeft: boolean;
}

export class BucketCalls {
  readonly #name: string;
  readonly #options: NatsConnectionOptions;
  readonly #watches: KvWatches = new KvWatches();
  #session: Session | null = null;

  constructor(name: string, options: NatsConnectionOptions) {
    this.#name = name;
    this.#options = options;
  }

  /** Calls `work` with the bucket; rejects as soon as the signal is aborted. */
  async call<T>(signal: AbortSignal, work: (bucket: OpenBucket) => Promise<T>): Promise<T> {
    signal.throwIfAborted();
    const session = this.#use();
    session.callCount++;
    try {
      return await rejectOnAbort(session.bucket.then(work), signal);
    } catch (error) {
      // nothing else tells that its server is gone
      if (signal.aborted) this.#leave(session);
      throw error;
    } finally {
      session.callCount--;
      this.#closeIfUnused(session);
    }
  }

  /** Calls `changed` after each change of the key, and after each break. Returns a function that ends the watch. */
  watch(key: string, changed: () => void): () => void {
    const stop = this.#watches.add(key, changed);
    this.#use().bucket.then(
      ({ kv }) => this.#watches.moveTo(kv),
      () => undefined,
    );
    return stop;
  }

  async close(): Promise<void> {
    this.#watches.stopAll();
    const session = this.#session;
    if (session === null) return;
    this.#leave(session);
    await this.#close(session);
  }

  #use(): Session {
    if (this.#session !== null) return this.#session;
    const session: Session = { bucket: openBucket(this.#name, this.#options), callCount: 0, isLeft: false };
    this.#session = session;
    session.bucket.then((bucket) => this.#follow(bucket, session)).catch(() => this.#leave(session));
    return session;
  }

  /** For as long as the connection lasts. */
  async #follow({ connection, kv }: OpenBucket, session: Session): Promise<void> {
    if (!session.isLeft) this.#watches.moveTo(kv);
    for await (const { type } of connection.status()) if (type === "reconnect") this.#watches.tellAll();
    this.#leave(session);
    // the read that follows opens the next connection, to which the watches move
    this.#watches.tellAll();
  }

  #leave(session: Session): void {
    session.isLeft = true;
    if (this.#session === session) this.#session = null;
  }

  /** Other calls may still be answered on a connection that was left. */
  #closeIfUnused(session: Session): void {
    if (session.isLeft && session.callCount === 0) void this.#close(session);
  }

  /** One that was passed in stays open. */
  async #close({ bucket }: Session): Promise<void> {
    if (this.#options.connection !== undefined) return;
    await bucket.then(({ connection }) => connection.close()).catch(() => undefined);
  }
}

function rejectOnAbort<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason);
    signal.addEventListener("abort", abort, { once: true });
    work.finally(() => signal.removeEventListener("abort", abort)).then(resolve, reject);
  });
}

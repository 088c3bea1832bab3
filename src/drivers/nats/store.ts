/**
 * Documents in a bucket of NATS KV: a key each, whose revision is the version. Reads are answered by the leader of the bucket, and a
 * watch tells of changes.
 */

import { StoreRefusedError } from "../../errors.ts";
import { checkConditionalWrites } from "../conditional-write-check.ts";
import type { DocumentStore } from "../document/store.ts";
import { checkReplicas, findUnsafeSetting, isConflict, readSettings, toStoreError } from "./bucket.ts";
import type { NatsConnectionOptions, OpenBucket } from "./connection.ts";
import { openBucket } from "./connection.ts";
import { KvWatches } from "./watches.ts";

export interface NatsStoreOptions extends NatsConnectionOptions {
  /** The name of the bucket, which must exist. */
  readonly bucket: string;
}

export function natsStore(options: NatsStoreOptions): DocumentStore {
  const subject = `the bucket "${options.bucket}" of NATS`;
  const isOwn = options.connection === undefined;
  const watches = new KvWatches();
  let opening: Promise<OpenBucket> | null = null;

  /** The bucket on the open connection; opens one if there is none. */
  function use(): Promise<OpenBucket> {
    if (opening !== null) return opening;
    const attempt = openBucket(options.bucket, options);
    opening = attempt;
    attempt.then((bucket) => follow(bucket, attempt)).catch(() => leave(attempt));
    return attempt;
  }

  function leave(attempt: Promise<OpenBucket>): void {
    if (opening === attempt) opening = null;
  }

  /** For as long as the connection lasts. */
  async function follow({ connection, kv }: OpenBucket, attempt: Promise<OpenBucket>): Promise<void> {
    watches.moveTo(kv);
    for await (const { type } of connection.status()) if (type === "reconnect") watches.tellAll();
    leave(attempt);
    // who reads now opens the next connection, to which the watches move
    watches.tellAll();
  }

  /** An own connection on which an answer does not come in time is given up: nothing else tells that its server is gone. */
  async function call<T>(signal: AbortSignal, work: (bucket: OpenBucket) => Promise<T>): Promise<T> {
    signal.throwIfAborted();
    const attempt = use();
    return new Promise((resolve, reject) => {
      const abort = (): void => {
        reject(signal.reason);
        if (!isOwn) return;
        leave(attempt);
        attempt.then(({ connection }) => connection.close()).catch(() => undefined);
      };
      signal.addEventListener("abort", abort, { once: true });
      attempt
        .then(work)
        .finally(() => signal.removeEventListener("abort", abort))
        .then(resolve, (error) => reject(toStoreError(error, subject)));
    });
  }

  const store: DocumentStore = {
    name: "nats",

    open: (signal) =>
      call(signal, async (bucket) => {
        const settings = await readSettings(bucket);
        const reason = typeof settings === "string" ? null : findUnsafeSetting(settings);
        if (reason !== null) throw new StoreRefusedError(`${subject} cannot keep locks: ${reason}`);
      }),

    read: (name, signal) =>
      call(signal, async ({ kv }) => {
        const entry = await kv.get(name);
        // a deletion is an entry too
        return entry?.operation === "PUT" ? { bytes: entry.value, version: String(entry.revision) } : null;
      }),

    write: (name, bytes, version, signal) =>
      call(signal, async ({ kv }) => {
        try {
          const revision = version === null ? kv.create(name, bytes) : kv.update(name, bytes, Number(version));
          return { version: String(await revision) };
        } catch (error) {
          if (isConflict(error)) return "conflict";
          throw error;
        }
      }),

    watch(name, changed) {
      const stop = watches.add(name, changed);
      use().then(
        ({ kv }) => watches.moveTo(kv),
        () => undefined,
      );
      return stop;
    },

    diagnose: async () => [checkReplicas(await readSettings(await use())), await checkConditionalWrites(store)],

    async close() {
      watches.stopAll();
      const last = opening;
      opening = null;
      if (isOwn) await last?.then(({ connection }) => connection.close()).catch(() => undefined);
    },
  };
  return store;
}

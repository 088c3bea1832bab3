/**
 * Documents in a bucket of NATS KV: a key each, whose revision is the version. Reads are answered by the leader of the bucket, and a
 * watch tells of changes.
 */

import { StoreRefusedError } from "../../errors.ts";
import { checkConditionalWrites } from "../conditional-write-check.ts";
import type { DocumentStore } from "../document/store.ts";
import { checkReplicas, findUnsafeSetting, isConflict, readSettings, toStoreError } from "./bucket.ts";
import { BucketCalls } from "./bucket-calls.ts";
import type { NatsConnectionOptions, OpenBucket } from "./connection.ts";

export interface NatsStoreOptions extends NatsConnectionOptions {
  /** The name of the bucket, which must exist. */
  readonly bucket: string;
}

const DIAGNOSE_MS = 10_000;

export function natsStore(options: NatsStoreOptions): DocumentStore {
  const subject = `the bucket "${options.bucket}" of NATS`;
  const calls = new BucketCalls(options.bucket, options);

  async function call<T>(signal: AbortSignal, work: (bucket: OpenBucket) => Promise<T>): Promise<T> {
    try {
      return await calls.call(signal, work);
    } catch (error) {
      throw toStoreError(error, subject);
    }
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

    watch: (name, changed) => calls.watch(name, changed),

    diagnose: async () => [
      checkReplicas(await call(AbortSignal.timeout(DIAGNOSE_MS), readSettings)),
      await checkConditionalWrites(store),
    ],

    close: () => calls.close(),
  };
  return store;
}

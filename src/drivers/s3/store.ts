/**
 * Documents in a bucket of S3, or of a store that speaks its protocol and has conditional writes: an object each, whose ETag is
 * the version. Reads of S3 are strongly consistent.
 */

import { StoreRefusedError } from "../../errors.ts";
import type { AwsOptions } from "../aws/client.ts";
import { callAws, clientSettings, conflictUnlessRepeated, isAwsError } from "../aws/client.ts";
import { checkConditionalWrites } from "../conditional-write-check.ts";
import type { DocumentStore } from "../document/store.ts";
import { MAX_DOCUMENT_BYTES } from "../document/store.ts";
import type { OpenBucket } from "./bucket.ts";
import { checkLifecycle, findEndingRule, importSdk } from "./bucket.ts";

export interface S3StoreOptions extends AwsOptions {
  readonly bucket: string;
  /** Begins the names of the objects. Default "holdfast/". */
  readonly prefix?: string;
}

const DEFAULT_PREFIX = "holdfast/";

export function s3Store(options: S3StoreOptions): DocumentStore {
  const { bucket: Bucket, prefix = DEFAULT_PREFIX, client: givenClient } = options;
  const subject = `the bucket "${Bucket}" of S3`;
  let opened: OpenBucket | null = null;

  async function open(signal: AbortSignal): Promise<void> {
    const sdk = await importSdk();
    const client = givenClient ?? opened?.client ?? new sdk.S3Client(settingsOf(options));
    opened = { sdk, client };
    const rule = await findEndingRule(opened, { Bucket, prefix, signal });
    if (rule !== null && typeof rule !== "string")
      throw new StoreRefusedError(`${subject} deletes the objects of locks by a lifecycle rule: "${rule.ID ?? ""}"`);
    await refuseIgnoredConditions(signal);
  }

  /** Some stores take the conditions of a write, and ignore them: then every process would get every lock. */
  async function refuseIgnoredConditions(signal: AbortSignal): Promise<void> {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    await store.write("probe", bytes, null, signal);
    const writes = [null, '"0123456789abcdef0123456789abcdef"'].map((version) =>
      store.write("probe", bytes, version, signal),
    );
    if ((await Promise.all(writes)).some((result) => result !== "conflict"))
      throw new StoreRefusedError(`${subject} ignores the conditions of writes, so it cannot keep locks`);
  }

  function use(): OpenBucket {
    if (opened === null) throw new Error(`${subject} is not open`);
    return opened;
  }

  const store: DocumentStore = {
    name: "s3",
    open,

    async read(name, signal) {
      const { sdk, client } = use();
      const command = new sdk.GetObjectCommand({ Bucket, Key: prefix + name });
      try {
        const { Body, ETag, ContentLength = 0 } = await callAws<StoredObject>(client, command, { signal, subject });
        if (ContentLength > 2 * MAX_DOCUMENT_BYTES) {
          Body.destroy?.();
          throw new StoreRefusedError(`the object "${prefix}${name}" in ${subject} is none of locks: it is too long`);
        }
        return { bytes: await Body.transformToByteArray(), version: ETag };
      } catch (error) {
        if (isAwsError(error, "NoSuchKey")) return null;
        throw error;
      }
    },

    async write(name, bytes, version, signal) {
      const { sdk, client } = use();
      const condition = version === null ? { IfNoneMatch: "*" } : { IfMatch: version };
      const command = new sdk.PutObjectCommand({ Bucket, Key: prefix + name, Body: bytes, ...condition });
      try {
        const { ETag } = await callAws<StoredObject>(client, command, { signal, subject });
        return { version: ETag };
      } catch (error) {
        // 409: another write or deletion was under way; NoSuchKey: the object of that version has been deleted
        if (isAwsError(error, "NoSuchKey", "ConditionalRequestConflict", 409, 412))
          return conflictUnlessRepeated(error);
        throw error;
      }
    },

    diagnose: async () => [await checkLifecycle(use(), { Bucket, prefix }), await checkConditionalWrites(store)],

    async close() {
      if (givenClient === undefined) opened?.client.destroy?.();
      opened = null;
    },
  };
  return store;
}

interface StoredObject {
  readonly Body: { transformToByteArray(): Promise<Uint8Array>; destroy?(): void };
  readonly ETag: string;
  readonly ContentLength?: number;
}

function settingsOf(options: S3StoreOptions): object {
  return {
    ...clientSettings(options),
    // a store that is not of AWS seldom has a host for each bucket
    ...(options.endpoint !== undefined && { forcePathStyle: true }),
    // documents have a checksum of their own, and not every store knows the header
    requestChecksumCalculation: "WHEN_REQUIRED",
    responseChecksumValidation: "WHEN_REQUIRED",
  };
}

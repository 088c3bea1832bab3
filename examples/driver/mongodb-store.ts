// Locks in a collection of MongoDB, by the document driver. docs/write-a-driver.md shows this file as it stands.

import type { DocumentStore } from "holdfast/document";

interface StoredLocks {
  readonly _id: string;
  readonly bytes: Uint8Array;
  readonly version: number;
}

/** What the store needs of a collection of the package `mongodb`. */
export interface LockCollection {
  findOne(filter: { _id: string }, options: object): Promise<StoredLocks | null>;
  findOneAndUpdate(
    filter: { _id: string; version: number },
    update: { $set: { bytes: Uint8Array }; $inc: { version: number } },
    options: object,
  ): Promise<Pick<StoredLocks, "version"> | null>;
}

/** An insert of an _id that is there already. */
const DUPLICATE_KEY = 11_000;

export function mongodbStore(collection: LockCollection): DocumentStore {
  return {
    name: "mongodb",

    async read(name) {
      // a primary that has been replaced, and does not know it yet, must not answer
      const options = { readConcern: { level: "linearizable" }, readPreference: "primary", promoteBuffers: true };
      const found = await collection.findOne({ _id: name }, options);
      return found && { bytes: found.bytes, version: String(found.version) };
    },

    async write(name, bytes, version) {
      // a document that does not exist is inserted with version 0, which becomes 1; one that exists has no version 0
      const filter = { _id: name, version: Number(version ?? 0) };
      const options = {
        upsert: version === null,
        returnDocument: "after",
        projection: { version: 1 },
        writeConcern: { w: "majority" },
      };
      try {
        const written = await collection.findOneAndUpdate(filter, { $set: { bytes }, $inc: { version: 1 } }, options);
        return written === null ? "conflict" : { version: String(written.version) };
      } catch (error) {
        if ((error as { code?: unknown }).code === DUPLICATE_KEY) return "conflict";
        throw error;
      }
    },
  };
}

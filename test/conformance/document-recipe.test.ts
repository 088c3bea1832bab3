// The store for MongoDB on the page "Write a driver", over a collection in memory that behaves as MongoDB's manual says.

import { describe, test } from "vitest";
import type { LockCollection } from "../../examples/driver/mongodb-store.ts";
import { mongodbStore } from "../../examples/driver/mongodb-store.ts";
import { conformance } from "../../src/conformance/suite.ts";
import { createDocumentDriver } from "../../src/drivers/document/driver.ts";

conformance({ describe, test }, "the store for MongoDB", {
  async open() {
    const collection = createCollection();
    return { driver: () => createDocumentDriver(mongodbStore(collection), { documents: 2, pollMs: 10 }, 100) };
  },
  traits: { lease: { claim: true, observed: true }, manyKeys: false, recall: "recheck" },
  verbs: ["detach", "revoke"],
  timeScale: 0.5,
  keys: 200,
  random: { seeds: 1 },
});

function createCollection(): LockCollection {
  const documents = new Map<string, { readonly _id: string; readonly bytes: Uint8Array; readonly version: number }>();
  const reach = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));
  return {
    async findOne({ _id }) {
      await reach();
      return documents.get(_id) ?? null;
    },
    async findOneAndUpdate({ _id, version }, { $set, $inc }, options) {
      await reach();
      const found = documents.get(_id);
      const isMatch = found?.version === version;
      if (!isMatch && !(options as { upsert: boolean }).upsert) return null;
      // an upsert that matches nothing inserts the fields of its filter
      if (!isMatch && found !== undefined) throw Object.assign(new Error("E11000 duplicate key"), { code: 11_000 });
      const written = { _id, bytes: Uint8Array.from($set.bytes), version: version + $inc.version };
      documents.set(_id, written);
      return written;
    },
  };
}

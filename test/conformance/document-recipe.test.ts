// The stores on the page "Write a driver": that for MongoDB over a collection in memory that behaves as MongoDB's manual says, and
// that in files.

import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { beforeAll, describe, onTestFinished, test } from "vitest";
import type { LockCollection } from "../../examples/driver/mongodb-store.ts";
import { mongodbStore } from "../../examples/driver/mongodb-store.ts";
import { conformance } from "../../src/conformance/suite.ts";
import { createDocumentDriver } from "../../src/drivers/document/driver.ts";
import type { DocumentStore } from "../../src/drivers/document/store.ts";

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

let fileStore: (directory: string) => DocumentStore;

beforeAll(async () => {
  // it has no types, as the module of a user
  ({ fileStore } = await import(pathToFileURL("examples/driver/file-store.mjs").href));
});

const createDirectory = (): Promise<string> => mkdtemp(join(tmpdir(), "holdfast-files-"));

conformance({ describe, test }, "the store in files", {
  async open() {
    const directory = await createDirectory();
    return {
      driver: () => createDocumentDriver(fileStore(directory), { documents: 2, pollMs: 10 }, 100),
      // a call without an awaited answer may still be writing
      close: () => rm(directory, { recursive: true, maxRetries: 10 }),
    };
  },
  traits: { lease: { claim: true, observed: true }, manyKeys: false, recall: "recheck" },
  verbs: ["detach", "revoke"],
  keys: 50,
  random: { seeds: 1 },
});

test("of the writes in files on one version one succeeds, also if it comes when that version has long been removed", async () => {
  const directory = await createDirectory();
  onTestFinished(() => rm(directory, { recursive: true }));
  const signal = new AbortController().signal;
  const stores = Array.from({ length: 4 }, () => fileStore(directory));
  const versions: string[] = [];
  const race = async (store: DocumentStore): Promise<void> => {
    for (let round = 0; round < 100; round++) {
      const found = await store.read("raced", signal);
      const result = await store.write("raced", Buffer.from("x"), found?.version ?? null, signal).catch(() => null);
      if (result !== null && result !== "conflict") versions.push(result.version);
    }
  };
  await Promise.all(stores.map(race));
  assert.equal(new Set(versions).size, versions.length);
  const newest = await stores[0]?.read("raced", signal);
  assert.ok(Number(newest?.version) > 50);
  await assert.rejects(fileStore(directory).write("raced", Buffer.from("late"), "3", signal), /has a later version/);
  assert.deepEqual(await stores[0]?.read("raced", signal), newest);
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

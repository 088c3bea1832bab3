// What is in the store before its first use, and what is refused: nothing that another program or another version wrote is lost.

import { expect, test } from "vitest";
import { createDocumentDriver, documentDriver } from "../../../../src/drivers/document/driver.ts";
import { decodeDocument, encodeDocument } from "../../../../src/drivers/document/format.ts";
import type { Driver } from "../../../../src/spi/driver.ts";
import { makeClaim } from "../../../support/claims.ts";
import { NO_EVENTS } from "../../../support/driver-events.ts";
import { MemoryDocuments } from "../../../support/stores/memory-documents.ts";

const NAMES = ["layout", "locks-0", "locks-1", "locks-2"];

async function openDriver(store: MemoryDocuments, documents?: number): Promise<Driver> {
  const options = { connectTimeout: 1, ...(documents !== undefined && { documents }) };
  const driver = createDocumentDriver(store.client(), options, 100);
  await driver.open(NO_EVENTS);
  return driver;
}

/** A key of each document. */
const KEYS = Array.from({ length: 30 }, (_, index) => `key ${index}`);

async function claimAll(driver: Driver): Promise<PromiseSettledResult<unknown>[]> {
  return Promise.allSettled(KEYS.map((key) => driver.claim(makeClaim(key))));
}

test("processes that come at once create one store, and exclude each other", async () => {
  const store = new MemoryDocuments();
  const drivers = await Promise.all(Array.from({ length: 8 }, () => openDriver(store, 3)));
  expect([...store.documents.keys()].sort()).toEqual(NAMES);
  const answers = await Promise.all(drivers.map((driver) => driver.claim(makeClaim("key", { wait: false }))));
  expect(answers.map(({ state }) => state).sort()).toEqual(["held", ...Array(7).fill("none")]);
});

test("a process that dies, or hears nothing, while it creates the store leaves one that the next completes", async () => {
  for (let failing = 1; failing <= 4; failing++) {
    for (const fault of ["lostCall", "lostReply"] as const) {
      const store = new MemoryDocuments();
      let writes = 0;
      store.onCall = (call) => (call === "write" && ++writes >= failing ? fault : undefined);
      await expect(openDriver(store, 3)).rejects.toThrow("lost");
      store.onCall = () => undefined;
      const driver = await openDriver(store);
      // without "documents" the first document decides, if it is there
      const documents = failing === 1 && fault === "lostCall" ? 16 : 3;
      expect(store.documents.size).toBe(documents + 1);
      expect((await driver.claim(makeClaim("key"))).state).toBe("held");
    }
  }
});

test("the number of documents is that of the store: another one is refused, none takes it over", async () => {
  const store = new MemoryDocuments();
  await openDriver(store, 3);
  await expect(openDriver(store, 4)).rejects.toThrow(
    "memory-documents: the store has documents: 3 since it was created, so it cannot be used with documents: 4",
  );
  await openDriver(store);
  await openDriver(store, 3);
  expect(store.documents.size).toBe(4);
});

test("a missing document is named, and not made again: its tokens would begin anew", async () => {
  const store = new MemoryDocuments();
  const driver = await openDriver(store, 3);
  await claimAll(driver);
  store.documents.delete("locks-1");
  for (const other of [driver, await openDriver(store)]) {
    const results = await claimAll(other);
    expect(results.filter(({ status }) => status === "fulfilled").length).toBeGreaterThan(0);
    const errors = results.flatMap((result) => (result.status === "rejected" ? [String(result.reason)] : []));
    expect(new Set(errors)).toEqual(
      new Set(["StoreRefusedError: memory-documents: the document locks-1 is missing: it may have been deleted"]),
    );
  }
  expect(store.documents.has("locks-1")).toBe(false);
});

test("a store in use whose layout is missing is refused, since a document may be missing, too", async () => {
  const store = new MemoryDocuments();
  await claimAll(await openDriver(store, 3));
  store.documents.delete("layout");
  store.documents.delete("locks-1");
  await expect(openDriver(store)).rejects.toThrow("the document layout is missing");
});

test.each([
  ["another program's", () => Buffer.from("something else"), "was not written by Holdfast"],
  ["damaged", (bytes: Uint8Array) => bytes.with(bytes.length - 20, 1 ^ (bytes.at(-20) as number)), "is damaged"],
  [
    "of another layout",
    (bytes: Uint8Array) => bytes.with("holdfast-locks ".length, "9".charCodeAt(0)),
    "has the layout 9, and this release knows only 1",
  ],
  [
    "of another store",
    (bytes: Uint8Array) => encodeDocument({ ...decodeDocument(bytes, ""), storeId: "00".repeat(16) }),
    "belongs to another store",
  ],
  [
    "another one of the store",
    (bytes: Uint8Array) => encodeDocument({ ...decodeDocument(bytes, ""), number: 0 }),
    "belongs to another store",
  ],
])("a document that is %s is named and left as it is, before and after open()", async (_, change, message) => {
  const store = new MemoryDocuments();
  const driver = await openDriver(store, 3);
  await claimAll(driver);
  const bytes = change((store.documents.get("locks-1") as { bytes: Uint8Array }).bytes);
  store.put("locks-1", bytes);
  const { version } = store.documents.get("locks-1") as { version: string };
  for (const other of [driver, await openDriver(store)]) {
    const errors = (await claimAll(other)).flatMap((result) => (result.status === "rejected" ? [result.reason] : []));
    expect(errors.length).toBeGreaterThan(0);
    for (const error of errors) expect(error).toMatchObject({ code: "LOCK_STORE_REFUSED" });
    expect(String(errors[0])).toContain(`the document locks-1 ${message}`);
    await expect(other.list({ prefix: "" }, { max: 10 })).rejects.toThrow(message);
  }
  expect(store.documents.get("locks-1")?.version).toBe(version);
});

test("another program's object under the name of the layout or of the first document is refused", async () => {
  for (const name of ["layout", "locks-0"]) {
    const store = new MemoryDocuments();
    store.put(name, Buffer.from("{}"));
    await expect(openDriver(store)).rejects.toThrow(`the document ${name} was not written by Holdfast`);
    expect(Buffer.from(store.documents.get(name)?.bytes as Uint8Array).toString()).toBe("{}");
  }
});

test("a lease shorter than 10 s is refused before anything is sent", async () => {
  const store = new MemoryDocuments();
  const driver = documentDriver(store.client());
  await driver.open(NO_EVENTS);
  const { reads, writes } = store;
  await expect(driver.claim(makeClaim("key", { ttlMs: 9_999 }))).rejects.toMatchObject({
    code: "LOCK_STORE_REFUSED",
    message: "memory-documents: the shortest ttl is 10000 ms, not 9999 ms",
  });
  expect([store.reads, store.writes]).toEqual([reads, writes]);
  expect((await driver.claim(makeClaim("key", { ttlMs: 10_000 }))).state).toBe("held");
});

test.each([
  ["documents", [0, 1.5, "3", 1_025, null]],
  ["pollMs", [0, -1, "1s", null]],
  ["callTimeoutMs", [0, -1, "1s", null]],
  ["tokenBase", [5, -1n, 2n ** 62n, null]],
  ["clock", [null, {}]],
] as const)("%s: invalid values are refused", (name, values) => {
  for (const value of values)
    expect(() => documentDriver(new MemoryDocuments().client(), { [name]: value } as never)).toThrow(`${name} must be`);
});

test("what is no store, and an unknown option, are refused", () => {
  expect(() => documentDriver({} as never)).toThrow("store must be a store with read() and write()");
  expect(() => documentDriver(new MemoryDocuments().client(), { poll: 5 } as never)).toThrow('has no option "poll"');
});

/** What each store with a conditional write has to do, on a real program. */

import { afterEach, describe, expect, test } from "vitest";
import type { DocumentStore } from "../../../src/drivers/document/store.ts";
import { MAX_DOCUMENT_BYTES } from "../../../src/drivers/document/store.ts";
import type { StoreAddress } from "./document-stores.ts";
import { createStore } from "./document-stores.ts";
import { raceWrites } from "./write-race.ts";

const isLongRun = process.env.HOLDFAST_LONG === "1";

export const soon = (): AbortSignal => AbortSignal.timeout(15_000);

/** Calls each function that a store must have. `address` gives a bucket or table of its own each time. */
export function documentStoreTests(address: () => Promise<StoreAddress>): void {
  const opened: DocumentStore[] = [];
  afterEach(async () => {
    for (const store of opened.splice(0)) await store.close?.();
  });

  async function open(where?: StoreAddress): Promise<DocumentStore> {
    const store = createStore(where ?? (await address()));
    opened.push(store);
    await store.open?.(soon());
    return store;
  }

  async function write(store: DocumentStore, text: string, version: string | null): Promise<string> {
    const result = await store.write("locks-0", Buffer.from(text), version, soon());
    if (result === "conflict") throw new Error("conflict");
    return result.version;
  }

  const readText = async (store: DocumentStore, name: string = "locks-0"): Promise<string | null> => {
    const found = await store.read(name, soon());
    return found === null ? null : Buffer.from(found.bytes).toString();
  };

  describe("a document", () => {
    test("is created once", async () => {
      const store = await open();
      expect(await readText(store)).toBe(null);
      const version = await write(store, "first", null);
      expect(await store.write("locks-0", Buffer.from("second"), null, soon())).toBe("conflict");
      expect(await store.read("locks-0", soon())).toEqual({ bytes: expect.anything(), version });
      expect(await readText(store)).toBe("first");
    });

    test("is replaced only in the version that was read", async () => {
      const store = await open();
      const first = await write(store, "first", null);
      const second = await write(store, "second", first);
      expect(second).not.toBe(first);
      expect(await store.write("locks-0", Buffer.from("third"), first, soon())).toBe("conflict");
      expect(await readText(store)).toBe("second");
    });

    test("that does not exist has no version", async () => {
      const store = await open();
      const version = await write(store, "another", null);
      expect(await store.write("locks-1", Buffer.from("first"), version, soon())).toBe("conflict");
      expect(await readText(store, "locks-1")).toBe(null);
    });

    test("has the bytes that were written, up to the longest", async () => {
      const store = await open();
      const bytes = new Uint8Array(MAX_DOCUMENT_BYTES).map((_, index) => index % 251);
      await store.write("layout", bytes, null, soon());
      const found = await store.read("layout", soon());
      expect(Buffer.from(found?.bytes ?? []).equals(bytes)).toBe(true);
    });

    test("is seen by another client as soon as its write was answered", async () => {
      const where = await address();
      const [writer, reader] = [await open(where), await open(where)];
      let version: string | null = null;
      for (let count = 0; count < 50; count++) {
        version = await write(writer, `text ${count}`, version);
        expect(await readText(reader)).toBe(`text ${count}`);
      }
    });
  });

  test("a call that was given up is rejected at once, and later ones work", async () => {
    const store = await open();
    const version = await write(store, "first", null);
    const given = new AbortController();
    const pending = Promise.allSettled([
      store.read("locks-0", given.signal),
      store.write("locks-0", Buffer.from("late"), "0", given.signal),
    ]);
    given.abort();
    const results = await pending;
    expect(results.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
    await write(store, "second", version);
    expect(await readText(store)).toBe("second");
  });

  test("doctor tries 20 writes at once", async () => {
    const store = await open();
    const checks = (await store.diagnose?.()) ?? [];
    expect(checks.find(({ name }) => name === "conditional writes")).toMatchObject({ status: "ok" });
    // the second time it replaces its document
    expect((await store.diagnose?.())?.find(({ name }) => name === "conditional writes")?.status).toBe("ok");
  });

  test("of the writes of four processes on one version, one succeeds", { timeout: 600_000 }, async () => {
    const writes = isLongRun ? 10_000 : 200;
    // the longer the body, the more time a program that looks first and writes later leaves in between
    const { created, replaced } = await raceWrites(await address(), { writes, length: 60_000 });
    const expected = { writes, rounds: [0, writes / 4], errors: [] };
    expect({ created, replaced }).toEqual({ created: expected, replaced: expected });
  });
}

import assert from "node:assert/strict";
import { describe, test } from "vitest";
import { createLocks } from "../../../src/client/locks.ts";
import { memory } from "../../../src/drivers/memory.ts";

describe("keys that the store takes one by one", () => {
  test("an abort between two of them ends the wait, and releases the first", async () => {
    const driver = memory();
    const locks = createLocks({ ...driver, traits: { ...driver.traits, manyKeys: false } });
    const otherLock = await locks.acquire("b");
    const abort = new AbortController();
    // the grant of "a", before any request for "b"
    locks.on("acquired", ({ keys }) => keys[0] === "a" && abort.abort(new RangeError("enough")));
    await assert.rejects(locks.all("a", "b").acquire({ signal: abort.signal, wait: "2s" }), RangeError);
    assert.ok(await locks.tryAcquire("a"), "the first was given back");
    await otherLock.release();
    await locks.close();
  });
});

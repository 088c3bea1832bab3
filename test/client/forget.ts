/** The driver learns of the end of every claim, so that it can drop what it keeps for it. */

import assert from "node:assert/strict";
import { createLocks } from "../../src/client/locks.ts";
import type { DefineTest } from "../../src/conformance/context.ts";
import type { ConformanceSettings } from "../../src/conformance/options.ts";
import { createClaimLedger } from "../support/claim-ledger.ts";

export function testForget(test: DefineTest, { traits }: ConformanceSettings): void {
  test("a driver learns of the end of each claim: released, refused, given up, or detached", async (context) => {
    const ledger = createClaimLedger(await context.createDriver());
    const other = createLocks(await context.createDriver());
    const busy = await other.acquire("busy");
    const locks = createLocks(ledger.driver);
    await locks.using("key", () => undefined);
    await locks.all("a", "b").using(() => undefined);
    assert.equal(await locks.tryAcquire("busy"), null);
    const abort = new AbortController();
    const waits = ["busy", "busy", "key"].map((key) => locks.acquire(key, { signal: abort.signal }).catch(() => null));
    await context.sleep(10);
    abort.abort();
    const reference = traits.lease.claim ? await (await locks.acquire("detached")).detach() : null;
    for (const lock of await Promise.all(waits)) await lock?.release();
    await context.waitUntil("the end of all claims", () => ledger.openClaims.size === 0);
    if (reference !== null) await (await locks.attach(reference)).release();
    const open = [await locks.acquire("open"), await locks.acquire("also open")];
    assert.equal(ledger.openClaims.size, open.length);
    await locks.close();
    assert.equal(ledger.openClaims.size, 0);
    await busy.release();
    await other.close();
  });
}

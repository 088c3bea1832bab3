/** Fencing tokens rise, whatever happens. */

import assert from "node:assert/strict";
import type { Claim } from "../../spi/driver.ts";
import { ALL_PERMITS } from "../../spi/driver.ts";
import type { DefineTest, DriverClient } from "../context.ts";
import { assertHeld, isRefusal } from "../context.ts";
import type { ConformanceSettings } from "../options.ts";

const HOUR_MICROS = 3_600_000_000n;
const MAX_TOKEN = 2n ** 63n - 1n;

export function testTokens(test: DefineTest, settings: ConformanceSettings): void {
  const { traits } = settings;
  if (!traits.fencing) return;

  test("tokens rise from grant to grant, across clients, and fit 64 bits", async (context) => {
    const clients = [await context.openClient(), await context.openClient()] as const;
    let last = 0n;
    for (let round = 0; round < 100; round++) {
      const client = clients[(round % 2) as 0 | 1];
      const claim = context.createClaim("key");
      const { token } = await client.claimHeld(claim);
      assert.equal(typeof token, "bigint");
      assert.ok(token > last && token < MAX_TOKEN, `${token} after ${last}`);
      last = token;
      await client.release(claim);
    }
  });

  test("a grant to a waiting claim has a higher token too", async (context) => {
    const client = await context.openClient();
    const [first, second] = [context.createClaim("key"), context.createClaim("key")];
    const { token } = await client.claimHeld(first);
    await client.claimWaiting(second);
    await client.release(first);
    assert.ok((await client.waitForGrant(second)).token > token);
    await client.release(second);
  });

  test("token runs do not overlap", async (context) => {
    const client = await context.openClient();
    let free = 0n;
    for (const wanted of [64, 1, 1_024, 7, 64, 2]) {
      const claim = context.createClaim("key", { tokenCount: wanted });
      const held = await client.claimHeld(claim);
      assert.ok(held.token >= free, "a token range begins after the last one");
      free = held.token + BigInt(held.tokenCount);
      await client.release(claim);
    }
  });

  test("a renewal keeps the token", async (context) => {
    const client = await context.openClient();
    const claim = context.createClaim("key", { tokenCount: 3 });
    const { token, tokenCount: run } = await client.claimHeld(claim);
    for (let round = 0; round < 3; round++) {
      const again = assertHeld(await client.renew(claim), claim);
      assert.deepEqual([again.token, again.tokenCount], [token, run]);
    }
    await client.release(claim);
  });

  test("a token is at least the claim's floor, and later ones rise above it", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const first = context.createClaim("key");
    const { token } = await clientA.claimHeld(first);
    await clientA.release(first);
    let last = token;
    for (const ahead of [1n, 500n]) {
      const claim = context.createClaim("key", { floor: last + ahead });
      const held = await clientA.claimHeld(claim);
      assert.ok(held.token >= claim.floor, "a token is not below its floor");
      await clientA.release(claim);
      const next = context.createClaim("key");
      const { token: above } = await clientB.claimHeld(next);
      assert.ok(above > held.token);
      await clientB.release(next);
      last = above;
    }
  });

  test("a floor an hour ahead is reached, or refused by StoreRefusedError", async (context) => {
    const [clientA, clientB] = [await context.openClient(), await context.openClient()];
    const first = context.createClaim("key");
    const { token } = await clientA.claimHeld(first);
    await clientA.release(first);
    const high = context.createClaim("key", { floor: token + HOUR_MICROS });
    const answer = await clientA.claim(high).catch((error: unknown) => {
      assert.ok(isRefusal(error), String(error));
      return null;
    });
    const reached = answer === null ? token : assertHeld(answer, high).token;
    if (answer !== null) assert.ok(reached >= high.floor);
    await clientA.release(high);
    const next = context.createClaim("key");
    assert.ok((await clientB.claimHeld(next)).token > reached);
    await clientB.release(next);
  });

  test("a floor more than a day ahead is refused, and spoils nothing", async (context) => {
    const client = await context.openClient();
    const first = context.createClaim("key");
    const { token } = await client.claimHeld(first);
    await client.release(first);
    for (const floor of [token + 48n * HOUR_MICROS * 1_024n, 2n ** 53n + 1n, 2n ** 62n, MAX_TOKEN]) {
      for (const wait of [true, false]) {
        const wrong = context.createClaim("key", { floor, wait });
        await assert.rejects(() => client.claim(wrong), isRefusal, `a floor of ${floor} is refused`);
        assert.equal((await client.renew(wrong)).state, "none");
      }
      assert.deepEqual((await client.driver.list({ prefix: "" }, { max: 10 })).items, []);
    }
    const next = context.createClaim("key");
    const after = (await client.claimHeld(next)).token;
    assert.ok(after > token && after < token + 48n * HOUR_MICROS * 1_024n);
    await client.release(next);
  });

  test("a floor is measured from the clock or from the last token, whichever allows more", async (context) => {
    const client = await context.openClient();
    const first = context.createClaim("key");
    const { token } = await client.claimHeld(first);
    await client.release(first);
    // a store with numbers of its own refuses all of these floors
    const ahead = context.createClaim("key", { floor: token + 23n * HOUR_MICROS });
    if (await isRefused(client, ahead)) return;
    const last = assertHeld(await client.renew(ahead), ahead).token;
    await client.release(ahead);
    const tooFar = context.createClaim("key", { floor: last + 2n * HOUR_MICROS });
    assert.ok(await isRefused(client, tooFar), "25 hours ahead of the clock, two ahead of the last token");
    const next = context.createClaim("key", { floor: last + 1n });
    assert.ok((await client.claimHeld(next)).token > last);
    await client.release(next);
  });

  test("tokens rise when every client has gone in between", async (context) => {
    let last = 0n;
    for (let round = 0; round < 3; round++) {
      const client = await context.openClient();
      const claim = context.createClaim("key", { tokenCount: 100 });
      const { token, tokenCount: run } = await client.claimHeld(claim);
      assert.ok(token > last);
      last = token + BigInt(run) - 1n;
      await client.release(claim);
      await client.driver.close();
    }
  });

  if (traits.permits !== "one") {
    test("holders that share a key have different tokens", async (context) => {
      const client = await context.openClient();
      const readers = [1, 2, 3].map(() => context.createClaim("key", { permits: 1 }));
      let last = 0n;
      for (const reader of readers) {
        const { token } = await client.claimHeld(reader);
        assert.ok(token > last);
        last = token;
      }
      const writer = context.createClaim("key", { permits: ALL_PERMITS });
      await client.claimWaiting(writer);
      await client.release(...readers);
      assert.ok((await client.waitForGrant(writer)).token > last);
      await client.release(writer);
    });
  }

  const { restart } = settings;
  if (restart === undefined) return;

  test("tokens rise across a restart of the store", async (context) => {
    const before = await context.openClient();
    const claim = context.createClaim("key", { tokenCount: 64 });
    const { token, tokenCount: run } = await before.claimHeld(claim);
    await before.release(claim);
    await restart(context.store);
    const after = await context.openClient();
    const next = context.createClaim("key");
    const held = await context.waitUntil("a grant after the restart", async () => {
      const answer = await after.claim(next);
      return answer.state === "held" ? answer : null;
    });
    assert.ok(held.token >= token + BigInt(run));
    await after.release(next);
  });
}

async function isRefused(client: DriverClient, claim: Claim): Promise<boolean> {
  return client.claim(claim).then(
    () => false,
    (error: unknown) => {
      assert.ok(isRefusal(error), String(error));
      return true;
    },
  );
}

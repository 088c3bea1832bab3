/** A single claim: granted, renewed, released. */

import assert from "node:assert/strict";
import { MAX_DURATION_MS } from "../../util/duration.ts";
import { MAX_KEY_BYTES } from "../../util/keys.ts";
import type { DefineTest } from "../context.ts";
import { assertHeld } from "../context.ts";
import type { ConformanceSettings } from "../options.ts";

/** Pairs of keys that a faulty store could take for one key. */
const SIMILAR_KEYS: readonly (readonly [string, string])[] = [
  ["case", "CASE"],
  ["__proto__", "constructor"],
  ["end", "end "],
  [" start", "start"],
  ["caf\u00e9", "cafe\u0301"],
  ["stra\u00dfe", "strasse"],
  ["a/b", "a//b"],
  ["a%2fb", "a%2Fb"],
  ["star*", "starx"],
  ["quote'", "quote''"],
  ["brace{1}", "brace{2}"],
  ["under_score", "underxscore"],
  ["\u{1f512}", "\u{1f513}"],
  [`${"x".repeat(MAX_KEY_BYTES - 1)}y`, `${"x".repeat(MAX_KEY_BYTES - 1)}z`],
  ["\u00e9".repeat(MAX_KEY_BYTES / 2), `${"\u00e9".repeat(MAX_KEY_BYTES / 2 - 1)}e`],
];

export function testLifecycle(test: DefineTest, settings: ConformanceSettings): void {
  test("the driver's traits are as declared", async (context) => {
    const { driver, traits } = await context.openClient();
    const { durability, ...others } = traits;
    assert.deepEqual(others, settings.traits);
    assert.ok(["process", "restart", "failover"].includes(durability));
    const verbs = (["detach", "revoke"] as const).filter((verb) => driver[verb] !== undefined);
    assert.deepEqual(verbs, [...settings.verbs].sort());
    assert.ok(driver.name.length > 0, "a driver has a name");
  });

  test("a free key is granted at once, and free again after its release", async (context) => {
    const client = await context.openClient();
    for (let round = 0; round < 3; round++) {
      const claim = context.createClaim("key", { wait: round === 1 });
      await client.claimHeld(claim);
      assert.equal((await client.renew(claim)).state, "held");
      assert.deepEqual(await client.release(claim), [true]);
      assert.equal((await client.renew(claim)).state, "none");
    }
  });

  test("a repeated release answers false", async (context) => {
    const client = await context.openClient();
    const claim = context.createClaim("key");
    await client.claimHeld(claim);
    assert.deepEqual(await client.release(claim), [true]);
    assert.deepEqual(await client.release(claim), [false]);
  });

  test("forget() changes nothing in the store: the claim can be renewed, and released after another forget()", async (context) => {
    const client = await context.openClient();
    const claim = context.createClaim("key");
    const { token } = await client.claimHeld(claim);
    client.driver.forget?.(claim);
    assert.equal(assertHeld(await client.renew(claim), claim).token, token);
    client.driver.forget?.(claim);
    client.driver.forget?.(context.createClaim("unknown"));
    assert.deepEqual(await client.release(claim), [true]);
    assert.equal((await client.renew(claim)).state, "none");
  });

  test("a claim that was never made is none, cannot be released, and is not made by a renewal", async (context) => {
    const client = await context.openClient();
    const [existing, unknown] = [context.createClaim("key"), context.createClaim("key")];
    await client.claimHeld(existing);
    assert.equal((await client.renew(unknown)).state, "none");
    assert.deepEqual(await client.release(unknown), [false]);
    assert.equal((await client.renew(existing)).state, "held");
    await client.release(existing);
    assert.equal((await client.renew(unknown)).state, "none");
    assert.ok(await client.isFree("key"));
  });

  test("a batch is answered in the order of its claims", async (context) => {
    const client = await context.openClient();
    const [held, waiting, unknown, other] = [
      context.createClaim("a"),
      context.createClaim("a"),
      context.createClaim("a"),
      context.createClaim("b"),
    ];
    await client.claimHeld(held);
    await client.claimWaiting(waiting);
    await client.claimHeld(other);
    const states = async (): Promise<string[]> =>
      (await client.driver.renew([unknown, waiting, other, held])).map((answer) => answer?.state ?? "left out");
    assert.deepEqual(await states(), ["none", "waiting", "held", "held"]);
    assert.deepEqual(await client.release(other, unknown, held), [true, false, true]);
    await client.waitForGrant(waiting);
    assert.deepEqual(await states(), ["none", "held", "none", "none"]);
    assert.deepEqual(await client.release(held, waiting), [false, true]);
  });

  test("keys are compared byte by byte", async (context) => {
    const client = await context.openClient();
    const claims = SIMILAR_KEYS.flat().map((key) => context.createClaim(key, { wait: false }));
    for (const claim of claims) await client.claimHeld(claim);
    for (const { locks } of claims) {
      assert.equal((await client.claim(context.createClaim(locks[0].key, { wait: false }))).state, "none");
    }
    assert.ok((await client.release(...claims)).every(Boolean));
  });

  if (!settings.traits.lease.claim) return;

  test("the longest lease is kept", async (context) => {
    const client = await context.openClient();
    const claim = context.createClaim("key", { ttlMs: MAX_DURATION_MS });
    const { remainingMs } = await client.claimHeld(claim);
    assert.ok(remainingMs > MAX_DURATION_MS * 0.99, "nearly all of a new lease is left");
    assert.ok(assertHeld(await client.renew(claim), claim).remainingMs > MAX_DURATION_MS * 0.99);
    const waiting = context.createClaim("key", { ttlMs: MAX_DURATION_MS });
    await client.claimWaiting(waiting);
    assert.equal((await client.renew(waiting)).state, "waiting");
    assert.deepEqual(await client.release(waiting, claim), [true, true]);
  });
}

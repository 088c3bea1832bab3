/** One claim alone: granted, asked about, given back. */

import assert from "node:assert/strict";
import { MAX_DURATION_MS } from "../../duration.ts";
import { MAX_KEY_BYTES } from "../../keys.ts";
import { heldOf } from "../scene.ts";
import type { Check, Subject } from "../subject.ts";

/** Pairs that careless stores take for one key. */
const ALIKE: readonly (readonly [string, string])[] = [
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

export function lifecycle(check: Check, subject: Subject): void {
  check("the driver's traits are as declared", async (scene) => {
    const { driver } = await scene.client();
    const { survives, ...traits } = driver.traits;
    assert.deepEqual(traits, subject.traits);
    assert.ok(["process", "restart", "failover"].includes(survives));
    const verbs = (["detach", "revoke"] as const).filter((verb) => driver[verb] !== undefined);
    assert.deepEqual(verbs, [...subject.verbs].sort());
    assert.ok(driver.name.length > 0, "a driver has a name");
  });

  check("a free key is granted at once, and free again after its release", async (scene) => {
    const client = await scene.client();
    for (let round = 0; round < 3; round++) {
      const claim = scene.claim("key", { wait: round === 1 });
      await client.hold(claim);
      assert.equal((await client.ask(claim)).state, "held");
      assert.deepEqual(await client.release(claim), [true]);
      assert.equal((await client.ask(claim)).state, "none");
    }
  });

  check("a repeated release answers false", async (scene) => {
    const client = await scene.client();
    const claim = scene.claim("key");
    await client.hold(claim);
    assert.deepEqual(await client.release(claim), [true]);
    assert.deepEqual(await client.release(claim), [false]);
  });

  check("a claim that was never placed is none, cannot be released, and is not placed by asking", async (scene) => {
    const client = await scene.client();
    const [known, unknown] = [scene.claim("key"), scene.claim("key")];
    await client.hold(known);
    assert.equal((await client.ask(unknown)).state, "none");
    assert.deepEqual(await client.release(unknown), [false]);
    assert.equal((await client.ask(known)).state, "held");
    await client.release(known);
    assert.equal((await client.ask(unknown)).state, "none");
    assert.ok(await client.isFree("key"));
  });

  check("a batch is answered in the order of its claims", async (scene) => {
    const client = await scene.client();
    const [held, waiting, unknown, other] = [scene.claim("a"), scene.claim("a"), scene.claim("a"), scene.claim("b")];
    await client.hold(held);
    await client.queue(waiting);
    await client.hold(other);
    const states = async (): Promise<string[]> =>
      (await client.driver.renew([unknown, waiting, other, held])).map((answer) => answer?.state ?? "left out");
    assert.deepEqual(await states(), ["none", "waiting", "held", "held"]);
    assert.deepEqual(await client.release(other, unknown, held), [true, false, true]);
    assert.deepEqual(await states(), ["none", "held", "none", "none"]);
    assert.deepEqual(await client.release(held, waiting), [false, true]);
  });

  check("keys are compared byte by byte", async (scene) => {
    const client = await scene.client();
    const claims = ALIKE.flat().map((key) => scene.claim(key, { wait: false }));
    for (const claim of claims) await client.hold(claim);
    for (const { holds } of claims) {
      assert.equal((await client.claim(scene.claim(holds[0].key, { wait: false }))).state, "none");
    }
    assert.ok((await client.release(...claims)).every(Boolean));
  });

  if (!subject.traits.lease.claim) return;

  check("the longest lease is kept", async (scene) => {
    const client = await scene.client();
    const claim = scene.claim("key", { ttlMs: MAX_DURATION_MS });
    const { ttlMs } = await client.hold(claim);
    assert.ok(ttlMs > MAX_DURATION_MS * 0.99, "nearly all of a new lease is left");
    assert.ok(heldOf(await client.ask(claim), claim).ttlMs > MAX_DURATION_MS * 0.99);
    const waiting = scene.claim("key", { ttlMs: MAX_DURATION_MS });
    await client.queue(waiting);
    assert.equal((await client.ask(waiting)).state, "waiting");
    assert.deepEqual(await client.release(waiting, claim), [true, true]);
  });
}

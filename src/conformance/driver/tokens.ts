/** Fencing tokens rise, whatever happens. */

import assert from "node:assert/strict";
import { ALL_PERMITS, FatalDriverError } from "../../spi/driver.ts";
import { heldOf } from "../scene.ts";
import type { Check, Subject } from "../subject.ts";

const HOUR_MICROS = 3_600_000_000n;
const LARGEST = 2n ** 63n - 1n;

export function tokens(check: Check, subject: Subject): void {
  const { traits } = subject;
  if (!traits.fencing) return;

  check("tokens rise from grant to grant, across clients, and fit 64 bits", async (scene) => {
    const clients = [await scene.client(), await scene.client()] as const;
    let last = 0n;
    for (let round = 0; round < 100; round++) {
      const client = clients[(round % 2) as 0 | 1];
      const claim = scene.claim("key");
      const { token } = await client.hold(claim);
      assert.equal(typeof token, "bigint");
      assert.ok(token > last && token < LARGEST, `${token} after ${last}`);
      last = token;
      await client.release(claim);
    }
  });

  check("a grant to a waiting claim has a higher token too", async (scene) => {
    const client = await scene.client();
    const [first, second] = [scene.claim("key"), scene.claim("key")];
    const { token } = await client.hold(first);
    await client.queue(second);
    await client.release(first);
    assert.ok((await client.granted(second)).token > token);
    await client.release(second);
  });

  check("token runs do not overlap", async (scene) => {
    const client = await scene.client();
    let free = 0n;
    for (const wanted of [64, 1, 1_024, 7, 64, 2]) {
      const claim = scene.claim("key", { tokens: wanted });
      const held = await client.hold(claim);
      assert.ok(held.token >= free, "a run begins behind the one before");
      free = held.token + BigInt(held.tokens);
      await client.release(claim);
    }
  });

  check("a renewal keeps the token", async (scene) => {
    const client = await scene.client();
    const claim = scene.claim("key", { tokens: 3 });
    const { token, tokens: run } = await client.hold(claim);
    for (let round = 0; round < 3; round++) {
      const again = heldOf(await client.ask(claim), claim);
      assert.deepEqual([again.token, again.tokens], [token, run]);
    }
    await client.release(claim);
  });

  check("a token is at least the claim's floor, and later ones rise above it", async (scene) => {
    const [one, other] = [await scene.client(), await scene.client()];
    const first = scene.claim("key");
    const { token } = await one.hold(first);
    await one.release(first);
    let last = token;
    for (const ahead of [1n, 500n]) {
      const claim = scene.claim("key", { floor: last + ahead });
      const held = await one.hold(claim);
      assert.ok(held.token >= claim.floor, "a token is not below its floor");
      await one.release(claim);
      const next = scene.claim("key");
      const { token: above } = await other.hold(next);
      assert.ok(above > held.token);
      await other.release(next);
      last = above;
    }
  });

  check("a floor an hour ahead is reached, or refused by FatalDriverError", async (scene) => {
    const [one, other] = [await scene.client(), await scene.client()];
    const first = scene.claim("key");
    const { token } = await one.hold(first);
    await one.release(first);
    const high = scene.claim("key", { floor: token + HOUR_MICROS });
    const answer = await one.claim(high).catch((error: unknown) => {
      assert.ok(isFatal(error), String(error));
      return null;
    });
    const reached = answer === null ? token : heldOf(answer, high).token;
    if (answer !== null) assert.ok(reached >= high.floor);
    await one.release(high);
    const next = scene.claim("key");
    assert.ok((await other.hold(next)).token > reached);
    await other.release(next);
  });

  check("a floor more than a day ahead is refused, and spoils nothing", async (scene) => {
    const client = await scene.client();
    const first = scene.claim("key");
    const { token } = await client.hold(first);
    await client.release(first);
    for (const floor of [token + 48n * HOUR_MICROS * 1_024n, 2n ** 53n + 1n, 2n ** 62n, LARGEST]) {
      for (const wait of [true, false]) {
        const wrong = scene.claim("key", { floor, wait });
        await assert.rejects(() => client.claim(wrong), isFatal, `a floor of ${floor} is refused`);
        assert.equal((await client.ask(wrong)).state, "none");
      }
      assert.deepEqual(await client.driver.list({ prefix: "" }, 10), []);
    }
    const next = scene.claim("key");
    const after = (await client.hold(next)).token;
    assert.ok(after > token && after < token + 48n * HOUR_MICROS * 1_024n);
    await client.release(next);
  });

  check("tokens rise when every client has gone in between", async (scene) => {
    let last = 0n;
    for (let round = 0; round < 3; round++) {
      const client = await scene.client();
      const claim = scene.claim("key", { tokens: 100 });
      const { token, tokens: run } = await client.hold(claim);
      assert.ok(token > last);
      last = token + BigInt(run) - 1n;
      await client.release(claim);
      await client.driver.close();
    }
  });

  if (traits.permits !== "one") {
    check("those who share a key have tokens of their own", async (scene) => {
      const client = await scene.client();
      const readers = [1, 2, 3].map(() => scene.claim("key", { permits: 1 }));
      let last = 0n;
      for (const reader of readers) {
        const { token } = await client.hold(reader);
        assert.ok(token > last);
        last = token;
      }
      const writer = scene.claim("key", { permits: ALL_PERMITS });
      await client.queue(writer);
      await client.release(...readers);
      assert.ok((await client.granted(writer)).token > last);
      await client.release(writer);
    });
  }

  const { restart } = subject;
  if (restart === undefined) return;

  check("tokens rise across a restart of the store", async (scene) => {
    const before = await scene.client();
    const claim = scene.claim("key", { tokens: 64 });
    const { token, tokens: run } = await before.hold(claim);
    await before.release(claim);
    await restart(scene.store);
    const after = await scene.client();
    const next = scene.claim("key");
    const held = await scene.until("a grant after the restart", async () => {
      const answer = await after.claim(next);
      return answer.state === "held" ? answer : null;
    });
    assert.ok(held.token >= token + BigInt(run));
    await after.release(next);
  });
}

/** Two copies of the package may meet in a process, so errors are known by their code. */
function isFatal(error: unknown): boolean {
  return error instanceof FatalDriverError || (error as { code?: unknown } | null)?.code === "DRIVER_FATAL";
}

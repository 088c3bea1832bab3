/** A store that grants nothing new to anyone for a while says so: unknown is not busy. */

import assert from "node:assert/strict";
import type { Answer, Pause } from "../../spi/driver.ts";
import { coded, empty, pending, player } from "../client/players.ts";
import type { Check } from "../subject.ts";

/** Of a store that is within such a time, for longer than each of these tests takes. */
export function pauses(check: Check): void {
  check("while nothing new is granted, a claim that does not wait is told so, and leaves no trace", async (scene) => {
    const client = await scene.client();
    const answer = await client.claim(scene.claim("key", { wait: false }));
    assert.equal(answer.state, "none");
    assert.equal(answer.state === "none" && answer.reason, undefined);
    assertPaused(answer);
    assert.deepEqual(await client.driver.list({ prefix: "" }, 10), []);
  });

  check("while nothing new is granted, a claim that waits is told so whenever it asks", async (scene) => {
    const client = await scene.client();
    const claim = scene.claim("key");
    assertPaused(await client.queue(claim));
    const again = await client.ask(claim);
    assert.equal(again.state, "waiting");
    assertPaused(again);
    assertPaused(await client.claim(scene.claim("key", { wait: false })));
    assert.deepEqual(await client.release(claim), [true]);
  });

  check(
    "while nothing new is granted, tryAcquire() and wait: 0 reject: they do not say that it is busy",
    async (scene) => {
      const { locks } = await player(scene);
      await assert.rejects(locks.tryAcquire("key"), coded("PAUSED"));
      await assert.rejects(locks.acquire("key", { wait: 0 }), coded("PAUSED"));
      await assert.rejects(locks.all("key", "other").tryAcquire(), coded("PAUSED"));
      const waits = pending(locks.acquire("key", { wait: scene.ms(5_000) }));
      await scene.until("the place of who waits", async () => (await locks.list()).length === 1);
      // behind a request of its own that waits, too
      await assert.rejects(locks.tryAcquire("key"), coded("PAUSED"));
      await locks.close();
      await assert.rejects(waits, coded("CLOSED"));
      await empty(scene);
    },
  );

  check("a wait that ends while nothing new is granted says so", async (scene) => {
    const { locks } = await player(scene);
    await assert.rejects(locks.acquire("key", { wait: scene.ms(200) }), (error: unknown) => {
      const { code, message, blocked } = error as { code: string; message: string; blocked: { paused?: Pause } };
      assert.equal(code, "LOCK_TIMEOUT");
      assert.match(message, /grants nothing new for about \d+ s \(.+\)/);
      assert.ok(blocked.paused !== undefined && blocked.paused.remainingMs > 0);
      return true;
    });
    await empty(scene);
  });
}

function assertPaused(answer: Answer): void {
  assert.ok(answer.state !== "held", "nothing new is granted");
  assert.ok(answer.paused !== undefined, "the answer says that nothing new is granted");
  assert.ok(["recovery", "gracePeriod"].includes(answer.paused.reason));
  assert.ok(answer.paused.remainingMs > 0);
}

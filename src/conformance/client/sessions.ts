/** Claims that last as long as their client's session. */

import assert from "node:assert/strict";
import { heldOf } from "../scene.ts";
import type { Check, Subject } from "../subject.ts";
import { coded, player } from "./players.ts";

export function sessions(check: Check, { traits }: Subject): void {
  const { sessionMs } = traits.lease;

  if (sessionMs === undefined) {
    check('ttl: "session" is refused before anything is sent', async (scene) => {
      const { locks, line } = await player(scene);
      await locks.using("key", () => undefined);
      const before = line.calls("claim");
      await assert.rejects(locks.acquire("key", { ttl: "session" }), coded("UNSUPPORTED"));
      assert.equal(line.calls("claim"), before);
    });
    return;
  }

  check("claims of a session stand in line like all others, and tell the session's length", async (scene) => {
    const [one, other] = [await scene.client(), await scene.client()];
    const ttlMs = "session";
    const [holder, waiter] = [scene.claim("key", { ttlMs, tokens: 4 }), scene.claim("key", { ttlMs })];
    const { ttlMs: left, token } = await one.hold(holder);
    assert.ok(left > 0 && left <= sessionMs + 1, `${left} ms of a session of ${sessionMs}`);
    await other.queue(waiter);
    assert.equal(heldOf(await one.ask(holder), holder).token, token);
    assert.deepEqual(
      (await one.driver.list({ prefix: "" }, 10)).map((view) => view.ttlMs),
      [ttlMs, ttlMs],
    );
    assert.deepEqual(await one.release(holder), [true]);
    await other.granted(waiter);
    assert.deepEqual(await other.release(waiter), [true]);
  });

  check("a lock of a session cannot be detached", async (scene) => {
    const { locks } = await player(scene);
    const lock = await locks.acquire("key", { ttl: "session" });
    await assert.rejects(lock.detach(), coded("UNSUPPORTED"));
    lock.throwIfLost();
    assert.equal(await lock.release(), true);
  });
}

// What an error says outside of its process: as JSON, and as a structured clone.

import assert from "node:assert/strict";
import { test } from "vitest";
import { createLocks } from "../../../src/client/locks.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { LockError, LockTimeoutError, StoreError, StorePausedError } from "../../../src/errors.ts";
import { FakeClock } from "../../support/fake-clock.ts";

test("a lost lock: reason, keys and the token as text", async () => {
  const clock = new FakeClock();
  const locks = createLocks(memory({ store: memoryStore(clock) }), { clock, ttl: "10s", renew: false });
  const lock = await locks.acquire("order:7");
  const { token } = lock;
  await clock.advance(10_000);
  const { reason } = lock.signal;
  assert.equal(reason.token, token);
  const expected = {
    name: "LockLostError",
    message: 'lost the lock on "order:7": its lease ended before a renewal succeeded',
    code: "LOCK_LOST",
    keys: ["order:7"],
    reason: "expired",
    token: String(token),
  };
  assert.deepEqual(JSON.parse(JSON.stringify(reason)), expected);
  assert.deepEqual(structuredClone(reason.toJSON()), expected);
  assert.equal(structuredClone(reason).message, expected.message);
  await locks.close();
});

test("a wait that ended: what was in the way, and no token", () => {
  const error = new LockTimeoutError("waited", { holder: "ana", ahead: 1 }, { keys: ["k"] });
  assert.deepEqual(JSON.parse(JSON.stringify({ error })), {
    error: {
      name: "LockTimeoutError",
      message: "waited",
      code: "LOCK_TIMEOUT",
      keys: ["k"],
      blocked: { holder: "ana", ahead: 1 },
    },
  });
});

test("a cause is its message, so that an error of any client can be sent", () => {
  const cause = Object.assign(new Error("refused"), { socket: () => undefined, self: {} });
  cause.self = cause;
  const error = new StoreError("could not lock", { cause });
  assert.equal(structuredClone(error.toJSON()).cause, "refused");
  assert.equal(new StoreError("could not lock", { cause: 12 }).toJSON().cause, "12");
  assert.equal("cause" in new StorePausedError("paused", { reason: "recovery", remainingMs: 5 }).toJSON(), false);
});

test("instanceof: by class, or by the code of an error of another copy; a derived class knows only its own", () => {
  class OwnError extends LockTimeoutError {}
  const timeout = new LockTimeoutError("late");
  assert.ok(new OwnError("late") instanceof OwnError && new OwnError("late") instanceof LockTimeoutError);
  assert.ok(timeout instanceof LockError && !(timeout instanceof OwnError) && !(timeout instanceof StoreError));
  assert.ok(!(Object.assign(new Error(), { keys: [] }) instanceof OwnError));
  for (const other of [
    null,
    undefined,
    "LOCK_TIMEOUT",
    { ...timeout },
    Object.assign(new Error(), { code: "LOCK_CLOSED" }),
  ])
    assert.ok(!(other instanceof LockError));
});

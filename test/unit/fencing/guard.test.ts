// The guard in memory: no token is accepted after a higher one of its key, whatever it has forgotten.

import assert from "node:assert/strict";
import fc from "fast-check";
import { describe, test } from "vitest";
import type { FenceGuard } from "../../../src/fencing/index.ts";
import { createFenceGuard } from "../../../src/fencing/index.ts";
import { createTestLocks } from "../../../src/testing/index.ts";

const isStale = (keys: readonly string[]) => (error: Error & { code?: string; keys?: readonly string[] }) => {
  assert.equal(error.code, "LOCK_STALE");
  assert.deepEqual(error.keys, keys);
  return true;
};

function isAccepted(guard: FenceGuard, key: string, token: bigint): boolean {
  try {
    guard.check(key, token);
    return true;
  } catch (error) {
    return !isStale([key])(error as Error);
  }
}

test("a token is accepted again and again, until a higher one was", () => {
  const guard = createFenceGuard();
  guard.check("a", 10n);
  guard.check("a", 10n);
  guard.check("a", 11n);
  assert.throws(() => guard.check("a", 10n), isStale(["a"]));
  assert.throws(() => guard.check("a", 10n), /a later holder of "a" has been here: token 10 is refused/);
  guard.check("b", 1n);
  guard.check("a", 11n);
});

test("with few keys it refuses exactly what is older; with more than it remembers, at least that", () => {
  const step = fc.record({ key: fc.constantFrom("a", "b", "c", "d", "e"), token: fc.bigInt({ min: 0n, max: 20n }) });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), fc.integer({ min: 1, max: 6 }), (steps, maxKeys) => {
      const guard = createFenceGuard({ maxKeys });
      const highest = new Map<string, bigint>();
      for (const { key, token } of steps) {
        const isOld = token < (highest.get(key) ?? 0n);
        const accepted = isAccepted(guard, key, token);
        if (isOld) assert.equal(accepted, false);
        else if (maxKeys >= 5) assert.equal(accepted, true);
        if (accepted) highest.set(key, token);
      }
    }),
    { numRuns: 2_000 },
  );
});

test("what it forgets is what was used longest ago", () => {
  const guard = createFenceGuard({ maxKeys: 2 });
  guard.check("a", 5n);
  guard.check("b", 3n);
  guard.check("a", 5n);
  guard.check("c", 4n); // b is forgotten
  assert.throws(() => guard.check("d", 2n), isStale(["d"]));
  guard.check("a", 5n);
  guard.check("b", 3n); // at least what the forgotten key had; c is forgotten
  assert.throws(() => guard.check("c", 3n), isStale(["c"]));
});

describe("run()", () => {
  test("a write that takes time ends before the next one begins, and a late one does not begin", async () => {
    const guard = createFenceGuard();
    const log: string[] = [];
    let finish = (): void => {};
    const slow = guard.run("a", 1n, async () => {
      log.push("first begins");
      await new Promise<void>((resolve) => {
        finish = resolve;
      });
      log.push("first ends");
      return "first";
    });
    const next = guard.run("a", 2n, () => log.push("second"));
    const late = guard.run("a", 1n, () => log.push("late"));
    const other = guard.run("b", 1n, () => log.push("other key"));
    await other;
    assert.deepEqual(log, ["first begins", "other key"]);
    finish();
    assert.equal(await slow, "first");
    await next;
    await assert.rejects(late, isStale(["a"]));
    assert.deepEqual(log, ["first begins", "other key", "first ends", "second"]);
  });

  test("a write that fails is the caller's matter, and the next one runs", async () => {
    const guard = createFenceGuard();
    const failure = new Error("disk full");
    const failed = guard.run("a", 1n, () => {
      throw failure;
    });
    const next = guard.run("a", 1n, async () => "next");
    await assert.rejects(failed, failure);
    assert.equal(await next, "next");
  });
});

test("wrong arguments are refused", async () => {
  const guard = createFenceGuard();
  assert.throws(() => createFenceGuard({ maxKeys: 0 }), /maxKeys must be a whole number from 1/);
  assert.throws(() => createFenceGuard({ max: 1 } as never), /createFenceGuard has no option "max"/);
  assert.throws(() => guard.check("", 1n), /key must not be empty/);
  assert.throws(() => guard.check("a", 1 as never), /token must be a bigint, not 1/);
  await assert.rejects(guard.run("a", 1n, "write" as never), /write must be a function/);
  await assert.rejects(
    guard.run("a", "1" as never, () => {}),
    /token must be a bigint, not "1"/,
  );
});

test("a holder that lost its lock is refused once the next one has written", async () => {
  await using locks = createTestLocks();
  const guard = createFenceGuard();
  const late = await locks.acquire("report");
  locks.lose("report");
  guard.check("report", late.token); // nothing newer was written: harmless
  const next = await locks.acquire("report");
  guard.check("report", next.token);
  assert.throws(() => guard.check("report", late.token), isStale(["report"]));
});

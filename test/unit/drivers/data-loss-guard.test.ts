// What a driver remembers of its claims. Needs no server.

import { describe, expect, test } from "vitest";
import type { GuardSettings } from "../../../src/drivers/data-loss-guard.ts";
import { DataLossGuard } from "../../../src/drivers/data-loss-guard.ts";
import { decodeAnswer } from "../../../src/drivers/reply-codec.ts";
import type { Answer, Claim } from "../../../src/spi/driver.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { makeClaim } from "../../support/stores/redis-fixture.ts";

const HELD_ANSWER: Answer = { state: "held", token: 5n, tokenCount: 1, remainingMs: 1_000 };

const makeClaims = (count: number): Claim[] => Array.from({ length: count }, () => makeClaim("key", { ttlMs: 1_000 }));

/** The claims among these that it would place again after a loss. */
async function keptCount(dataLossGuard: DataLossGuard, claims: readonly Claim[]): Promise<readonly Claim[]> {
  let lostClaims: readonly Claim[] = [];
  const rawAnswers = claims.map(() => "b 1");
  const answers = claims.map((): Answer => ({ state: "none" }));
  await dataLossGuard.restoreLost(claims, dataLossGuard.onRenew(claims), rawAnswers, answers, async (batch) => {
    lostClaims = batch.map(({ claim }) => claim);
    return batch.map(() => "n");
  });
  return lostClaims;
}

const openGuard = (settings: Partial<GuardSettings> = {}): DataLossGuard =>
  new DataLossGuard({
    driverName: "test",
    storeName: "the store",
    maxTtlMs: 1_000,
    warn: () => undefined,
    onLoss: () => undefined,
    clock: new FakeClock(0),
    ...settings,
  });

/** A majority releases a vote and requests it again with the same id. */
test("a claim that is placed again does not inherit its earlier grant, whatever is still in flight", async () => {
  const dataLossGuard = openGuard();
  const [claim] = makeClaims(1) as [Claim];
  dataLossGuard.onAnswers([claim], [dataLossGuard.onClaim(claim)], [HELD_ANSWER], [], 0);
  const renewal = dataLossGuard.onRenew([claim]);
  dataLossGuard.onRelease(claim.id);
  // the answer to the renewal arrives after the release, and before the second entry is made
  dataLossGuard.onAnswers([claim], renewal, [HELD_ANSWER], [], 0);
  const secondCall = dataLossGuard.onClaim(claim);
  dataLossGuard.onAnswers([claim], renewal, [HELD_ANSWER], [], 0);
  dataLossGuard.onPush(claim.id, HELD_ANSWER);
  dataLossGuard.onAnswers([claim], [secondCall], [{ state: "waiting", remainingMs: 1_000, recheckMs: 100 }], [], 0);
  expect(await keptCount(dataLossGuard, [claim])).toEqual([]);
  // a renewal of the second entry has its own grant
  dataLossGuard.onAnswers([claim], dataLossGuard.onRenew([claim]), [{ ...HELD_ANSWER, token: 6n }], [], 0);
  dataLossGuard.onAnswers([claim], renewal, [{ state: "none" }], [], 0);
  expect(dataLossGuard.diagnose()).toEqual([]);
  expect(await keptCount(dataLossGuard, [claim])).toEqual([claim]);
});

test("a pushed grant is placed again as well", async () => {
  const dataLossGuard = openGuard();
  const [claim] = makeClaims(1) as [Claim];
  dataLossGuard.onAnswers(
    [claim],
    [dataLossGuard.onClaim(claim)],
    [{ state: "waiting", remainingMs: 1_000, recheckMs: 100 }],
    [],
    0,
  );
  dataLossGuard.onPush(claim.id, HELD_ANSWER);
  expect(await keptCount(dataLossGuard, [claim])).toEqual([claim]);
});

test("a claim that the store no longer knew can be granted again", async () => {
  const dataLossGuard = openGuard();
  const [claim] = makeClaims(1) as [Claim];
  dataLossGuard.onAnswers([claim], [dataLossGuard.onClaim(claim)], [HELD_ANSWER], [], 0);
  dataLossGuard.onAnswers([claim], dataLossGuard.onRenew([claim]), [{ state: "none" }], [], 0);
  expect(await keptCount(dataLossGuard, [claim])).toEqual([]);
  dataLossGuard.onAnswers([claim], dataLossGuard.onRenew([claim]), [HELD_ANSWER], [], 0);
  expect(await keptCount(dataLossGuard, [claim])).toEqual([claim]);
});

test("a forgotten claim leaves nothing, whatever is still in flight", async () => {
  const dataLossGuard = openGuard();
  const [forgotten, kept] = [makeClaims(10_000), makeClaims(10)];
  const inFlight = dataLossGuard.onRenew(forgotten);
  const grant = (claims: readonly Claim[]): void =>
    dataLossGuard.onAnswers(
      claims,
      dataLossGuard.onRenew(claims),
      Array<Answer>(claims.length).fill(HELD_ANSWER),
      [],
      0,
    );
  grant(forgotten);
  grant(kept);
  for (const { id } of forgotten) {
    if (id < "n") dataLossGuard.onRelease(id);
    dataLossGuard.forget(id);
    dataLossGuard.onPush(id, HELD_ANSWER);
    dataLossGuard.onRelease(id); // repeated
  }
  dataLossGuard.onAnswers(forgotten, inFlight, Array<Answer>(forgotten.length).fill(HELD_ANSWER), [], 0);
  expect(await keptCount(dataLossGuard, kept)).toEqual(kept);
  const earlierCalls = new Set(inFlight);
  const laterCalls = dataLossGuard.onRenew(forgotten);
  expect(laterCalls.filter((guarded) => earlierCalls.has(guarded) || guarded.wasReleasedBefore)).toEqual([]);
});

describe("before the end of its lease, and not after it,", () => {
  test.each([1_000, null])("a claim that the store does not know is reported as lost; maxTtlMs: %s", (maxTtlMs) => {
    const clock = new FakeClock();
    const warnings: string[] = [];
    const guard = openGuard({ clock, maxTtlMs, warn: (warning) => warnings.push(warning) });
    const loseAfter = (answerMs: number): readonly string[] => {
      const [claim] = makeClaims(1) as [Claim];
      guard.onAnswers([claim], [guard.onClaim(claim)], [HELD_ANSWER], [], guard.now());
      const [guarded, sentAt] = [guard.onRenew([claim]), guard.now()];
      clock.jump(answerMs);
      guard.onAnswers([claim], guarded, [{ state: "none" }], ["n"], sentAt);
      return warnings.splice(0);
    };
    expect(loseAfter(899)).toEqual([expect.stringContaining("the store has lost a lock that this client held")]);
    // sent in time, and answered by a store that has stood still
    expect(loseAfter(900)).toEqual([]);
    expect(guard.diagnose()).toMatchObject([{ message: "the store lost 1 locks that this client held" }]);
  });

  const openHeld = (settings: Partial<GuardSettings> = {}) => {
    const clock = new FakeClock();
    const dataLossGuard = openGuard({ clock, ...settings });
    const [claim] = makeClaims(1) as [Claim];
    dataLossGuard.onAnswers([claim], dataLossGuard.onRenew([claim]), [HELD_ANSWER], [], dataLossGuard.now());
    const restored = async (reply: string): Promise<number> => {
      let count = 0;
      const answers = [decodeAnswer(reply, "test")];
      await dataLossGuard.restoreLost([claim], dataLossGuard.onRenew([claim]), [reply], answers, async (lost) => {
        count = lost.length;
        return ["n"];
      });
      return count;
    };
    return { clock, restored };
  };

  test("a held claim is restored that the store does not know, if that proves a loss", async () => {
    const { clock, restored } = openHeld({ restoresUnknown: true });
    clock.jump(899);
    expect(await restored("n")).toBe(1);
    expect(await restored("n released")).toBe(0);
    clock.jump(1);
    expect(await restored("n")).toBe(0);
    const other = openHeld();
    expect(await other.restored("n")).toBe(0);
  });

  test.each(["b 1", "w 1000 100 1 1"])("a held claim is restored that was lost: %s", async (reply) => {
    const { clock, restored } = openHeld();
    clock.jump(899);
    expect(await restored(reply)).toBe(1);
    clock.jump(1);
    expect(await restored(reply)).toBe(0);
  });

  test("a held claim is restored also if the machine has slept", async () => {
    const { clock, restored } = openHeld();
    clock.suspend(500);
    expect(await restored("b 1")).toBe(1);
    clock.suspend(500);
    expect(await restored("b 1")).toBe(0);
  });
});

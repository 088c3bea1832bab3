// How a driver notices that its store has lost data. Needs no server.

import { expect, test } from "vitest";
import type { GuardSettings } from "../../../src/drivers/data-loss-guard.ts";
import { DataLossGuard } from "../../../src/drivers/data-loss-guard.ts";
import { decodeAnswer } from "../../../src/drivers/reply-codec.ts";
import type { Claim, ClaimId, TokenRange } from "../../../src/spi/driver.ts";
import { makeClaim } from "../../support/claims.ts";

const TOKENS: TokenRange = { token: 5n, tokenCount: 2 };
const [held, waiting] = [makeClaim("held", { ttlMs: 1_000 }), makeClaim("waiting", { ttlMs: 1_000 })];

function createGuard(settings: Partial<GuardSettings> = {}) {
  const warnings: string[] = [];
  const heldIds = new Set<ClaimId>([held.id]);
  const guard = new DataLossGuard({
    driverName: "test",
    storeName: "the store",
    maxTtlMs: 1_000,
    warn: (warning) => warnings.push(warning),
    onLoss: () => undefined,
    heldTokens: (id) => (heldIds.has(id) ? TOKENS : null),
    ...settings,
  });
  /** The claims that are restored when the store says this of them. */
  const restored = async (claims: readonly Claim[], reply: string): Promise<unknown[]> => {
    const lost: unknown[] = [];
    const answers = claims.map(() => decodeAnswer(reply, "test"));
    await guard.restoreLost(
      claims,
      claims.map(() => reply),
      answers,
      async (batch) => {
        lost.push(...batch);
        return batch.map(() => "h 9 1 1000");
      },
    );
    for (const [index, claim] of claims.entries())
      expect(answers[index]?.state === "held").toBe(lost.some((item) => (item as { claim: Claim }).claim === claim));
    return lost;
  };
  return { guard, warnings, heldIds, restored };
}

test.each([
  ["b 1", 1],
  ["w 1000 100 1 1", 1],
  ["n", 0],
  ["n released", 0],
  ["w 1000 100", 0],
])("of claims with the reply %s, only those that are held are restored, with their tokens", async (reply, count) => {
  const { restored } = createGuard();
  const all = [{ claim: held, ...TOKENS }];
  expect(await restored([waiting, held], reply)).toEqual(all.slice(0, count));
});

test("a held claim is restored that the store does not know, if that proves a loss", async () => {
  const { restored } = createGuard({ restoresUnknown: true });
  expect(await restored([waiting, held], "n")).toEqual([{ claim: held, ...TOKENS }]);
  expect(await restored([held], "n released")).toEqual([]);
});

test("a claim that was released, or whose lease ended, while the answer was on its way is not restored", async () => {
  const { restored, heldIds } = createGuard({ restoresUnknown: true });
  heldIds.clear();
  for (const reply of ["b 1", "n"]) expect(await restored([held], reply)).toEqual([]);
});

test("without guardDataLoss nothing is restored", async () => {
  const { restored } = createGuard({ maxTtlMs: null, restoresUnknown: true });
  for (const reply of ["b 1", "n"]) expect(await restored([held], reply)).toEqual([]);
});

test.each([1_000, null])("held claims that the store does not know are reported as lost; maxTtlMs: %s", (maxTtlMs) => {
  const { guard, warnings, heldIds } = createGuard({ maxTtlMs });
  const report = (...claims: readonly Claim[]): readonly string[] => {
    guard.onAnswers(
      claims,
      claims.map(() => ({ state: "none" })),
      claims.map(() => "n"),
    );
    return warnings.splice(0);
  };
  expect(report(held, waiting)).toEqual([
    "test: the store has lost a lock that this client held: its holder is notified, and it may have been granted to others",
  ]);
  guard.onAnswers([held], [{ state: "none", reason: "revoked" }], ["n revoked"]);
  expect(warnings).toEqual([]);
  heldIds.add(waiting.id);
  expect(report(held, waiting)).toEqual([expect.stringContaining("has lost 2 locks that this client held")]);
  heldIds.clear();
  expect(report(held, waiting)).toEqual([]);
  expect(guard.diagnose()).toMatchObject([{ message: "the store lost 3 locks that this client held" }]);
});

test("a ttl that outlasts a grace period is refused", () => {
  const { guard } = createGuard();
  guard.checkTtl(held);
  expect(() => guard.checkTtl({ ...held, ttlMs: 1_001 })).toThrow(
    "test: the ttl of 1001 ms exceeds guardDataLoss.maxTtlMs (1000 ms)",
  );
});

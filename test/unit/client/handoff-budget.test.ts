import { expect, test } from "vitest";
import { HandoffBudget, isExclusive } from "../../../src/client/handoff-budget.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { lockSpec } from "../lock-table/table-fixture.ts";

const createBudget = (limits = { handoffs: 64, handoffMs: 10 }): HandoffBudget => new HandoffBudget(limits);

test("a claim requests a token for each local waiter, at least one, at most as many as the budget allows", () => {
  expect(createBudget().tokensToRequest(0)).toBe(1);
  expect(createBudget().tokensToRequest(5)).toBe(5);
  expect(createBudget().tokensToRequest(100)).toBe(64);
  expect(createBudget({ handoffs: 1, handoffMs: 10 }).tokensToRequest(5)).toBe(1);
});

/**
 * Grants the one claim of a local queue and hands it off until the budget ends, a millisecond a turn; returns the number of
 * holders. With `comesBack` each holder waits again at once.
 */
function countTurns(handoffBudget: HandoffBudget, waiterCount: number, returns: boolean): number {
  handoffBudget.onGranted(100n, handoffBudget.tokensToRequest(waiterCount), 0);
  handoffBudget.firstToken();
  for (let turns = 1; ; turns++) {
    const waitersLeft = returns ? waiterCount : waiterCount - turns;
    if (handoffBudget.nextToken(turns, waitersLeft > 0) === null) return turns;
  }
}

test("a token range used up while others waited is followed by one twice as long, up to the budget", () => {
  const handoffBudget = createBudget({ handoffs: 20, handoffMs: 100 });
  const turns = [1, 2, 3, 4, 5].map(() => countTurns(handoffBudget, 3, true));
  expect(turns).toEqual([3, 6, 12, 20, 20]);
});

test("unused tokens of a range are not requested again", () => {
  const handoffBudget = createBudget();
  expect([countTurns(handoffBudget, 8, true), countTurns(handoffBudget, 8, true)]).toEqual([8, 10]);
  expect(handoffBudget.tokensToRequest(8)).toBe(10);
  expect(countTurns(handoffBudget, 8, false), "eight were there").toBe(8);
  expect(handoffBudget.tokensToRequest(0)).toBe(8);
});

test("each holder takes the next token of the range, and a used-up range allows no hand-off", () => {
  const handoffBudget = createBudget();
  handoffBudget.onGranted(100n, 3, 0);
  expect([
    handoffBudget.firstToken(),
    handoffBudget.nextToken(1, true),
    handoffBudget.nextToken(2, true),
    handoffBudget.nextToken(3, true),
  ]).toEqual([100n, 101n, 102n, null]);
});

test("a range longer than the budget is not used up", () => {
  const handoffBudget = createBudget({ handoffs: 2, handoffMs: 10 });
  handoffBudget.onGranted(100n, 50, 0);
  handoffBudget.firstToken();
  expect([handoffBudget.nextToken(1, true), handoffBudget.nextToken(1, true)]).toEqual([101n, null]);
});

test("no hand-off after the time limit since the grant, or if none is wanted", () => {
  const handoffBudget = createBudget();
  handoffBudget.onGranted(100n, 3, 50);
  handoffBudget.firstToken();
  expect(handoffBudget.nextToken(60, true)).toBeNull();
  expect(handoffBudget.nextToken(59, false)).toBeNull();
  expect(handoffBudget.nextToken(59, true)).toBe(101n);
});

test("only claims for every permit of every key are handed off locally", () => {
  expect(isExclusive([lockSpec("a"), lockSpec("b")])).toBe(true);
  expect(isExclusive([lockSpec("a"), lockSpec("b", 1)])).toBe(false);
  expect(isExclusive([lockSpec("a", 4, 4)])).toBe(false);
  expect(isExclusive([lockSpec("a", ALL_PERMITS, ALL_PERMITS + 1)])).toBe(false);
});

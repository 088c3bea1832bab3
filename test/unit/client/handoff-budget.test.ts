import { expect, test } from "vitest";
import { HandoffBudget, isExclusive } from "../../../src/client/handoff-budget.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import type { Linked } from "../../../src/util/linked-list.ts";
import { lockSpec } from "../lock-table/table-fixture.ts";

interface TestWaiter extends Linked<TestWaiter> {}
const makeWaiter = (): TestWaiter => ({ previous: null, next: null });

function createBudget(waiting: number, limits = { handoffs: 64, handoffMs: 10 }): HandoffBudget<TestWaiter> {
  const handoffBudget = new HandoffBudget<TestWaiter>(limits);
  for (let index = 0; index < waiting; index++) handoffBudget.queue.push(makeWaiter());
  return handoffBudget;
}

test("a claim requests a token for each local waiter, at least one, at most as many as the budget allows", () => {
  expect(createBudget(0).tokensToRequest()).toBe(1);
  expect(createBudget(5).tokensToRequest()).toBe(5);
  expect(createBudget(100).tokensToRequest()).toBe(64);
  expect(createBudget(5, { handoffs: 1, handoffMs: 10 }).tokensToRequest()).toBe(1);
});

/** Grants the one claim of the local queue and hands it off until the budget ends, a millisecond a turn; returns the holders. */
function countTurns(handoffBudget: HandoffBudget<TestWaiter>, comesBack: boolean): number {
  handoffBudget.onGranted(100n, handoffBudget.tokensToRequest(), 0);
  handoffBudget.firstToken();
  for (let turns = 1; ; turns++) {
    handoffBudget.queue.remove(handoffBudget.queue.first as TestWaiter);
    if (comesBack) handoffBudget.queue.push(makeWaiter());
    if (handoffBudget.nextToken(turns, true) === null) return turns;
  }
}

test("a token range used up while others waited is followed by one twice as long, up to the budget", () => {
  const handoffBudget = createBudget(3, { handoffs: 20, handoffMs: 100 });
  const turns = [1, 2, 3, 4, 5].map(() => countTurns(handoffBudget, true));
  expect(turns).toEqual([3, 6, 12, 20, 20]);
});

test("unused tokens of a range are not requested again", () => {
  const handoffBudget = createBudget(8, { handoffs: 64, handoffMs: 10 });
  expect([countTurns(handoffBudget, true), countTurns(handoffBudget, true), handoffBudget.tokensToRequest()]).toEqual([
    8, 10, 10,
  ]);
  expect(countTurns(handoffBudget, false), "eight were there").toBe(8);
  expect(handoffBudget.tokensToRequest()).toBe(8);
});

test("each holder takes the next token of the range, and a used-up range allows no hand-off", () => {
  const handoffBudget = createBudget(5);
  handoffBudget.onGranted(100n, 3, 0);
  expect([
    handoffBudget.firstToken(),
    handoffBudget.nextToken(1, true),
    handoffBudget.nextToken(2, true),
    handoffBudget.nextToken(3, true),
  ]).toEqual([100n, 101n, 102n, null]);
});

test("a range longer than the budget is not used up", () => {
  const handoffBudget = createBudget(5, { handoffs: 2, handoffMs: 10 });
  handoffBudget.onGranted(100n, 50, 0);
  handoffBudget.firstToken();
  expect([handoffBudget.nextToken(1, true), handoffBudget.nextToken(1, true)]).toEqual([101n, null]);
});

test("no hand-off after the time limit since the grant, with a stale lease, or without a waiter", () => {
  const handoffBudget = createBudget(1);
  handoffBudget.onGranted(100n, 3, 50);
  handoffBudget.firstToken();
  expect(handoffBudget.nextToken(60, true)).toBeNull();
  expect(handoffBudget.nextToken(59, false)).toBeNull();
  expect(handoffBudget.nextToken(59, true)).toBe(101n);
  const empty = createBudget(0);
  empty.onGranted(100n, 3, 0);
  expect(empty.nextToken(0, true)).toBeNull();
});

test("only claims for every permit of every key are handed off locally", () => {
  expect(isExclusive([lockSpec("a"), lockSpec("b")])).toBe(true);
  expect(isExclusive([lockSpec("a"), lockSpec("b", 1)])).toBe(false);
  expect(isExclusive([lockSpec("a", 4, 4)])).toBe(false);
  expect(isExclusive([lockSpec("a", ALL_PERMITS, ALL_PERMITS + 1)])).toBe(false);
});

import { describe, expect, test } from "vitest";
import { HandoffBudget, isExclusive } from "../../../src/client/handoff-budget.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { lockSpec } from "../lock-table/table-fixture.ts";

const createBudget = (limits = { handoffs: 64, handoffMs: 10 }): HandoffBudget => new HandoffBudget(limits, false);

test("a claim requests a token for each local waiter, at least one, at most as many as the budget allows", () => {
  expect(createBudget().tokensToRequest(0, false)).toBe(1);
  expect(createBudget().tokensToRequest(5, false)).toBe(5);
  expect(createBudget().tokensToRequest(100, false)).toBe(64);
  expect(createBudget({ handoffs: 1, handoffMs: 10 }).tokensToRequest(5, false)).toBe(1);
});

/**
 * Grants the one claim of a local queue and hands it off until the budget ends, a millisecond a turn; returns the number of
 * holders. With `comesBack` each holder waits again at once.
 */
function countTurns(handoffBudget: HandoffBudget, waiterCount: number, returns: boolean): number {
  handoffBudget.onGranted(100n, handoffBudget.tokensToRequest(waiterCount, false), 0);
  handoffBudget.takeToken();
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
  expect(handoffBudget.tokensToRequest(8, false)).toBe(10);
  expect(countTurns(handoffBudget, 8, false), "eight were there").toBe(8);
  expect(handoffBudget.tokensToRequest(0, false)).toBe(8);
});

test("each holder takes the next token of the range, and a used-up range allows no hand-off", () => {
  const handoffBudget = createBudget();
  handoffBudget.onGranted(100n, 3, 0);
  expect([
    handoffBudget.takeToken(),
    handoffBudget.nextToken(1, true),
    handoffBudget.nextToken(2, true),
    handoffBudget.nextToken(3, true),
  ]).toEqual([100n, 101n, 102n, null]);
});

test("a range longer than the budget is not used up", () => {
  const handoffBudget = createBudget({ handoffs: 2, handoffMs: 10 });
  handoffBudget.onGranted(100n, 50, 0);
  handoffBudget.takeToken();
  expect([handoffBudget.nextToken(1, true), handoffBudget.nextToken(1, true)]).toEqual([101n, null]);
});

test("no hand-off after the time limit since the grant, or if none is wanted", () => {
  const handoffBudget = createBudget();
  handoffBudget.onGranted(100n, 3, 50);
  handoffBudget.takeToken();
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

describe("on a store that recalls", () => {
  const createRecalled = (limits = { handoffs: 4, handoffMs: 10 }): HandoffBudget => new HandoffBudget(limits, true);

  /** Grants a range and returns how many holders it serves when each millisecond another one waits. */
  function countHolders(handoffBudget: HandoffBudget, tokenCount: number, recalledAt: number): number {
    handoffBudget.onGranted(1n, tokenCount, 0);
    if (recalledAt === 0) handoffBudget.onRecalled(0);
    handoffBudget.takeToken();
    for (let holders = 1; ; holders++) {
      if (holders === recalledAt) handoffBudget.onRecalled(holders);
      if (handoffBudget.nextToken(holders, true) === null) return holders;
    }
  }

  test("a turn is bounded by its tokens alone until it is recalled", () => {
    expect(countHolders(createRecalled(), 1_000, Number.POSITIVE_INFINITY)).toBe(1_000);
  });

  test("from the recall on, or from the grant if it came before, as many holders as without it", () => {
    expect(countHolders(createRecalled(), 1_000, 0)).toBe(4);
    expect(countHolders(createRecalled(), 1_000, 500)).toBe(503);
  });

  test("from the recall on, as long as without it, and a second recall grants no more time", () => {
    const handoffBudget = createRecalled({ handoffs: 64, handoffMs: 10 });
    expect(countHolders(handoffBudget, 1_000, 500)).toBe(510);
    handoffBudget.onGranted(1n, 1_000, 0);
    handoffBudget.takeToken();
    handoffBudget.onRecalled(100);
    handoffBudget.onRecalled(109);
    expect(handoffBudget.nextToken(109, true)).not.toBeNull();
    expect(handoffBudget.nextToken(110, true)).toBeNull();
  });

  test("a range that was too short is doubled, up to 65,536; else the next is as long as the last was used", () => {
    const handoffBudget = createRecalled();
    countHolders(handoffBudget, 100, Number.POSITIVE_INFINITY);
    expect(handoffBudget.tokensToRequest(1, false)).toBe(200);
    countHolders(handoffBudget, 200, 50);
    expect(handoffBudget.tokensToRequest(1, false)).toBe(53);
    countHolders(handoffBudget, 60_000, Number.POSITIVE_INFINITY);
    expect(handoffBudget.tokensToRequest(1, false)).toBe(65_536);
  });

  test("a claim that may be cached requests at least 16 tokens", () => {
    expect(createRecalled().tokensToRequest(1, true)).toBe(16);
  });

  test("a renewal asks for twice the last use when half of the range is used", () => {
    const handoffBudget = createRecalled();
    handoffBudget.onGranted(1n, 100, 0);
    for (let use = 0; use < 49; use++) handoffBudget.takeToken();
    expect(handoffBudget.tokensToRenew()).toBe(0);
    for (let use = 0; use < 11; use++) handoffBudget.takeToken();
    expect(handoffBudget.tokensToRenew(), "60 used, 11 of them since: enough are left").toBe(0);
    for (let use = 0; use < 30; use++) handoffBudget.takeToken();
    expect(handoffBudget.tokensToRenew(), "90 used, 30 of them since").toBe(150);
  });

  test("a renewal asks for no more tokens while the lock has one holder", () => {
    const handoffBudget = createRecalled();
    handoffBudget.onGranted(1n, 1, 0);
    handoffBudget.takeToken();
    expect([handoffBudget.tokensToRenew(), handoffBudget.tokensToRenew()]).toEqual([0, 0]);
  });

  test("the range is as long as the store's last answer says, also if that is shorter", () => {
    const handoffBudget = createRecalled();
    handoffBudget.onGranted(1n, 10, 0);
    for (let use = 0; use < 5; use++) handoffBudget.takeToken();
    handoffBudget.setTokenCount(12);
    for (let use = 0; use < 7; use++) handoffBudget.takeToken();
    expect(handoffBudget.hasTokens).toBe(false);
    handoffBudget.setTokenCount(20);
    handoffBudget.setTokenCount(3);
    expect(handoffBudget.nextToken(1, true)).toBeNull();
  });

  test("on another store the range is at most as long as the limit, whatever its answers say", () => {
    const handoffBudget = createBudget({ handoffs: 2, handoffMs: 10 });
    handoffBudget.onGranted(1n, 2, 0);
    handoffBudget.setTokenCount(50);
    expect([handoffBudget.tokenCount, handoffBudget.tokensToRenew()]).toEqual([2, 0]);
  });

  test("with handoffs: 1 there is no hand-off", () => {
    expect(countHolders(createRecalled({ handoffs: 1, handoffMs: 10 }), 5, Number.POSITIVE_INFINITY)).toBe(1);
  });
});

import { expect, test } from "vitest";
import { isExclusive, Lane } from "../../src/core/lane.ts";
import { ALL_PERMITS } from "../../src/core/line.ts";
import type { Linked } from "../../src/core/queue.ts";
import { hold } from "./claims.ts";

interface Request extends Linked<Request> {}
const request = (): Request => ({ previous: null, next: null });

function laneOf(waiting: number, limits = { handoffs: 64, handoffMs: 10 }): Lane<Request> {
  const lane = new Lane<Request>(limits);
  for (let index = 0; index < waiting; index++) lane.queue.push(request());
  return lane;
}

test("a claim asks for a token for each who waits here, at least one, at most as many as may be passed on", () => {
  expect(laneOf(0).tokensWanted()).toBe(1);
  expect(laneOf(5).tokensWanted()).toBe(5);
  expect(laneOf(100).tokensWanted()).toBe(64);
  expect(laneOf(5, { handoffs: 1, handoffMs: 10 }).tokensWanted()).toBe(1);
});

/** The lane's one claim is granted what it asks for and passed on until that ends, a millisecond a turn; who was served comes back. */
function turnsOf(lane: Lane<Request>, comesBack: boolean): number {
  lane.granted(100n, lane.tokensWanted(), 0);
  lane.firstToken();
  for (let turns = 1; ; turns++) {
    lane.queue.remove(lane.queue.first as Request);
    if (comesBack) lane.queue.push(request());
    if (lane.handOff(turns, true) === null) return turns;
  }
}

test("a run that was spent while others waited is followed by one twice as long, up to what may be passed on", () => {
  const lane = laneOf(3, { handoffs: 20, handoffMs: 100 });
  const turns = [1, 2, 3, 4, 5].map(() => turnsOf(lane, true));
  expect(turns).toEqual([3, 6, 12, 20, 20]);
});

test("what nobody took of a run, or not in time, is not asked for again", () => {
  const lane = laneOf(8, { handoffs: 64, handoffMs: 10 });
  expect([turnsOf(lane, true), turnsOf(lane, true), lane.tokensWanted()]).toEqual([8, 10, 10]);
  expect(turnsOf(lane, false), "eight were there").toBe(8);
  expect(lane.tokensWanted()).toBe(8);
});

test("each holder takes the next token of the run, and when it is spent there is no hand-off", () => {
  const lane = laneOf(5);
  lane.granted(100n, 3, 0);
  expect([lane.firstToken(), lane.handOff(1, true), lane.handOff(2, true), lane.handOff(3, true)]).toEqual([
    100n,
    101n,
    102n,
    null,
  ]);
});

test("a run longer than may be passed on is not used up", () => {
  const lane = laneOf(5, { handoffs: 2, handoffMs: 10 });
  lane.granted(100n, 50, 0);
  lane.firstToken();
  expect([lane.handOff(1, true), lane.handOff(1, true)]).toEqual([101n, null]);
});

test("no hand-off after the time since the grant, with a stale lease, or to nobody", () => {
  const lane = laneOf(1);
  lane.granted(100n, 3, 50);
  lane.firstToken();
  expect(lane.handOff(60, true)).toBeNull();
  expect(lane.handOff(59, false)).toBeNull();
  expect(lane.handOff(59, true)).toBe(101n);
  const empty = laneOf(0);
  empty.granted(100n, 3, 0);
  expect(empty.handOff(0, true)).toBeNull();
});

test("only claims of every permit of every key are served one after another by one claim", () => {
  expect(isExclusive([hold("a"), hold("b")])).toBe(true);
  expect(isExclusive([hold("a"), hold("b", 1)])).toBe(false);
  expect(isExclusive([hold("a", 4, 4)])).toBe(false);
  expect(isExclusive([hold("a", ALL_PERMITS, ALL_PERMITS + 1)])).toBe(false);
});

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

test("it asks for as many as waited at the last grant: who was served last comes back a moment after the next claim", () => {
  const lane = laneOf(8);
  lane.granted(100n, 8, 0);
  for (let left = 8; left > 5; left--) lane.queue.remove(lane.queue.first as Request);
  expect(lane.tokensWanted()).toBe(8);
  lane.granted(200n, 8, 1);
  expect(lane.tokensWanted()).toBe(5);
  lane.granted(300n, 5, 2);
  while (lane.queue.first !== null) lane.queue.remove(lane.queue.first);
  lane.granted(400n, 5, 3);
  expect(lane.tokensWanted(), "at least one").toBe(1);
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

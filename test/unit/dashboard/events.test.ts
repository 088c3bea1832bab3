import { describe, expect, test } from "vitest";
import { filterEvents, formatNdjson, toneOf } from "../../../src/dashboard/model/event-filter.ts";
import type { EventRing } from "../../../src/dashboard/model/event-ring.ts";
import {
  countArrived,
  EMPTY_RING,
  enterRun,
  pauseRing,
  pushEvents,
  resumeRing,
} from "../../../src/dashboard/model/event-ring.ts";
import { listSpans, selectLast } from "../../../src/dashboard/model/time-spans.ts";
import { makeClaim, makeEvent, makeWaiter } from "./samples.ts";

describe("the filter", () => {
  const events = [
    makeEvent(1, { keys: ["Order:1"], label: "ana" }),
    makeEvent(2, { keys: ["order:2"], label: "bob", kind: "revoked" }),
    makeEvent(3, { keys: ["x", "order:3"], label: "revoked-runner", kind: "maxHoldExceeded" }),
  ];
  const find = (text: string): number[] => filterEvents(events, text).map(({ sequence }) => sequence);

  test("any of key, label and kind, in any case", () => {
    expect(find("order")).toEqual([1, 2, 3]);
    expect(find("BOB")).toEqual([2]);
    expect(find("revoked")).toEqual([2, 3]);
  });

  test("every word must be found", () => {
    expect(find("order:2 revoked")).toEqual([2]);
    expect(find("order:2 ana")).toEqual([]);
  });

  test("a word may name its field", () => {
    expect(find("kind:revoked")).toEqual([2]);
    expect(find("label:revoked")).toEqual([3]);
    expect(find("key:order:3")).toEqual([3]);
  });

  test("kinds are found by the words on the page, too", () => {
    expect(find("held too")).toEqual([3]);
  });

  test("an empty text leaves all", () => {
    expect(find("  ")).toEqual([1, 2, 3]);
  });

  test("a file has one object on each line", () => {
    expect(
      formatNdjson(events)
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line)),
    ).toEqual(events);
  });

  test("an unknown kind has no colour of a state", () => {
    expect(toneOf("constructor")).toBe("over");
  });
});

describe("the ring", () => {
  const sequences = ({ events }: EventRing): number[] => events.map(({ sequence }) => sequence);
  const events = (...numbers: number[]) => numbers.map((number) => makeEvent(number));

  test("keeps the newest", () => {
    expect(sequences(pushEvents(EMPTY_RING, events(1, 2, 3, 4), 3))).toEqual([2, 3, 4]);
  });

  test("what a stream repeats is left out", () => {
    const ring = pushEvents(EMPTY_RING, events(1, 2));
    expect(sequences(pushEvents(ring, events(1, 2, 3)))).toEqual([1, 2, 3]);
    expect(pushEvents(ring, events(1, 2))).toBe(ring);
  });

  test("while it is paused what arrives is counted, and shown afterwards", () => {
    const paused = pushEvents(pauseRing(pushEvents(EMPTY_RING, events(1))), events(1, 2, 3));
    expect([sequences(paused), countArrived(paused)]).toEqual([[1], 2]);
    expect(sequences(resumeRing(paused))).toEqual([1, 2, 3]);
    expect(pauseRing(paused)).toBe(paused);
  });

  test("a stream that begins again keeps the events and the pause, unless the gateway has started again", () => {
    const paused = pauseRing(pushEvents(EMPTY_RING, events(1, 2)));
    expect(enterRun(paused, "a", "a")).toBe(paused);
    expect(enterRun(paused, null, "a")).toBe(paused);
    expect(enterRun(paused, "a", "b")).toBe(EMPTY_RING);
    expect(sequences(pushEvents(enterRun(paused, "a", "b"), events(1)))).toEqual([1]);
  });

  test("a long pause keeps the newest and counts all", () => {
    const paused = pushEvents(pauseRing(EMPTY_RING), events(1, 2, 3, 4), 3);
    expect(countArrived(pushEvents(paused, events(5), 3))).toBe(5);
    expect(sequences(resumeRing(pushEvents(paused, events(5), 3), 3))).toEqual([3, 4, 5]);
  });
});

describe("spans of time", () => {
  test("from the events of a claim: it waits, holds, has lost the lock", () => {
    const kinds = ["waiting", "granted", "revoked", "released"];
    const events = kinds.map((kind, index) => makeEvent(index + 1, { kind }));
    expect(listSpans(events, [], 9_000).map(({ kind, from, to }) => [kind, from, to])).toEqual([
      ["waiting", 1_000, 2_000],
      ["held", 2_000, 3_000],
      ["lost", 3_000, 4_000],
    ]);
  });

  test("a claim in the queue goes on until now, with or without events", () => {
    const events = [makeEvent(5, { tag: "tag of k" })];
    const queue = [makeClaim("k"), makeWaiter("k", { ageMs: 3_000 })];
    expect(listSpans(events, queue, 9_000).map(({ kind, from, to }) => [kind, from, to])).toEqual([
      ["held", 5_000, 9_000],
      ["waiting", 6_000, 9_000],
    ]);
  });

  test("of many the last ones are shown, and what is held now", () => {
    const long = { label: "holder", from: 0, to: 100, kind: "held" } as const;
    const ended = [10, 20, 30].map((from) => ({ label: "b", from, to: from + 5, kind: "held" }) as const);
    expect(selectLast([long, ...ended], 2).map(({ from }) => from)).toEqual([0, 30]);
  });

  test("a claim that is gone without an event has no end, and no span", () => {
    expect(listSpans([makeEvent(1)], [], 9_000)).toEqual([]);
  });
});

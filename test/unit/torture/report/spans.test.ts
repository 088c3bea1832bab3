import { expect, test } from "vitest";
import { readOperations } from "../../../../src/torture/operations.ts";
import { assignLanes, assignPlaces, busiestFault, toDrawable } from "../../../../src/torture/report/spans.ts";
import { RunTime } from "../../../../src/torture/run-time.ts";
import { goodHistory, HEADER, sampleHold, samplePause, sampleWorkers } from "./sample-history.ts";

test("spans that overlap are in different lanes", () => {
  const a = { from: 0, to: 10 };
  const b = { from: 5, to: 20 };
  const c = { from: 11, to: 12 };
  expect(assignLanes([b, c, a])).toEqual([[a, c], [b]]);
});

test("a worker that is started for one that was killed takes its place", () => {
  const record = { pid: 1, wasKilled: true, reason: "", lastAt: 0, runTime: new RunTime() };
  const workers = new Map(
    [null, 50, 20, null, null].map((endedAt, worker) => [worker, { ...record, worker, endedAt }]),
  );
  expect([...assignPlaces(workers, 3)]).toEqual([
    ...[
      [0, 0],
      [1, 1],
      [2, 2],
    ],
    ...[
      [3, 2],
      [4, 1],
    ],
  ]);
});

test("a lease goes on after the death of its holder, and is held no more", () => {
  const hold = sampleHold({ worker: 0, op: 1, token: "5", from: 1_000, to: 1_400 }).slice(0, 3);
  const history = readOperations([
    ...[HEADER, ...sampleWorkers(), ...hold],
    { event: "worker", at: 1_300_000, worker: 0, pid: 4_000, phase: "killed", reason: "" },
  ]);
  expect(toDrawable(history).spans).toMatchObject([
    { from: 995_000, grantedAt: 1_000_000, held: { from: 1_000_000, to: 1_300_000 }, to: 1_900_000 },
  ]);
});

test("the busiest fault is the one during which most operations of its workers were under way", () => {
  const events = [
    ...goodHistory(),
    ...samplePause(5, 1, 1_000, 1_100),
    ...samplePause(6, 1, 1_000, 8_000),
    ...samplePause(7, 1, 7_000, 9_000),
  ];
  const history = readOperations(events);
  expect(busiestFault(history, toDrawable(history).spans)?.id).toBe(6);
  const quiet = readOperations([HEADER, ...samplePause(1, 0, 1, 2)]);
  expect(busiestFault(quiet, [])).toBeNull();
});

import fc from "fast-check";
import { expect, test } from "vitest";
import type { Scheduled } from "../../src/core/schedule.ts";
import { Schedule } from "../../src/core/schedule.ts";

const items = (count: number): Scheduled[] => Array.from({ length: count }, () => ({ dueAt: 0, heapIndex: -1 }));

// few times: then many are due at the same one
test.each([50, 3])("a schedule gives the earliest first, whatever was set, moved and removed, of %i times", (times) => {
  const commands = fc.array(fc.tuple(fc.constantFrom("set", "remove", "take"), fc.nat(19), fc.nat(times)), {
    maxLength: 120,
  });
  fc.assert(
    fc.property(commands, (steps) => {
      const schedule = new Schedule<Scheduled>();
      const all = items(20);
      const model = new Map<Scheduled, number>();
      for (const [what, pick, at] of steps) {
        const item = all[pick] as Scheduled;
        if (what === "set") {
          schedule.set(item, at);
          model.set(item, at);
        } else if (what === "remove") {
          schedule.remove(item);
          model.delete(item);
        } else {
          const taken = schedule.takeDue(at);
          const earliest = Math.min(...model.values());
          if (taken === null) expect(earliest).toBeGreaterThan(at);
          else {
            expect(taken.dueAt).toBe(earliest);
            expect(taken.heapIndex).toBe(-1);
            model.delete(taken);
          }
        }
        expect(schedule.next()).toBe(model.size === 0 ? null : Math.min(...model.values()));
      }
    }),
  );
});

test("what is due now is taken, what is due later stays", () => {
  const schedule = new Schedule<Scheduled>();
  const [soon, late] = items(2) as [Scheduled, Scheduled];
  schedule.set(late, 20);
  schedule.set(soon, 10);
  expect(schedule.takeDue(9)).toBeNull();
  expect(schedule.takeDue(10)).toBe(soon);
  expect(schedule.takeDue(10)).toBeNull();
  expect(schedule.next()).toBe(20);
});

test("all that is due is taken at once, soonest first", () => {
  const schedule = new Schedule<Scheduled>();
  const [a, b, c] = items(3) as [Scheduled, Scheduled, Scheduled];
  schedule.set(a, 20);
  schedule.set(b, 10);
  schedule.set(c, 30);
  expect(schedule.takeAllDue(20)).toEqual([b, a]);
  expect(schedule.takeAllDue(20)).toEqual([]);
  expect(schedule.next()).toBe(30);
});

test("setting an item to the time it has changes nothing", () => {
  const schedule = new Schedule<Scheduled>();
  const [item] = items(1) as [Scheduled];
  schedule.set(item, 10);
  schedule.set(item, 10);
  expect(schedule.takeAllDue(10)).toEqual([item]);
});

test("what was set one after another to the same time is taken in that order, wherever one of them was taken out", () => {
  for (const gone of [0, 1, 2, 3]) {
    const schedule = new Schedule<Scheduled>();
    const [first, ...row] = items(5) as [Scheduled, ...Scheduled[]];
    schedule.set(first, 10);
    for (const item of row) schedule.set(item, 20);
    schedule.remove(row[gone] as Scheduled);
    schedule.remove(row[gone] as Scheduled);
    const left = row.filter((_, at) => at !== gone);
    expect(schedule.takeAllDue(20).map((item) => [first, ...row].indexOf(item))).toEqual(
      [first, ...left].map((item) => [first, ...row].indexOf(item)),
    );
    for (const { before, behind } of row) expect([before, behind]).toEqual([undefined, undefined]);
  }
});

test("a thousand that are set to one time and moved to another together cost the heap one place", () => {
  const schedule = new Schedule<Scheduled>();
  const all = items(1_000);
  const places = (): number[] => all.filter(({ heapIndex }) => heapIndex >= 0).map((item) => all.indexOf(item));
  for (const item of all) schedule.set(item, 10);
  expect(places()).toEqual([0]);
  for (const item of all) schedule.set(item, 20);
  expect(places()).toEqual([0]);
  expect(schedule.next()).toBe(20);
  expect(schedule.takeAllDue(20)).toEqual(all);
});

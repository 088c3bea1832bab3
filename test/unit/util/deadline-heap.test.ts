import fc from "fast-check";
import { expect, test } from "vitest";
import type { HeapItem } from "../../../src/util/deadline-heap.ts";
import { DeadlineHeap } from "../../../src/util/deadline-heap.ts";

const makeItems = (count: number): HeapItem[] => Array.from({ length: count }, () => ({ dueAt: 0, heapIndex: -1 }));

// few times: then many are due at the same one
test.each([50, 3])(
  "the heap returns the earliest item first after any sets, moves and removals, of %i times",
  (times) => {
    const commands = fc.array(fc.tuple(fc.constantFrom("set", "remove", "take"), fc.nat(19), fc.nat(times)), {
      maxLength: 120,
    });
    fc.assert(
      fc.property(commands, (steps) => {
        const deadlineHeap = new DeadlineHeap<HeapItem>();
        const items = makeItems(20);
        const model = new Map<HeapItem, number>();
        for (const [action, pick, at] of steps) {
          const item = items[pick] as HeapItem;
          if (action === "set") {
            deadlineHeap.set(item, at);
            model.set(item, at);
          } else if (action === "remove") {
            deadlineHeap.remove(item);
            model.delete(item);
          } else {
            const dueItems = deadlineHeap.takeDue(at);
            const earliest = Math.min(...model.values());
            if (dueItems === null) expect(earliest).toBeGreaterThan(at);
            else {
              expect(dueItems.dueAt).toBe(earliest);
              expect(dueItems.heapIndex).toBe(-1);
              model.delete(dueItems);
            }
          }
          expect(deadlineHeap.nextDueAt()).toBe(model.size === 0 ? null : Math.min(...model.values()));
        }
      }),
    );
  },
);

test("due items are taken, later ones stay", () => {
  const deadlineHeap = new DeadlineHeap<HeapItem>();
  const [soonItem, lateItem] = makeItems(2) as [HeapItem, HeapItem];
  deadlineHeap.set(lateItem, 20);
  deadlineHeap.set(soonItem, 10);
  expect(deadlineHeap.takeDue(9)).toBeNull();
  expect(deadlineHeap.takeDue(10)).toBe(soonItem);
  expect(deadlineHeap.takeDue(10)).toBeNull();
  expect(deadlineHeap.nextDueAt()).toBe(20);
});

test("all due items are taken at once, soonest first", () => {
  const deadlineHeap = new DeadlineHeap<HeapItem>();
  const [itemA, itemB, itemC] = makeItems(3) as [HeapItem, HeapItem, HeapItem];
  deadlineHeap.set(itemA, 20);
  deadlineHeap.set(itemB, 10);
  deadlineHeap.set(itemC, 30);
  expect(deadlineHeap.takeAllDue(20)).toEqual([itemB, itemA]);
  expect(deadlineHeap.takeAllDue(20)).toEqual([]);
  expect(deadlineHeap.nextDueAt()).toBe(30);
});

test("setting an item to its present time changes nothing", () => {
  const deadlineHeap = new DeadlineHeap<HeapItem>();
  const [item] = makeItems(1) as [HeapItem];
  deadlineHeap.set(item, 10);
  deadlineHeap.set(item, 10);
  expect(deadlineHeap.takeAllDue(10)).toEqual([item]);
});

test("items set one after another to the same time are taken in that order, wherever one of them was removed", () => {
  for (const removedIndex of [0, 1, 2, 3]) {
    const deadlineHeap = new DeadlineHeap<HeapItem>();
    const [first, ...row] = makeItems(5) as [HeapItem, ...HeapItem[]];
    deadlineHeap.set(first, 10);
    for (const item of row) deadlineHeap.set(item, 20);
    deadlineHeap.remove(row[removedIndex] as HeapItem);
    deadlineHeap.remove(row[removedIndex] as HeapItem);
    const remaining = row.filter((_, index) => index !== removedIndex);
    expect(deadlineHeap.takeAllDue(20).map((item) => [first, ...row].indexOf(item))).toEqual(
      [first, ...remaining].map((item) => [first, ...row].indexOf(item)),
    );
    for (const { previousSameDue, nextSameDue } of row)
      expect([previousSameDue, nextSameDue]).toEqual([undefined, undefined]);
  }
});

test("a thousand items set to one time and moved together to another take one heap slot", () => {
  const deadlineHeap = new DeadlineHeap<HeapItem>();
  const items = makeItems(1_000);
  const readPositions = (): number[] =>
    items.filter(({ heapIndex }) => heapIndex >= 0).map((item) => items.indexOf(item));
  for (const item of items) deadlineHeap.set(item, 10);
  expect(readPositions()).toEqual([0]);
  for (const item of items) deadlineHeap.set(item, 20);
  expect(readPositions()).toEqual([0]);
  expect(deadlineHeap.nextDueAt()).toBe(20);
  expect(deadlineHeap.takeAllDue(20)).toEqual(items);
});

test.each([
  [10, 20, 30, 40, 50, 60, 70],
  [10, 30, 20, 60, 70, 40, 50],
])("items set at %i, %i, %i, ... are taken by their times, from either side of the heap", (...times) => {
  const deadlineHeap = new DeadlineHeap<HeapItem>();
  const items = makeItems(times.length);
  for (const [index, time] of times.entries()) deadlineHeap.set(items[index] as HeapItem, time);
  const taken = times.map(() => deadlineHeap.takeDue(100)?.dueAt);
  expect(taken).toEqual([...times].sort((a, b) => a - b));
});

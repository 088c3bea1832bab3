import fc from "fast-check";
import { expect, test } from "vitest";
import type { PermitRequest } from "../../../src/lock-table/admission.ts";
import { countAdmitted, findBlocker, fits } from "../../../src/lock-table/admission.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";

const mutexEntry: PermitRequest = { permits: ALL_PERMITS, limit: ALL_PERMITS };
const readerEntry: PermitRequest = { permits: 1, limit: ALL_PERMITS };
const permitEntry = (permits: number, limit: number): PermitRequest => ({ permits, limit });

const arbitraryEntries = fc.array(
  fc.oneof(
    fc.constant(mutexEntry),
    fc.constant(readerEntry),
    fc
      .tuple(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 1, max: 4 }))
      .map(([a, b]) => permitEntry(Math.min(a, b), b)),
  ),
  { maxLength: 12 },
);

test.each([
  ["nobody", [], 0],
  ["one of several mutexes", [mutexEntry, mutexEntry, mutexEntry], 1],
  ["all readers", [readerEntry, readerEntry, readerEntry], 3],
  ["readers before a writer", [readerEntry, readerEntry, mutexEntry, readerEntry], 2],
  ["a writer before readers", [mutexEntry, readerEntry, readerEntry], 1],
  ["as many permits as there are", [permitEntry(2, 4), permitEntry(2, 4), permitEntry(1, 4)], 2],
  [
    "nobody past a large claim at the front of the waiting",
    [permitEntry(3, 4), permitEntry(2, 4), permitEntry(1, 4)],
    1,
  ],
  ["each by its own limit", [permitEntry(2, 4), permitEntry(2, 3), permitEntry(1, 4)], 1],
  ["no permits beside a mutex", [mutexEntry, permitEntry(1, 4)], 1],
  ["no mutex beside a permit", [permitEntry(1, 4), mutexEntry], 1],
])("admitted: %s", (_, queue, count) => {
  expect(countAdmitted(queue)).toBe(count);
});

test("no admitted entry sees more permits taken than its limit", () => {
  fc.assert(
    fc.property(arbitraryEntries, (queue) => {
      const admitted = queue.slice(0, countAdmitted(queue));
      for (const [index, entry] of admitted.entries()) {
        const before = admitted.slice(0, index).reduce((sum, { permits }) => sum + permits, 0);
        expect(fits(before, entry)).toBe(true);
      }
    }),
  );
});

test("removing an entry ends the admission of no other", () => {
  fc.assert(
    fc.property(arbitraryEntries, fc.nat(), (queue, pick) => {
      if (queue.length === 0) return;
      const count = countAdmitted(queue);
      const removedIndex = pick % queue.length;
      const remaining = queue.toSpliced(removedIndex, 1);
      expect(countAdmitted(remaining)).toBeGreaterThanOrEqual(removedIndex < count ? count - 1 : count);
    }),
  );
});

test.each([
  ["a mutex watches its predecessor", [mutexEntry, mutexEntry, mutexEntry], 2, 1],
  ["a writer watches the last reader", [readerEntry, readerEntry, mutexEntry], 2, 1],
  ["a reader watches the nearest writer", [mutexEntry, readerEntry, mutexEntry, readerEntry, readerEntry], 4, 2],
  ["a permit watches the nearest mutex", [mutexEntry, permitEntry(1, 4)], 1, 0],
  ["a permit in a crowd watches the queue", [permitEntry(2, 2), permitEntry(1, 2)], 1, "queue"],
  [
    "a claim of every permit of a semaphore watches its predecessor",
    [permitEntry(1, 2), permitEntry(1, 2), permitEntry(2, 2)],
    2,
    1,
  ],
] as const)("blocker: %s", (_, queue, ownIndex, blocker) => {
  expect(findBlocker(queue, ownIndex)).toBe(blocker);
});

test("a waiting entry is not admitted before its blocker is gone", () => {
  fc.assert(
    fc.property(arbitraryEntries, (queue) => {
      for (let ownIndex = countAdmitted(queue); ownIndex < queue.length; ownIndex++) {
        const blocker = findBlocker(queue, ownIndex);
        if (blocker === "queue") continue;
        // whichever other entry goes, this one must wait while its blocker stays
        const pair = [queue[blocker] as PermitRequest, queue[ownIndex] as PermitRequest];
        if ((queue[ownIndex] as PermitRequest).permits < (queue[ownIndex] as PermitRequest).limit)
          expect(countAdmitted(pair)).toBeLessThan(2);
        else expect(blocker).toBe(ownIndex - 1);
      }
    }),
  );
});

test("an entry outside the queue has no blocker", () => {
  expect(() => findBlocker([mutexEntry], 1)).toThrow(RangeError);
});

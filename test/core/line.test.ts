import fc from "fast-check";
import { expect, test } from "vitest";
import type { Place } from "../../src/core/line.ts";
import { ALL_PERMITS, admittedCount, blockerOf, fits } from "../../src/core/line.ts";

const mutex: Place = { id: "m", permits: ALL_PERMITS, limit: ALL_PERMITS };
const reader: Place = { id: "r", permits: 1, limit: ALL_PERMITS };
const permit = (permits: number, limit: number): Place => ({ id: "p", permits, limit });

const places = fc.array(
  fc.oneof(
    fc.constant(mutex),
    fc.constant(reader),
    fc.tuple(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 1, max: 4 })).map(([a, b]) => permit(Math.min(a, b), b)),
  ),
  { maxLength: 12 },
);

test.each([
  ["nobody", [], 0],
  ["one of several mutexes", [mutex, mutex, mutex], 1],
  ["all readers", [reader, reader, reader], 3],
  ["readers before a writer", [reader, reader, mutex, reader], 2],
  ["a writer before readers", [mutex, reader, reader], 1],
  ["as many permits as there are", [permit(2, 4), permit(2, 4), permit(1, 4)], 2],
  ["nobody past a large claim at the front of the waiting", [permit(3, 4), permit(2, 4), permit(1, 4)], 1],
  ["each by its own limit", [permit(2, 4), permit(2, 3), permit(1, 4)], 1],
  ["no permits beside a mutex", [mutex, permit(1, 4)], 1],
  ["no mutex beside a permit", [permit(1, 4), mutex], 1],
])("admitted: %s", (_, line, count) => {
  expect(admittedCount(line)).toBe(count);
});

test("no admitted place sees more permits out than its limit", () => {
  fc.assert(
    fc.property(places, (line) => {
      const admitted = line.slice(0, admittedCount(line));
      for (const [index, place] of admitted.entries()) {
        const before = admitted.slice(0, index).reduce((sum, { permits }) => sum + permits, 0);
        expect(fits(before, place)).toBe(true);
      }
    }),
  );
});

test("removing a place takes admission from nobody", () => {
  fc.assert(
    fc.property(places, fc.nat(), (line, pick) => {
      if (line.length === 0) return;
      const count = admittedCount(line);
      const gone = pick % line.length;
      const rest = line.toSpliced(gone, 1);
      expect(admittedCount(rest)).toBeGreaterThanOrEqual(gone < count ? count - 1 : count);
    }),
  );
});

test.each([
  ["a mutex watches its predecessor", [mutex, mutex, mutex], 2, 1],
  ["a writer watches the last reader", [reader, reader, mutex], 2, 1],
  ["a reader watches the nearest writer", [mutex, reader, mutex, reader, reader], 4, 2],
  ["a permit watches the nearest mutex", [mutex, permit(1, 4)], 1, 0],
  ["a permit in a crowd watches the line", [permit(2, 2), permit(1, 2)], 1, "line"],
  ["a claim of every permit of a semaphore watches its predecessor", [permit(1, 2), permit(1, 2), permit(2, 2)], 2, 1],
] as const)("blocker: %s", (_, line, mine, blocker) => {
  expect(blockerOf(line, mine)).toBe(blocker);
});

test("a waiting place is not admitted before its blocker has gone", () => {
  fc.assert(
    fc.property(places, (line) => {
      for (let mine = admittedCount(line); mine < line.length; mine++) {
        const blocker = blockerOf(line, mine);
        if (blocker === "line") continue;
        // whoever else goes, it must wait while its blocker stands
        const rest = [line[blocker] as Place, line[mine] as Place];
        if ((line[mine] as Place).permits < (line[mine] as Place).limit) expect(admittedCount(rest)).toBeLessThan(2);
        else expect(blocker).toBe(mine - 1);
      }
    }),
  );
});

test("a place that is not in the line has no blocker", () => {
  expect(() => blockerOf([mutex], 1)).toThrow(RangeError);
});

import fc from "fast-check";
import { expect, test } from "vitest";
import { countAdmitted } from "../../../src/lock-table/admission.ts";
import { ClaimRecord, KeyQueue, QueueEntry } from "../../../src/lock-table/key-queue.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { lockSpec, makeClaim } from "./table-fixture.ts";

let nextArrival = 0;

function addEntry(
  line: KeyQueue,
  permits = ALL_PERMITS,
  limit = ALL_PERMITS,
  token = 0,
  arrival = ++nextArrival,
): QueueEntry {
  const record = new ClaimRecord(makeClaim(`c${arrival}`, [lockSpec(line.key, permits, limit)]), null, 0, 0, arrival);
  record.token = token;
  return new QueueEntry(line, record, permits, limit, arrival);
}

const entryIds = (line: KeyQueue): string[] => [...line.entries].map((entry) => entry.record.claim.id);

function admitAll(line: KeyQueue): void {
  while (line.admitNext() !== null);
}

type QueueCommand = { readonly add: { permits: number; limit: number } } | { readonly remove: number };
const arbitraryCommand: fc.Arbitrary<QueueCommand> = fc.oneof(
  fc
    .constantFrom([ALL_PERMITS, ALL_PERMITS], [1, ALL_PERMITS], [1, 3], [2, 3], [3, 3], [1, 2])
    .map(([permits, limit]) => ({ add: { permits: permits as number, limit: limit as number } })),
  fc.nat().map((remove) => ({ remove })),
);

test("incremental admission equals the admission rule applied to the complete queue", () => {
  fc.assert(
    fc.property(fc.array(arbitraryCommand, { maxLength: 60 }), (commands) => {
      const line = new KeyQueue("k");
      for (const next of commands) {
        const entries = [...line.entries];
        if ("add" in next) {
          const hasRoom = line.hasRoomFor(next.add);
          const entry = addEntry(line, next.add.permits, next.add.limit);
          line.enqueue(entry);
          expect(line.tryAdmit(entry)).toBe(hasRoom);
        } else if (entries.length > 0) {
          line.remove(entries[next.remove % entries.length] as QueueEntry);
          admitAll(line);
        }
        const entryList = [...line.entries];
        const admitted = entryList.filter((entry) => entry.isAdmitted).length;
        const asPlaces = entryList.map(({ permits, limit, record }) => ({ id: record.claim.id, permits, limit }));
        expect(admitted).toBe(countAdmitted(asPlaces));
        expect(entryList.findIndex((entry) => !entry.isAdmitted)).toBe(admitted === entryList.length ? -1 : admitted);
        expect(line.lastAdmitted).toBe(admitted === 0 ? null : entryList[admitted - 1]);
        expect(line.usedPermits).toBe(entryList.slice(0, admitted).reduce((sum, { permits }) => sum + permits, 0));
      }
    }),
  );
});

test("only the first waiting entry is admitted", () => {
  const line = new KeyQueue("k");
  const [first, second, third] = [addEntry(line), addEntry(line, 1), addEntry(line, 1)];
  for (const entry of [first, second, third]) line.enqueue(entry as QueueEntry);
  expect(line.tryAdmit(second as QueueEntry)).toBe(false);
  expect(line.tryAdmit(first as QueueEntry)).toBe(true);
  line.remove(first as QueueEntry);
  expect(line.tryAdmit(third as QueueEntry)).toBe(false);
  expect(line.admitNext()).toBe(second);
  expect(line.tryAdmit(third as QueueEntry)).toBe(true);
  expect(line.admitNext()).toBeNull();
});

test("waiting entries are ordered by arrival, in whatever order they return, behind the admitted ones", () => {
  const line = new KeyQueue("k");
  line.enqueue(addEntry(line, ALL_PERMITS, ALL_PERMITS, 0, 50));
  admitAll(line);
  for (const arrival of [30, 10, 20, 40]) line.enqueue(addEntry(line, 1, ALL_PERMITS, 0, arrival));
  expect(entryIds(line)).toEqual(["c50", "c10", "c20", "c30", "c40"]);
});

test("asserted holds precede every waiting entry, in order of their tokens", () => {
  const line = new KeyQueue("k");
  line.enqueue(addEntry(line, 1, ALL_PERMITS, 0, 1));
  for (const token of [30, 10, 20]) line.insertAdmitted(addEntry(line, 1, ALL_PERMITS, token, 100 + token));
  expect(entryIds(line)).toEqual(["c110", "c120", "c130", "c1"]);
  expect(line.lastAdmitted?.record.claim.id).toBe("c130");
  expect(line.usedPermits).toBe(3);
});

test("of holds that exceed their limits the one with the lowest token is displaced", () => {
  const line = new KeyQueue("k");
  line.insertAdmitted(addEntry(line, 1, ALL_PERMITS, 10));
  line.insertAdmitted(addEntry(line, 1, ALL_PERMITS, 20));
  line.enqueue(addEntry(line));
  expect(line.findConflict()).toBeNull();
  line.insertAdmitted(addEntry(line, ALL_PERMITS, ALL_PERMITS, 30));
  expect(line.findConflict()?.record.token).toBe(10);
  line.remove(line.entries.first as QueueEntry);
  expect(line.findConflict()?.record.token).toBe(20);
  line.remove(line.entries.first as QueueEntry);
  expect(line.findConflict()).toBeNull();
});

test("after the end of the hold with the narrowest limit the others are checked by their own limits", () => {
  const line = new KeyQueue("k");
  line.insertAdmitted(addEntry(line, 1, 1, 10));
  line.insertAdmitted(addEntry(line, 2, 5, 20));
  line.insertAdmitted(addEntry(line, 2, 5, 30));
  line.remove(line.entries.first as QueueEntry);
  expect(line.findConflict()).toBeNull();
  line.insertAdmitted(addEntry(line, 2, 5, 40));
  expect(line.findConflict()?.record.token).toBe(20);
});

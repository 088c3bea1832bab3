// Nothing may be granted, or be answered "held", before the disk has what a restart needs to know about it.

import { expect, test } from "vitest";
import type { ClaimRecord } from "../../../../src/lock-table/key-queue.ts";
import { LockTable } from "../../../../src/lock-table/table.ts";
import { toSavedClaim } from "../../../../src/server/local/saved-claims.ts";
import type { Session } from "../../../../src/server/session/session.ts";
import { CEILING_LEAD_MICROS } from "../../../../src/server/storage/durable-log.ts";
import { unjournaledLeaseMs, WriteAhead } from "../../../../src/server/storage/write-ahead.ts";
import type { Answer, Claim } from "../../../../src/spi/driver.ts";
import { FakeClock, flushEventLoop } from "../../../support/fake-clock.ts";
import { makeClaim } from "../../../support/server-fixture.ts";
import { MemoryStorage } from "../../../support/server-harness.ts";

const HOUR_MS = 3_600_000;

class Fixture {
  readonly clock = new FakeClock();
  readonly storage = new MemoryStorage();
  readonly table: LockTable<Session>;
  readonly writeAhead: WriteAhead<Session>;
  changes = 0;

  /** aheadMicros: how far the token ceiling on disk is ahead of the clock. */
  constructor({ aheadMicros = CEILING_LEAD_MICROS, longestLeaseMs = 30_000 } = {}) {
    const ceiling = this.micros + aheadMicros;
    const state = {
      id: "state",
      generation: 1,
      tokenCeiling: ceiling,
      longestLeaseMs,
      remote: false,
      hasUnknownHolders: false,
      clean: null,
    };
    const durableState = { storage: this.storage, state, isRecovering: false, journal: [] };
    this.table = new LockTable<Session>({ tokenCeiling: ceiling });
    this.writeAhead = new WriteAhead({
      durableState,
      table: this.table,
      clock: this.clock,
      toSavedClaim: (record) => toSavedClaim(record, this.clock.now(), undefined),
      onChange: () => {
        this.changes++;
      },
    });
  }

  get micros(): number {
    return this.clock.wall() * 1_000;
  }

  /** Places a claim in the table, whatever is on disk. */
  place(claim: Claim): { readonly record: ClaimRecord<Session>; readonly answer: Answer } {
    const record = this.table.enqueue(
      claim,
      { owner: null },
      { now: this.clock.now(), micros: this.micros },
    ) as ClaimRecord<Session>;
    return { record, answer: this.table.answerFor(record) };
  }

  release(claim: Claim): void {
    this.table.release(claim.id, { now: this.clock.now(), micros: this.micros });
  }
}

test("a claim that the disk covers already needs no write", () => {
  const { writeAhead, micros, storage } = new Fixture();
  expect(writeAhead.reserve(makeClaim("k"), micros)).toBeUndefined();
  expect(writeAhead.reserveForReclaim([{ claim: makeClaim("k") }])).toBeUndefined();
  expect([storage.writes, writeAhead.durableLog.nextDueAt()]).toEqual([[], Number.POSITIVE_INFINITY]);
});

test("a claim with a longer lease, or a token above the ceiling, waits for the disk", async () => {
  const { writeAhead, micros, table, storage } = new Fixture({ aheadMicros: 0, longestLeaseMs: 0 });
  await writeAhead.reserve(makeClaim("k", { ttlMs: 20_000 }), micros);
  expect([table.tokenIssuer.ceiling, writeAhead.durableLog.longestLeaseMs]).toEqual([
    micros + 1 + CEILING_LEAD_MICROS,
    20_000,
  ]);
  await writeAhead.reserveForReclaim([{ claim: makeClaim("a") }, { claim: makeClaim("b", { ttlMs: "session" }) }]);
  expect([writeAhead.durableLog.longestLeaseMs, storage.writes]).toEqual([30_000, ["save", "save"]]);
});

test("a claim that is in the queue already does not wait for the disk", () => {
  const fixture = new Fixture({ aheadMicros: 0 });
  const claim = makeClaim("k");
  fixture.place(claim);
  expect(fixture.writeAhead.reserve(claim, fixture.micros)).toBeUndefined();
  expect(fixture.storage.writes).toEqual([]);
});

test("the ceiling is raised ahead of need, by one write at a time, and nothing waits for it", async () => {
  const fixture = new Fixture({ aheadMicros: CEILING_LEAD_MICROS / 4 });
  const { writeAhead, micros, storage, table } = fixture;
  expect(writeAhead.reserve(makeClaim("a"), micros)).toBeUndefined();
  expect(writeAhead.reserve(makeClaim("b"), micros)).toBeUndefined();
  await flushEventLoop();
  expect([storage.writes, fixture.changes]).toEqual([["save"], 1]);
  expect(table.tokenIssuer.ceiling).toBe(micros + 1 + CEILING_LEAD_MICROS);
});

test("admitted claims that wait for the ceiling are granted after a write, unless one has just failed", async () => {
  const fixture = new Fixture({ aheadMicros: 0 });
  const { writeAhead, storage, clock } = fixture;
  writeAhead.raiseCeilingIfNeeded();
  expect(storage.writes).toEqual([]);
  const { record } = fixture.place(makeClaim("k"));
  storage.isFull = true;
  writeAhead.raiseCeilingIfNeeded();
  writeAhead.raiseCeilingIfNeeded();
  await flushEventLoop();
  writeAhead.raiseCeilingIfNeeded();
  expect([storage.writes, record.isHeld, writeAhead.durableLog.nextDueAt()]).toEqual([
    ["save"],
    false,
    clock.now() + 1_000,
  ]);
  storage.isFull = false;
  writeAhead.durableLog.advance(clock.now());
  clock.jump(1_000);
  writeAhead.durableLog.advance(clock.now());
  await flushEventLoop();
  expect([storage.writes, record.isHeld, writeAhead.durableLog.nextDueAt()]).toEqual([
    ["save", "save"],
    true,
    Number.POSITIVE_INFINITY,
  ]);
});

test("a retry does nothing if another write has made up for the failed one", async () => {
  const { writeAhead, micros, storage, clock } = new Fixture({ longestLeaseMs: 0 });
  storage.isFull = true;
  await expect(writeAhead.reserve(makeClaim("k"), micros)).rejects.toThrow("ENOSPC");
  storage.isFull = false;
  clock.jump(1_000);
  await writeAhead.reserve(makeClaim("k"), micros);
  writeAhead.durableLog.advance(clock.now());
  await flushEventLoop();
  expect(storage.writes).toEqual(["save", "save"]);
});

test("a lease that is longer than any requested one is lowered a second after the first shorter one", async () => {
  const { writeAhead, micros, storage, clock } = new Fixture();
  void writeAhead.reserve(makeClaim("a", { ttlMs: 5_000 }), micros);
  const dueAt = writeAhead.durableLog.nextDueAt();
  expect(dueAt).toBe(clock.now() + 1_000);
  clock.jump(500);
  void writeAhead.reserve(makeClaim("b", { ttlMs: 10_000 }), micros);
  expect(writeAhead.durableLog.nextDueAt()).toBe(dueAt);
  writeAhead.durableLog.advance(dueAt);
  await flushEventLoop();
  expect([writeAhead.durableLog.longestLeaseMs, storage.writes]).toEqual([10_000, ["save"]]);
});

test("waiting claims and short leases are answered at once", () => {
  const fixture = new Fixture();
  const shortClaim = fixture.place(makeClaim("k"));
  const waiting = fixture.place(makeClaim("k", { ttlMs: HOUR_MS }));
  for (const { record, answer } of [shortClaim, waiting])
    expect(fixture.writeAhead.persist(record, answer)).toBe(answer);
  const answers = [shortClaim.answer, waiting.answer, undefined];
  expect(fixture.writeAhead.persistAll([shortClaim, waiting, { record: undefined, answer: undefined }])).toEqual(
    answers,
  );
});

test("a long lease is in the journal before it is answered; repeated calls share the write, later ones need none", async () => {
  const fixture = new Fixture();
  const { writeAhead, storage } = fixture;
  const { record, answer } = fixture.place(makeClaim("k", { ttlMs: HOUR_MS }));
  const open = storage.blockWrites();
  const answers: Answer[] = [];
  const calls = [1, 2].map(async () => {
    answers.push(await writeAhead.persist(record, answer));
  });
  await flushEventLoop();
  expect(answers).toEqual([]);
  open();
  await Promise.all(calls);
  expect(answers).toEqual([answer, answer]);
  expect(writeAhead.persist(record, answer)).toBe(answer);
  expect(storage.writes).toEqual(["append"]);
});

test.for<[how: string, expected: Answer, end: (fixture: Fixture, record: ClaimRecord<Session>) => void]>([
  ["was released", { state: "none" }, (fixture, { claim }) => fixture.release(claim)],
  ["has expired", { state: "none", reason: "expired" }, ({ clock }) => clock.jump(HOUR_MS)],
  [
    "was revoked",
    { state: "none", reason: "revoked" },
    ({ table, clock, micros }, { token }) => table.revoke("k", token, false, { now: clock.now(), micros }),
  ],
])("a claim that %s during its write is not answered as held", async ([, expected, end]) => {
  const fixture = new Fixture();
  const { record, answer } = fixture.place(makeClaim("k", { ttlMs: HOUR_MS }));
  const open = fixture.storage.blockWrites();
  const call = fixture.writeAhead.persist(record, answer);
  await flushEventLoop();
  end(fixture, record);
  open();
  expect(await call).toEqual(expected);
});

test("a revocation is written, too: the claim must not come back as a valid one", async () => {
  const fixture = new Fixture();
  const { record, answer } = fixture.place(makeClaim("k", { ttlMs: HOUR_MS }));
  await fixture.writeAhead.persist(record, answer);
  fixture.table.revoke("k", record.token, false, { now: fixture.clock.now(), micros: fixture.micros });
  await fixture.writeAhead.persist(record, { state: "none", reason: "revoked" });
  expect(fixture.writeAhead.durableLog.journal.find(record.claim.id)?.revokeReason).toBe("revoked");
  expect(fixture.storage.writes).toHaveLength(2);
});

test("a failed write refuses the grant", async () => {
  const fixture = new Fixture();
  const { record, answer } = fixture.place(makeClaim("k", { ttlMs: HOUR_MS }));
  fixture.storage.isFull = true;
  await expect(fixture.writeAhead.persist(record, answer)).rejects.toMatchObject({ code: "DISK" });
});

test("if all answers of a call need a write, the call waits for all, and fails with them", async () => {
  const fixture = new Fixture();
  const placedClaims = ["a", "b"].map((key) => fixture.place(makeClaim(key, { ttlMs: HOUR_MS })));
  expect(await fixture.writeAhead.persistAll(placedClaims)).toEqual(placedClaims.map(({ answer }) => answer));
  const failing = [fixture.place(makeClaim("c", { ttlMs: HOUR_MS }))];
  fixture.storage.isFull = true;
  await expect(fixture.writeAhead.persistAll(failing)).rejects.toMatchObject({ code: "DISK" });
});

test("answers that need no write wait 100 ms for the others; what is not on disk then is unknown", async () => {
  const fixture = new Fixture();
  const { storage, clock, writeAhead } = fixture;
  const shortClaim = fixture.place(makeClaim("short"));
  const [first, second] = ["a", "b"].map((key) => fixture.place(makeClaim(key, { ttlMs: HOUR_MS })));
  if (first === undefined || second === undefined) throw new Error("two claims");
  const endedClaim = { record: second.record, answer: { state: "none" } as Answer };
  expect(await writeAhead.persistAll([shortClaim, first, endedClaim])).toEqual([
    shortClaim.answer,
    first.answer,
    endedClaim.answer,
  ]);
  const open = storage.blockWrites();
  const call = Promise.resolve(writeAhead.persistAll([shortClaim, second]));
  await clock.advance(100);
  expect(await call).toEqual([shortClaim.answer, undefined]);
  open();
  await flushEventLoop();
  expect([await writeAhead.persist(second.record, second.answer), clock.pendingTimers]).toEqual([second.answer, 0]);
});

test("a claim is detached when the disk has it; a repeated call joins the write, and a failed one restores the owner", async () => {
  const fixture = new Fixture();
  const { table, writeAhead, clock, micros, storage } = fixture;
  const detach = (claim: Claim): ClaimRecord<Session> => {
    const { record } = fixture.place(claim);
    table.detach(claim.id, { now: clock.now(), micros });
    return record;
  };
  const restoredIds: string[] = [];
  const record = detach(makeClaim("a"));
  const calls = [1, 2].map(() => writeAhead.persistDetached(record, () => restoredIds.push("a")));
  await Promise.all(calls);
  expect([storage.writes, record.isDetached]).toEqual([["append"], true]);
  storage.isFull = true;
  const failing = detach(makeClaim("b"));
  await expect(writeAhead.persistDetached(failing, () => restoredIds.push("b"))).rejects.toMatchObject({
    code: "DISK",
  });
  expect([restoredIds, failing.isDetached]).toEqual([["b"], false]);
});

test("the removal from the journal is not waited for, and may fail", async () => {
  const fixture = new Fixture();
  const { record, answer } = fixture.place(makeClaim("k", { ttlMs: HOUR_MS }));
  await fixture.writeAhead.persist(record, answer);
  fixture.storage.isFull = true;
  fixture.writeAhead.removeFromJournal(record);
  await flushEventLoop();
  expect(fixture.writeAhead.durableLog.isFailing).toBe(true);
});

test("a restart waits for short leases and for sessions, not for leases that are in the journal", () => {
  expect([20_000, "session" as const, HOUR_MS].map((ttlMs) => unjournaledLeaseMs(ttlMs, 30_000))).toEqual([
    20_000, 30_000, 0,
  ]);
});

// What the durable log promises is never more than what is on disk, also while writes are pending and after one has failed.

import { expect, test } from "vitest";
import type { DurableLogOptions } from "../../../../src/server/storage/durable-log.ts";
import { DurableLog } from "../../../../src/server/storage/durable-log.ts";
import type { SavedClaim, SavedState } from "../../../../src/server/storage/storage.ts";
import { FakeClock, flushEventLoop } from "../../../support/fake-clock.ts";
import { makeClaim } from "../../../support/server-fixture.ts";
import { MemoryStorage } from "../../../support/server-harness.ts";

interface Fixture {
  readonly log: DurableLog;
  readonly storage: MemoryStorage;
  readonly clock: FakeClock;
  /** How often the log has told that its retry, or its ceiling, may have changed. */
  changes: number;
  readState(): Promise<SavedState>;
}

const EMPTY: SavedState = {
  id: "state",
  generation: 1,
  tokenCeiling: 100,
  longestLeaseMs: 0,
  remote: false,
  hasUnknownHolders: false,
  clean: null,
};

function createLog(state: Partial<SavedState> = {}, options: Partial<DurableLogOptions> = {}): Fixture {
  const storage = new MemoryStorage();
  const clock = new FakeClock();
  const now = (): number => clock.now();
  const log = new DurableLog({
    storage,
    now,
    state: { ...EMPTY, ...state },
    isRecovering: false,
    journal: [],
    onChange: () => {
      fixture.changes++;
    },
    ...options,
  });
  const readState = async (): Promise<SavedState> => (await storage.load()).state as SavedState;
  const fixture = { log, storage, clock, changes: 0, readState };
  return fixture;
}

const saved = (overrides: Partial<SavedClaim> = {}): SavedClaim => ({
  claim: makeClaim("k"),
  token: 1,
  tokenCount: 1,
  remainingMs: 30_000,
  arrival: 1,
  isDetached: false,
  revokeReason: null,
  sessionId: null,
  account: "",
  ...overrides,
});

const readClaims = async ({ storage }: Fixture): Promise<string[]> => {
  const ids = new Set<string>();
  for (const record of (await storage.load()).journal ?? []) {
    if ("put" in record) ids.add(record.put.claim.id);
    else ids.delete(record.drop);
  }
  return [...ids];
};

/** Lets the time of the retry come. */
const retry = async ({ log, clock }: Fixture): Promise<void> => {
  clock.jump(1_000);
  log.advance(clock.now());
  await flushEventLoop();
};

test("a reservation that the disk covers already needs no write", async () => {
  const { log, storage } = createLog({ longestLeaseMs: 1_000 });
  await log.reserve(100, 1_000);
  expect(storage.writes).toEqual([]);
});

test("reservations during a write share the next one, and count only when it has ended", async () => {
  const { log, storage, readState } = createLog();
  const open = storage.blockWrites();
  const first = log.reserve(200, 1_000);
  const reservations = [log.reserve(300, 0), log.reserve(250, 2_000)];
  expect([log.ceiling, log.longestLeaseMs]).toEqual([100, 0]);
  open();
  await Promise.all([first, ...reservations]);
  expect([log.ceiling, log.longestLeaseMs]).toEqual([300, 2_000]);
  expect(storage.writes).toEqual(["save", "save"]);
  expect(await readState()).toMatchObject({ tokenCeiling: 300, longestLeaseMs: 2_000 });
});

test("after a failed write nothing is promised; for a second the same error is the answer, without another attempt", async () => {
  const fixture = createLog();
  const { log, storage, clock } = fixture;
  storage.isFull = true;
  const error = await log.reserve(200, 0).catch((reason: unknown) => reason);
  expect(error).toMatchObject({ code: "DISK", message: expect.stringContaining("ENOSPC") });
  expect([log.ceiling, fixture.changes, log.isFailing]).toEqual([100, 1, true]);
  storage.isFull = false;
  clock.jump(999);
  await expect(log.reserve(200, 0)).rejects.toBe(error);
  expect(storage.writes).toEqual(["save"]);
  clock.jump(1);
  await log.reserve(200, 0);
  expect([log.ceiling, log.isFailing]).toEqual([200, false]);
});

test("an error without a code is named so", async () => {
  const { log, storage } = createLog();
  storage.saveState = () => Promise.reject(null);
  await expect(log.reserve(200, 0)).rejects.toThrow("(an error)");
});

test("the lease is lowered only if it is longer than any requested one, and not while recovering", async () => {
  const { log, storage, clock, readState } = createLog({ longestLeaseMs: 50_000 });
  expect(log.nextDueAt()).toBe(Number.POSITIVE_INFINITY);
  log.recordLease(10_000);
  log.recordLease(5_000);
  expect(log.nextDueAt()).toBe(clock.now() + 1_000);
  log.advance(log.nextDueAt());
  await flushEventLoop();
  expect(log.longestLeaseMs).toBe(10_000);
  expect((await readState()).longestLeaseMs).toBe(10_000);
  expect(storage.writes).toEqual(["save"]);
  const recovering = createLog({ longestLeaseMs: 50_000 }, { isRecovering: true }).log;
  recovering.recordLease(10_000);
  expect(recovering.nextDueAt()).toBe(Number.POSITIVE_INFINITY);
});

test("the end of a recovery is saved once, with the leases that remain possible", async () => {
  const claimLimits = { claims: 1, claimsPerAccount: 1, waitersPerKey: 1 };
  const { log, storage, readState } = createLog(
    { longestLeaseMs: 50_000, hasUnknownHolders: true, claimLimits },
    { isRecovering: true },
  );
  log.recordLease(10_000);
  log.finishRecovery();
  log.finishRecovery();
  await flushEventLoop();
  expect(await readState()).toMatchObject({ hasUnknownHolders: false, longestLeaseMs: 10_000, claimLimits });
  expect(storage.writes).toEqual(["save"]);
});

test("a recovery that ends before any lease was requested leaves the longest lease as it is", async () => {
  const { log, readState } = createLog({ longestLeaseMs: 50_000 }, { isRecovering: true });
  log.finishRecovery();
  await flushEventLoop();
  expect((await readState()).longestLeaseMs).toBe(50_000);
});

test("a recovery that starts late is saved: unknown holders, and their longest lease", async () => {
  const { log, readState } = createLog({ longestLeaseMs: 1_000 });
  log.startRecovery(60_000);
  await flushEventLoop();
  expect(await readState()).toMatchObject({ hasUnknownHolders: true, longestLeaseMs: 60_000 });
});

test("records that arrive together share a write; the removal of an unknown claim needs none", async () => {
  const fixture = createLog({}, { journal: [saved()] });
  const { log, storage } = fixture;
  const [claimA, claimB] = [saved(), saved()];
  await Promise.all([
    log.journal.put(claimA),
    log.journal.put(claimB),
    log.journal.drop(claimA.claim.id),
    log.journal.drop("unknown"),
  ]);
  expect(storage.writes).toEqual(["append"]);
  expect(await readClaims(fixture)).toEqual([claimB.claim.id]);
});

test("the journal finds the claims that it has had from the start, and no other one", () => {
  const detached = saved({ isDetached: true });
  const { journal } = createLog({}, { journal: [detached] }).log;
  expect([journal.find(detached.claim.id), journal.find("unknown")]).toEqual([detached, undefined]);
});

test("the journal is rewritten when most of its records are obsolete", async () => {
  const fixture = createLog();
  const { log, storage } = fixture;
  const keptClaim = saved();
  await log.journal.put(keptClaim);
  for (let count = 0; count < 501; count++) {
    const { claim } = saved();
    await Promise.all([log.journal.put(saved({ claim })), log.journal.drop(claim.id)]);
  }
  await log.journal.drop(keptClaim.claim.id);
  expect(storage.writes.filter((write) => write === "rewrite")).toHaveLength(1);
  expect(await readClaims(fixture)).toEqual([]);
});

test("a failed write of a claim restores the previous promise about it, and the retry rewrites the journal", async () => {
  const before = saved();
  const fixture = createLog({}, { journal: [before] });
  const { log, storage } = fixture;
  const { claim } = before;
  storage.isFull = "journal";
  const written = Promise.allSettled([
    log.journal.put(saved({ claim, revokeReason: "revoked" })),
    log.journal.put(saved()),
    log.journal.drop("unknown"),
  ]);
  expect(log.journal.find(claim.id)?.revokeReason).toBe("revoked");
  expect((await written).map(({ status }) => status)).toEqual(["rejected", "rejected", "fulfilled"]);
  expect([log.journal.find(claim.id), log.isFailing]).toEqual([before, true]);
  storage.isFull = false;
  await retry(fixture);
  expect([log.isFailing, storage.writes.at(-1)]).toEqual([false, "rewrite"]);
  expect(await readClaims(fixture)).toEqual([claim.id]);
});

test("a failed write leaves what was requested since: the next write has it, and the failed removal, too", async () => {
  const fixture = createLog();
  const { log, storage } = fixture;
  const [first, dropped] = [saved(), saved()];
  await log.journal.put(dropped);
  let failAppend = (_: Error): void => undefined;
  storage.appendJournal = () => {
    storage.appendJournal = () => Promise.reject(new Error("no room is kept here"));
    return new Promise((_, reject) => {
      failAppend = reject;
    });
  };
  const failed = Promise.allSettled([log.journal.put(first), log.journal.drop(dropped.claim.id)]);
  await flushEventLoop();
  const laterWrite = log.journal.put(saved({ claim: first.claim, token: 7 }));
  failAppend(new Error("no space"));
  expect((await failed).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  await laterWrite;
  expect([log.journal.find(first.claim.id)?.token, log.journal.find(dropped.claim.id)]).toEqual([7, undefined]);
  expect(await readClaims(fixture)).toEqual([first.claim.id]);
});

test("a removal succeeds in the room that is kept for it, although a write for others has failed", async () => {
  const fixture = createLog();
  const { log, storage } = fixture;
  const [dropped, late] = [saved(), saved()];
  await Promise.all([log.journal.put(dropped), log.journal.put(late)]);
  const appendJournal = storage.appendJournal.bind(storage);
  storage.appendJournal = async (records) => {
    if (records.some((record) => "put" in record)) throw new Error("no space");
    await appendJournal(records);
  };
  storage.rewriteJournal = () => Promise.reject(new Error("no space"));
  const refused = Promise.allSettled([log.journal.put(saved()), log.journal.drop(dropped.claim.id)]);
  await log.journal.waitUntilDropped([dropped.claim.id]);
  expect((await refused).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  expect(await readClaims(fixture)).toEqual([late.claim.id]);
  // the journal has to be rewritten now, and cannot be
  log.journal.drop(late.claim.id).catch(() => undefined);
  expect(log.journal.isDropPending(late.claim.id)).toBe(true);
  await log.journal.waitUntilDropped([late.claim.id]);
  expect([log.journal.isDropPending(late.claim.id), log.isFailing]).toEqual([false, true]);
  expect(await readClaims(fixture)).toEqual([]);
});

test("who waits for a removal repeats its failed write, and learns of another failure", async () => {
  const { log, storage } = createLog();
  const dropped = saved();
  await log.journal.put(dropped);
  const { id } = dropped.claim;
  storage.isFull = true;
  await expect(log.journal.drop(id)).rejects.toThrow("ENOSPC");
  await expect(log.journal.waitUntilDropped([id, "unknown"])).rejects.toThrow("ENOSPC");
  expect(log.journal.isDropPending(id)).toBe(true);
  storage.isFull = false;
  await log.journal.waitUntilDropped([id]);
  expect([log.journal.isDropPending(id), storage.writes.at(-1)]).toEqual([false, "rewrite"]);
});

test("a retry repeats a failed write of the state, and tells when it has ended", async () => {
  const fixture = createLog();
  const { log, storage, readState } = fixture;
  storage.isFull = true;
  await expect(log.reserve(200, 0)).rejects.toThrow("ENOSPC");
  storage.isFull = false;
  expect(fixture.changes).toBe(1);
  await retry(fixture);
  expect([(await readState()).tokenCeiling, log.ceiling, fixture.changes]).toEqual([200, 200, 2]);
});

test("a retry that fails is followed by another one a second later", async () => {
  const fixture = createLog();
  const { log, storage, clock } = fixture;
  storage.isFull = true;
  await expect(log.journal.put(saved())).rejects.toThrow("ENOSPC");
  await retry(fixture);
  expect(log.nextDueAt()).toBe(clock.now() + 1_000);
  storage.isFull = false;
  await retry(fixture);
  expect([log.isFailing, log.nextDueAt()]).toEqual([false, Number.POSITIVE_INFINITY]);
});

test("a written state does not end the retry of a journal that has failed", async () => {
  const fixture = createLog({ longestLeaseMs: 50_000 }, { isRecovering: true });
  const { log, storage } = fixture;
  storage.isFull = "journal";
  await expect(log.journal.put(saved())).rejects.toThrow("ENOSPC");
  log.finishRecovery();
  await flushEventLoop();
  expect([storage.writes.at(-1), log.isFailing]).toEqual(["save", true]);
  storage.isFull = false;
  await retry(fixture);
  expect([storage.writes.at(-1), log.isFailing]).toEqual(["rewrite", false]);
});

test("the last state is written after all pending writes, and no other one follows it", async () => {
  const { log, storage, readState } = createLog();
  const open = storage.blockWrites();
  const pending = [log.reserve(200, 0), log.journal.put(saved())];
  const clean = { claims: [], sessions: [], recovery: null };
  const finished = log.finish({ tokenCeiling: 500, clean });
  log.startRecovery(1_000);
  open();
  await Promise.all([...pending, finished]);
  await flushEventLoop();
  expect(await readState()).toMatchObject({ tokenCeiling: 500, clean, longestLeaseMs: 1_000 });
  await expect(log.reserve(900, 0)).rejects.toMatchObject({ code: "DRAINING" });
  expect(storage.hadOverlappingWrites).toBe(false);
});

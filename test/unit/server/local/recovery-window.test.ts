// During a recovery nothing new is granted, and only what may have been held before the start is given back.

import { expect, test } from "vitest";
import type { ClaimRecord } from "../../../../src/lock-table/key-queue.ts";
import { LockTable } from "../../../../src/lock-table/table.ts";
import type { ReclaimItem } from "../../../../src/protocol/frames.ts";
import type { RecoveryPlan } from "../../../../src/server/local/recovery-window.ts";
import { describeRecovery, NO_RECOVERY, RecoveryWindow } from "../../../../src/server/local/recovery-window.ts";
import { linkToSession, Session, unlinkFromSession } from "../../../../src/server/session/session.ts";
import type { Answer, Claim } from "../../../../src/spi/driver.ts";
import { randomId } from "../../../../src/util/ids.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { makeClaim } from "../../../support/server-fixture.ts";

const HOUR_MS = 3_600_000;

class Fixture {
  readonly clock = new FakeClock();
  readonly table = new LockTable<Session>({ onRemoved: unlinkFromSession });
  readonly session = new Session({ session: randomId(), label: "", pid: null, pidStart: null }, true, 0);
  readonly window: RecoveryWindow;
  hasRoom = true;
  ends = 0;
  outdated = 0;
  readonly logged: string[] = [];

  constructor(plan: Partial<RecoveryPlan> = {}) {
    this.window = new RecoveryWindow({
      table: this.table,
      clock: this.clock,
      plan: { ...NO_RECOVERY, ...plan },
      log: (message) => this.logged.push(message),
      durableLog: {
        finishRecovery: () => {
          this.ends++;
        },
        startRecovery: () => {
          this.outdated++;
        },
      },
    });
  }

  /** After a crash; tokens from before it are below the present time. */
  static afterCrash(plan: Partial<RecoveryPlan> = {}): Fixture {
    const ceilingAtStart = new FakeClock().wall() * 1_000;
    return new Fixture({ reason: "crash", durationMs: 60_000, ceilingAtStart, ...plan });
  }

  get micros(): number {
    return this.clock.wall() * 1_000;
  }

  /** A token that was granted a second before the start. */
  get earlierToken(): bigint {
    return BigInt(this.micros - 1_000_000);
  }

  reclaim(items: readonly ReclaimItem[], isLast = true): Answer[] {
    const callbacks = {
      hasRoom: () => this.hasRoom,
      adopt: (record: ClaimRecord<Session>) => linkToSession(record, this.session),
    };
    const time = { now: this.clock.now(), micros: this.micros };
    return this.window.reclaim(this.session, items, isLast, time, callbacks);
  }

  held(claim: Claim, overrides: Partial<Extract<ReclaimItem["lastState"], { state: "held" }>> = {}): ReclaimItem {
    return {
      claim,
      lastState: { state: "held", token: this.earlierToken, tokenCount: 1, remainingMs: 20_000, ...overrides },
    };
  }
}

test("without a recovery nothing may be unreported, nothing is saved, and a reclaim reports what the table has", () => {
  const fixture = new Fixture();
  const { window, clock, table } = fixture;
  window.start();
  const keptClaim = makeClaim("k");
  table.enqueue(keptClaim, { owner: null }, { now: clock.now(), micros: fixture.micros });
  expect([window.isActive, window.reason, window.remainingMs(), window.toSavedRecovery()]).toEqual([
    false,
    null,
    0,
    null,
  ]);
  expect(window.mayBeUnreported(randomId())).toBe(false);
  clock.jump(60_000);
  const unknown = fixture.held(makeClaim("x"));
  expect(fixture.reclaim([fixture.held(keptClaim), unknown])).toMatchObject([{ state: "none" }, { state: "none" }]);
  window.endIfDone();
  expect(fixture.logged).toEqual([]);
});

test("a reclaimed holder has its token and the rest of its lease; a waiting claim its place", () => {
  const fixture = Fixture.afterCrash();
  const [holder, session, first, second] = [
    makeClaim("k"),
    makeClaim("s", { ttlMs: "session" }),
    makeClaim("k", { wait: false }),
    makeClaim("k"),
  ];
  const waiting = (claim: Claim, arrival: number): ReclaimItem => ({ claim, lastState: { state: "waiting", arrival } });
  const items = [fixture.held(holder), fixture.held(session), waiting(second, 9), waiting(first, 8)];
  const answers = fixture.reclaim(items, false);
  const token = fixture.earlierToken;
  expect(answers).toMatchObject([
    { state: "held", token, remainingMs: 20_000 },
    { state: "held", token },
    { state: "waiting" },
    { state: "waiting" },
  ]);
  const queue = [...(fixture.table.queues.get("k")?.entries ?? [])];
  expect(queue.map(({ record }) => record.claim.id)).toEqual([holder.id, first.id, second.id]);
  expect(fixture.window.isActive).toBe(true);
});

test.for<[reason: string, item: (fixture: Fixture) => ReclaimItem]>([
  ["its token is above the ceiling", (it) => it.held(makeClaim("k"), { token: BigInt(it.micros) + 10n ** 15n })],
  ["its lease has ended", (it) => it.held(makeClaim("k"), { remainingMs: 0 })],
  ["it has a long lease, which the journal would have", (it) => it.held(makeClaim("k", { ttlMs: HOUR_MS }))],
])("a claim is not given back: %s", ([, item]) => {
  const fixture = Fixture.afterCrash();
  expect(fixture.reclaim([item(fixture)])).toEqual([{ state: "none" }]);
  expect(fixture.outdated).toBe(0);
});

test("a token that no clock can have issued is refused, even if the ceiling is unknown", () => {
  const fixture = Fixture.afterCrash({ ceilingAtStart: Number.POSITIVE_INFINITY });
  const token = BigInt(fixture.micros) + 10n ** 15n;
  expect(fixture.reclaim([fixture.held(makeClaim("k"), { token })])).toEqual([{ state: "none" }]);
});

test("a long lease is given back if the journal cannot be relied on", () => {
  const fixture = Fixture.afterCrash({ acceptsJournaled: true });
  expect(fixture.reclaim([fixture.held(makeClaim("k", { ttlMs: HOUR_MS }))])).toMatchObject([{ state: "held" }]);
});

test("a claim that exceeds a quota, was released, or was revoked is not given back", () => {
  const fixture = Fixture.afterCrash();
  const { window, table, clock, micros } = fixture;
  const [releasedClaim, revokedClaim, knownClaim] = [makeClaim("a"), makeClaim("b"), makeClaim("c")];
  expect(window.mayBeUnreported(releasedClaim.id)).toBe(true);
  table.addTombstone(releasedClaim.id, HOUR_MS);
  expect(window.mayBeUnreported(releasedClaim.id)).toBe(false);
  fixture.reclaim([fixture.held(revokedClaim), fixture.held(knownClaim)], false);
  table.revoke("b", Number(fixture.earlierToken), false, { now: clock.now(), micros });
  const items = [releasedClaim, revokedClaim, knownClaim].map((claim) => fixture.held(claim));
  expect(fixture.reclaim(items, false)).toMatchObject([
    { state: "none", reason: "released" },
    { state: "none", reason: "revoked" },
    { state: "held" },
  ]);
  fixture.hasRoom = false;
  expect(fixture.reclaim([fixture.held(makeClaim("d"))])).toEqual([{ state: "none" }]);
});

test("of two conflicting claims the one with the higher token stays", () => {
  const fixture = Fixture.afterCrash();
  const laterItem = fixture.held(makeClaim("k"), { token: fixture.earlierToken + 5n });
  const earlierItem = fixture.held(makeClaim("k"));
  fixture.reclaim([earlierItem, laterItem]);
  expect([earlierItem, laterItem].map(({ claim }) => fixture.table.records.has(claim.id))).toEqual([false, true]);
  const third = fixture.held(makeClaim("k"), { token: fixture.earlierToken + 1n });
  expect(fixture.reclaim([third])).toMatchObject([{ state: "none" }]);
});

test("the recovery ends when all expected sessions have reported, or at its end", () => {
  const earlyFixture = Fixture.afterCrash();
  const expected = Fixture.afterCrash({ expectedSessions: new Set([earlyFixture.session.id]) });
  expected.window.sessionReported(expected.session);
  expect(expected.window.isActive).toBe(true);
  expected.window.sessionReported(earlyFixture.session);
  expect([expected.window.isActive, expected.ends]).toEqual([false, 1]);
  earlyFixture.reclaim([]);
  earlyFixture.clock.jump(59_999);
  earlyFixture.window.endIfDone();
  expect([earlyFixture.window.remainingMs(), earlyFixture.ends]).toEqual([1, 0]);
  earlyFixture.clock.jump(5);
  expect(earlyFixture.window.remainingMs()).toBe(1);
  earlyFixture.window.endIfDone();
  earlyFixture.window.endIfDone();
  expect([earlyFixture.window.remainingMs(), earlyFixture.ends]).toEqual([0, 1]);
});

test("the rest of a recovery can be saved, with what is known of earlier holders", () => {
  const fixture = Fixture.afterCrash({ ceilingAtStart: 500, expectedSessions: new Set(["session"]) });
  fixture.clock.jump(20_000);
  expect(fixture.window.toSavedRecovery()).toEqual({
    reason: "crash",
    remainingMs: 40_000,
    tokenCeiling: 500,
    expectedSessions: ["session"],
  });
  const unknown = Fixture.afterCrash({ ceilingAtStart: Number.POSITIVE_INFINITY });
  expect(unknown.window.toSavedRecovery()).toMatchObject({ tokenCeiling: null, expectedSessions: null });
});

test("a claim with a token that our state cannot have issued starts a recovery, and is given back in it", () => {
  const fixture = new Fixture();
  fixture.clock.jump(10_000);
  expect(fixture.reclaim([fixture.held(makeClaim("k", { ttlMs: HOUR_MS }))])).toMatchObject([{ state: "held" }]);
  expect([fixture.window.reason, fixture.window.remainingMs(), fixture.outdated]).toEqual(["outdated", 50_000, 1]);
  fixture.window.reportOutdatedState();
  expect(fixture.outdated).toBe(1);
});

test("a recovery that has begun is only lengthened by an outdated state", () => {
  const fixture = Fixture.afterCrash({ durationMs: 90_000, expectedSessions: new Set(["session"]) });
  fixture.window.reportOutdatedState();
  expect([fixture.window.reason, fixture.window.remainingMs()]).toEqual(["outdated", 90_000]);
  expect(fixture.window.toSavedRecovery()?.expectedSessions).toBeNull();
});

test("a minute after the start no earlier short lease can be left: no recovery starts", () => {
  const fixture = new Fixture();
  fixture.clock.jump(60_000);
  fixture.window.reportOutdatedState();
  expect([fixture.window.isActive, fixture.outdated]).toEqual([false, 0]);
});

test("nothing is granted before the start, in a recovery, and while draining; the log says when a recovery begins and ends", () => {
  const grantsNow = ({ table, clock, micros }: Fixture): boolean =>
    table.enqueue(makeClaim("k", { wait: false }), { owner: null }, { now: clock.now(), micros }) !== null;
  const open = new Fixture();
  expect(grantsNow(open)).toBe(false);
  open.window.start();
  expect([grantsNow(open), open.logged]).toEqual([true, []]);
  // the sessions that it would wait for are known already to have ended
  const done = Fixture.afterCrash({ expectedSessions: new Set() });
  done.window.start();
  expect([grantsNow(done), done.ends, done.logged]).toEqual([true, 1, []]);
  const [recovering, draining] = [Fixture.afterCrash(), Fixture.afterCrash()];
  draining.window.drain();
  for (const { window, clock } of [recovering, draining]) {
    window.start();
    expect(window.pause).toEqual({ reason: "recovery", remainingMs: 60_000 });
    clock.jump(60_000);
    window.endIfDone();
    expect(window.pause).toBeNull();
  }
  const begun = describeRecovery("crash", 60_000);
  expect([grantsNow(recovering), recovering.ends, recovering.logged]).toEqual([
    true,
    1,
    [begun, "recovery is over: new locks are granted"],
  ]);
  expect([grantsNow(draining), draining.ends, draining.logged]).toEqual([false, 1, [begun]]);
});

test("the reason is described with the time that is left, rounded up", () => {
  expect(describeRecovery("crash", 1_001)).toBe(
    "the previous run of the server did not stop cleanly: granting nothing new for up to 2 s",
  );
});

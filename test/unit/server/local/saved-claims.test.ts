// What is saved of a claim is what a restart needs to restore it as it was.

import { expect, test } from "vitest";
import type { ClaimRecord } from "../../../../src/lock-table/key-queue.ts";
import { LockTable } from "../../../../src/lock-table/table.ts";
import { restoreClaim, toSavedClaim } from "../../../../src/server/local/saved-claims.ts";
import { linkToSession, Session } from "../../../../src/server/session/session.ts";
import type { Claim } from "../../../../src/spi/driver.ts";
import { randomId } from "../../../../src/util/ids.ts";
import { makeClaim } from "../../../support/server-fixture.ts";

const TIME = { now: 1_000, micros: 1_577_836_800_000_000 };

function createSession(): Session {
  return new Session({ session: randomId(), label: "", pid: null, pidStart: null }, true, TIME.now);
}

function place(claim: Claim, owner: Session | null = null, account = ""): ClaimRecord<Session> {
  const record = new LockTable<Session>().enqueue(claim, { owner, account }, TIME) as ClaimRecord<Session>;
  if (owner !== null) linkToSession(record, owner);
  return record;
}

test("the saved form has what is left of the lease and of maxHold, the owner and the account", () => {
  const record = place(makeClaim("k", { ttlMs: 1_000 }));
  expect(toSavedClaim(record, TIME.now + 5_000, undefined)).toEqual({
    claim: record.claim,
    token: record.token,
    tokenCount: 1,
    remainingMs: 0,
    arrival: record.arrival,
    isDetached: false,
    revokeReason: null,
    sessionId: null,
    account: "",
  });
  const session = createSession();
  const owned = place(makeClaim("k", { ttlMs: 1_000 }), session, "ana");
  owned.revokeReason = "maxHold";
  expect(toSavedClaim(owned, TIME.now + 100, 600)).toMatchObject({
    remainingMs: 900,
    sessionId: session.id,
    account: "ana",
    remainingMaxHoldMs: 600,
    revokeReason: "maxHold",
  });
  expect(toSavedClaim(place(makeClaim("s", { ttlMs: "session" })), TIME.now, undefined).remainingMs).toBe(0);
});

test("a restored claim is what was saved: held, detached, revoked, or waiting", () => {
  const table = new LockTable<Session>();
  table.advance(TIME);
  table.pauseGrants();
  const held = place(makeClaim("k", { ttlMs: 5_000 }), null, "ana");
  held.isDetached = true;
  held.revokeReason = "revoked";
  const waiting = { ...toSavedClaim(place(makeClaim("k")), TIME.now, undefined), token: 0, tokenCount: 0, arrival: 7 };
  for (const saved of [toSavedClaim(held, TIME.now, undefined), waiting]) {
    const record = restoreClaim(table, saved, null, TIME) as ClaimRecord<Session>;
    expect(toSavedClaim(record, TIME.now, undefined)).toEqual(saved);
  }
});

// What the proxy knows about a claim: its owner, its last known state, and the one end that it has.

import { expect, test } from "vitest";
import { ANONYMOUS } from "../../../../src/auth/access-control.ts";
import { EventLog } from "../../../../src/server/events/event-log.ts";
import { resolveLimits } from "../../../../src/server/limits.ts";
import type { ProxiedClaim } from "../../../../src/server/proxy/proxied-claims.ts";
import { ProxiedClaims } from "../../../../src/server/proxy/proxied-claims.ts";
import type { EndScope } from "../../../../src/server/session/backend.ts";
import { Session } from "../../../../src/server/session/session.ts";
import type { Answer, Claim } from "../../../../src/spi/driver.ts";
import { randomId } from "../../../../src/util/ids.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { makeClaim } from "../../../support/server-fixture.ts";

const SESSION_MS = 30_000;
const HELD: Answer = { state: "held", token: 5n, tokenCount: 3, remainingMs: 20_000 };
const WAITING: Answer = { state: "waiting", remainingMs: 20_000, recheckMs: 1_000 };

class Fixture {
  readonly events: string[] = [];
  readonly claims: ProxiedClaims;
  /** Ids whose owners were told to check again. */
  readonly rechecked: string[] = [];

  constructor(limits: Parameters<typeof resolveLimits>[0] = {}) {
    const eventLog = new EventLog({ clock: new FakeClock() });
    const record = eventLog.onEvent.bind(eventLog);
    eventLog.onEvent = (kind, claim, now) => {
      this.events.push(kind);
      record(kind, claim, now);
    };
    this.claims = new ProxiedClaims({}, SESSION_MS, eventLog, { ...resolveLimits(), ...limits });
  }

  openSession(): Session {
    const session = new Session({ session: randomId(), label: "", pid: null, pidStart: null }, true, 0);
    session.principal = ANONYMOUS;
    session.connect({
      pushAnswer: () => undefined,
      pushRecheck: (id) => void this.rechecked.push(id),
      pushRecalled: () => undefined,
      pushDisconnected: () => undefined,
      fail: () => undefined,
    });
    return session;
  }

  /** A claim of this session, with the last answer of the store. */
  add(session: Session | null, answer: Answer | null = HELD, claim: Claim = makeClaim("k")): ProxiedClaim {
    const proxied = this.claims.add(claim, "", 0);
    if (session !== null) {
      this.claims.assignOwner(session, proxied, 0);
      proxied.creator = session;
    }
    if (answer !== null) this.claims.applyAnswer(proxied, answer, 0);
    return proxied;
  }
}

test("a claim is found by its id and by its session until it is forgotten", () => {
  const fixture = new Fixture();
  const session = fixture.openSession();
  const [first, second] = [fixture.add(session), fixture.add(session)];
  expect([fixture.claims.size, fixture.claims.get(first.claim.id), [...fixture.claims.all()]]).toEqual([
    2,
    first,
    [first, second],
  ]);
  expect(fixture.claims.ofSession(session)).toEqual([first, second]);
  fixture.claims.forget(first, "released", 0);
  fixture.claims.forget(first, "released", 0);
  expect([fixture.claims.size, fixture.claims.ofSession(session), fixture.events]).toEqual([
    1,
    [second],
    ["granted", "granted", "released"],
  ]);
  fixture.claims.forget(second, "expired", 0);
  expect([fixture.claims.ofSession(session), fixture.claims.size]).toEqual([[], 0]);
});

test("answers change the state once; each change is an event, and the end is recorded only of what had an entry", () => {
  const fixture = new Fixture();
  const proxied = fixture.add(fixture.openSession(), WAITING);
  for (const answer of [WAITING, HELD, HELD, WAITING]) fixture.claims.applyAnswer(proxied, answer, 100);
  expect(proxied).toMatchObject({ state: "held", heldAt: 100, token: 5, expiresAt: 30_000 });
  fixture.claims.applyAnswer(proxied, { state: "none", reason: "released" }, 200);
  fixture.claims.applyAnswer(proxied, HELD, 300);
  const unplaced = fixture.add(fixture.openSession(), { state: "none" });
  expect(unplaced.state).toBe("forgotten");
  const expiredClaim = fixture.add(fixture.openSession());
  fixture.claims.applyAnswer(expiredClaim, { state: "none", reason: "expired" }, 200);
  expect(fixture.events).toEqual(["waiting", "granted", "released", "granted", "expired"]);
});

test("a token is a number where that is exact; 0n and larger ones stay as they are", () => {
  const fixture = new Fixture();
  const tokens = [7n, 0n, 2n ** 60n].map((token) => fixture.add(null, { ...HELD, token } as Answer).token);
  expect(tokens).toEqual([7, 0n, 2n ** 60n]);
});

test("a revoked claim keeps its entry until its client releases it", () => {
  const fixture = new Fixture();
  const revokedClaim = fixture.add(fixture.openSession());
  for (let count = 0; count < 2; count++) {
    fixture.claims.applyAnswer(revokedClaim, { state: "none", reason: "revoked" }, 0);
  }
  const survivingClaim = fixture.add(fixture.openSession());
  fixture.claims.applyAnswer(survivingClaim, { state: "none", reason: "maxHold" }, 0);
  expect([revokedClaim.isRevoked, survivingClaim.isRevoked, fixture.claims.size]).toEqual([true, true, 2]);
  expect(fixture.events).toEqual(["granted", "revoked", "granted", "maxHoldExceeded"]);
});

test("a session that attaches becomes the owner; a detached claim has none, and its new owner no part in the old one", () => {
  const fixture = new Fixture();
  const [creator, other] = [fixture.openSession(), fixture.openSession()];
  const proxied = fixture.add(creator);
  fixture.claims.assignOwner(other, proxied, 0);
  expect([proxied.session, proxied.previousOwner]).toEqual([other, creator]);
  expect([fixture.claims.ofSession(creator), fixture.claims.ofSession(other)]).toEqual([[], [proxied]]);
  fixture.claims.clearOwner(proxied);
  fixture.claims.clearOwner(proxied);
  fixture.claims.assignOwner(creator, proxied, 0);
  expect([proxied.session, proxied.previousOwner]).toEqual([null, creator]);
  const waiting = fixture.add(null, WAITING);
  fixture.claims.assignOwner(other, waiting, 0);
  expect(waiting).toMatchObject({ session: other, previousOwner: null });
});

test("when another client has released or ended a lock, its previous owner is told to check it", () => {
  const fixture = new Fixture();
  const [owner, other] = [fixture.openSession(), fixture.openSession()];
  const releasedClaim = fixture.add(owner);
  fixture.claims.recordRelease(releasedClaim, other, 0);
  fixture.claims.forget(releasedClaim, "released", 0);
  const ownClaim = fixture.add(owner);
  fixture.claims.recordRelease(ownClaim, owner, 0);
  fixture.claims.forget(ownClaim, "released", 0);
  const withdrawn = fixture.add(null, WAITING);
  fixture.claims.recordRelease(withdrawn, other, 0);
  expect(fixture.rechecked).toEqual([releasedClaim.claim.id]);
  expect(fixture.events).toEqual(["granted", "released", "granted", "released", "waiting", "withdrawn"]);
});

test.for<[scope: EndScope, ending: readonly string[]]>([
  ["all", ["held", "held session", "waiting"]],
  ["waiting", ["waiting"]],
  ["session", ["held session"]],
])("the end of a session, scope %s, ends %s", ([scope, ending]) => {
  const fixture = new Fixture();
  const session = fixture.openSession();
  const named = {
    held: fixture.add(session),
    "held session": fixture.add(session, HELD, makeClaim("k", { ttlMs: "session" })),
    waiting: fixture.add(session, WAITING),
  };
  const expected = Object.entries(named).filter(([name]) => ending.includes(name));
  expect(fixture.claims.findEnding(session, scope, 0)).toEqual(expected.map(([, proxied]) => proxied));
});

test("of the claims that a session attached to, those end whose creator has ended; the others go back to it", () => {
  const fixture = new Fixture();
  const [session, living, endedSession] = [fixture.openSession(), fixture.openSession(), fixture.openSession()];
  endedSession.end();
  const attach = (creator: Session | null, answer: Answer = HELD): ProxiedClaim => {
    const proxied = fixture.add(creator, null);
    fixture.claims.assignOwner(session, proxied, 0);
    fixture.claims.applyAnswer(proxied, answer, 0);
    return proxied;
  };
  const [livingClaim, endedClaim, foreign, foreignWaiter] = [
    attach(living),
    attach(endedSession),
    attach(null),
    attach(null, WAITING),
  ];
  expect(fixture.claims.findEnding(session, "all", 0)).toEqual([endedClaim, foreignWaiter]);
  expect([livingClaim?.session, foreign?.session]).toEqual([living, null]);
});

test("a revocation finds claims by any token of their range; one at once also forgets them", () => {
  const fixture = new Fixture();
  const [first, second] = ["a", "b"].map((key) =>
    fixture.add(fixture.openSession(), HELD, makeClaim(key, { tokenCount: 3 })),
  );
  fixture.add(null, WAITING, makeClaim("a"));
  const revoke = (key: string, token: bigint, now = false) => ({ key, token, now, reason: "" });
  const targets = [revoke("a", 7n), revoke("a", 8n), revoke("b", 4n), revoke("b", 5n, true), revoke("c", 5n)];
  const revocations = fixture.claims.applyRevocations(targets, 0);
  expect([...revocations]).toEqual([targets[0], targets[3]]);
  expect([first?.isRevoked, second?.state]).toEqual([true, "forgotten"]);
  expect(fixture.events.slice(-2)).toEqual(["revoked", "removed"]);
});

test("a renewed claim that the store never confirmed is dropped, unless a call for it is pending", () => {
  const fixture = new Fixture();
  const [unconfirmed, pending, held] = [fixture.add(null, null), fixture.add(null, null), fixture.add(null)];
  pending.unansweredCalls = 1;
  fixture.claims.dropUnconfirmed([unconfirmed, pending, held], 0);
  expect([unconfirmed, pending, held].map(({ state }) => state)).toEqual(["forgotten", "asked", "held"]);
  expect(fixture.events).toEqual(["granted"]);
});

test("a full server refuses new claims, after it has looked for those that the store must have forgotten", () => {
  const fixture = new Fixture({ claims: 2 });
  const session = fixture.openSession();
  const knownClaim = fixture.add(session);
  fixture.add(session, HELD, makeClaim("s", { ttlMs: "session" }));
  const check = (claim: Claim, now: number): void => fixture.claims.checkQuotas(claim, session, now);
  check(knownClaim.claim, 0);
  expect(() => check(makeClaim("x"), 0)).toThrow("at most 2 claims on this server");
  expect(() => check(makeClaim("x"), 500)).toThrow("at most 2 claims on this server");
  // twice its lease after the last answer it must be gone; a claim of a session has no end of its own
  check(makeClaim("x"), 60_001);
  expect([knownClaim.state, fixture.claims.size, fixture.events.at(-1)]).toEqual(["forgotten", 1, "expired"]);
});

test("claims of one client are counted, too", () => {
  const fixture = new Fixture({ claimsPerAccount: 1 });
  const session = fixture.openSession();
  fixture.claims.checkQuotas(makeClaim("a"), session, 0);
  fixture.add(session);
  expect(() => fixture.claims.checkQuotas(makeClaim("b"), session, 0)).toThrow("at most 1 claims of one client");
});

test("a thousand claims are searched for forgotten ones, and then only twice as many", () => {
  const fixture = new Fixture();
  for (let count = 0; count < 999; count++) fixture.add(null);
  fixture.claims.add(makeClaim("k"), "", 100_000);
  expect(fixture.claims.size).toBe(0);
});

test("without an event log nothing is recorded", () => {
  const claims = new ProxiedClaims({}, SESSION_MS, undefined, resolveLimits());
  const proxied = claims.add(makeClaim("k"), "", 0);
  claims.applyAnswer(proxied, WAITING, 0);
  claims.applyAnswer(proxied, HELD, 0);
  claims.markRevoked(proxied, "revoked", 0);
  claims.forget(proxied, "released", 0);
  expect(claims.size).toBe(0);
});

test("the store may restore a claim until the end of its lease, counted from the call, and not once it is being released or was revoked", () => {
  const fixture = new Fixture();
  const session = fixture.openSession();
  const add = (answer: Answer = HELD): ProxiedClaim => {
    const proxied = fixture.add(session, answer, makeClaim("k", { ttlMs: 20_000 }));
    fixture.claims.extendBelief(proxied, answer, 1_000);
    return proxied;
  };
  const heldTokens = ({ claim }: ProxiedClaim, time = 18_999) => fixture.claims.heldTokens(claim.id, time);
  const [held, waiting, released, revoked] = [add(), add(WAITING), add(), add()];
  expect(heldTokens(held)).toEqual({ token: 5n, tokenCount: 3 });
  expect(heldTokens(held, 19_000)).toBeNull();
  expect(heldTokens(waiting)).toBeNull();
  fixture.claims.applyAnswer(waiting, HELD, 0);
  expect(heldTokens(waiting)).toEqual({ token: 5n, tokenCount: 3 });
  fixture.claims.recordRelease(released, session, 0);
  fixture.claims.markRevoked(revoked, "revoked", 0);
  for (const proxied of [released, revoked]) expect(heldTokens(proxied)).toBeNull();
});

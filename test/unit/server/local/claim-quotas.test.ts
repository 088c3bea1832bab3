// What is full refuses new claims only; a claim that the table has, or that is granted at once where that is enough, stays.

import { expect, test } from "vitest";
import type { Principal } from "../../../../src/auth/access-control.ts";
import { ANONYMOUS } from "../../../../src/auth/access-control.ts";
import type { ClaimRecord } from "../../../../src/lock-table/key-queue.ts";
import { LockTable } from "../../../../src/lock-table/table.ts";
import type { ClaimLimits } from "../../../../src/server/limits.ts";
import { ClaimQuotas } from "../../../../src/server/local/claim-quotas.ts";
import { Session } from "../../../../src/server/session/session.ts";
import type { Claim } from "../../../../src/spi/driver.ts";
import { randomId } from "../../../../src/util/ids.ts";
import { makeClaim } from "../../../support/server-fixture.ts";

const WIDE: ClaimLimits = {
  claims: 100,
  claimsPerAccount: 100,
  waitersPerKey: 100,
};

class Fixture {
  readonly quotas: ClaimQuotas;
  readonly table = new LockTable<Session>();
  readonly session = new Session({ session: randomId(), label: "", pid: null, pidStart: null }, true, 0);

  constructor(limits: Partial<ClaimLimits> = {}, formerLimits?: Partial<ClaimLimits>, maxWaiters = 100) {
    const former = formerLimits && { ...WIDE, ...formerLimits };
    this.quotas = new ClaimQuotas({ ...WIDE, ...limits }, former, maxWaiters);
  }

  /** Places the claim as the local backend does; throws if a quota refuses it. */
  place(claim: Claim): ClaimRecord<Session> | null {
    const { table, quotas, session } = this;
    const isNew = !table.records.has(claim.id);
    quotas.check(table, session, claim);
    const record = table.enqueue(claim, { owner: null }, { now: 0, micros: 0 });
    if (isNew && record !== null) quotas.add(session.principal.name, claim);
    return record;
  }

  release(claim: Claim): void {
    this.table.release(claim.id, { now: 0, micros: 0 });
    this.quotas.remove(this.session.principal.name, claim);
  }
}

test("claims on the server: each key counts; a full server renews what it has, and an end makes room", () => {
  const fixture = new Fixture({ claims: 3 });
  const claim = makeClaim(["a", "b"]);
  fixture.place(claim);
  expect(() => fixture.place(makeClaim(["c", "d"]))).toThrow(
    "at most 3 claims on this server, counting each of its 2 keys",
  );
  fixture.place(makeClaim("c"));
  expect(() => fixture.place(makeClaim("d"))).toThrow(/^at most 3 claims on this server$/);
  fixture.place(claim);
  fixture.release(claim);
  fixture.place(makeClaim(["a", "b"]));
});

test("claims of one client, on a server without accounts: one more than an account may have is refused", () => {
  const fixture = new Fixture({ claimsPerAccount: 1 });
  const record = fixture.place(makeClaim("a")) as ClaimRecord<Session>;
  fixture.session.records.push(record);
  expect(() => fixture.place(makeClaim("b"))).toThrow("at most 1 claims of one client");
  fixture.session.records.remove(record);
});

test("claims of one account: each key counts, over all its clients", () => {
  const fixture = new Fixture({ claimsPerAccount: 3 });
  fixture.session.principal = { ...ANONYMOUS, name: "ana" } as Principal;
  const [first, second] = [makeClaim(["a", "b"]), makeClaim("c")];
  fixture.place(first);
  fixture.place(second);
  expect(() => fixture.place(makeClaim("d"))).toThrow(/at most 3 claims of one account$/);
  fixture.release(second);
  fixture.place(makeClaim("d"));
  fixture.release(first);
  fixture.place(makeClaim("e"));
});

test("an account that has released everything is forgotten, and one that never placed a claim loses nothing", () => {
  const { quotas, session } = new Fixture({ claimsPerAccount: 1 });
  session.principal = { ...ANONYMOUS, name: "ana" } as Principal;
  const claim = makeClaim("a");
  quotas.add("ana", claim);
  expect(quotas.exceededCount(claim, session)).toBe("1 claims of one account");
  quotas.remove("ana", claim);
  quotas.remove("bob", claim);
  expect(quotas.exceededCount(claim, session)).toBeNull();
});

test("the queue of a key: a claim that does not wait needs room only if it would be granted", () => {
  const fixture = new Fixture({ waitersPerKey: 2 });
  const sharedSpec = { key: "k", permits: 1, limit: 10 };
  for (let count = 0; count < 2; count++) fixture.place(makeClaim([sharedSpec]));
  expect(() => fixture.place(makeClaim([sharedSpec]))).toThrow("at most 2 entries in the queue of a key");
  expect(() => fixture.place(makeClaim([sharedSpec], { wait: false }))).toThrow(
    "at most 2 entries in the queue of a key",
  );
  expect(fixture.place(makeClaim("k", { wait: false }))).toBeNull();
  fixture.place(makeClaim("other"));
});

test("waiting claims: holders do not count, whether they were granted at once, later, or reclaimed", () => {
  const fixture = new Fixture({}, undefined, 1);
  const [holder, waiter] = [makeClaim("k"), makeClaim("k")];
  fixture.place(holder);
  fixture.place(waiter);
  expect(() => fixture.place(makeClaim("k"))).toThrow("at most 1 waiting claims on this server");
  fixture.release(holder);
  fixture.place(makeClaim("k"));
  fixture.table.reclaim(makeClaim("r"), { owner: null }, { token: 5, tokenCount: 1, remainingMs: 1_000 });
  expect(() => fixture.place(makeClaim("k"))).toThrow("at most 1 waiting claims on this server");
});

test("of all claims a hundred thousand may wait; others are granted then, too", () => {
  const many = 1_000_000;
  const quotas = new ClaimQuotas({ claims: many, claimsPerAccount: many, waitersPerKey: many });
  const { table, session } = new Fixture();
  let waitingCount = 99_999;
  Object.defineProperty(table, "waitingCount", { get: () => waitingCount });
  quotas.add("", makeClaim(Array.from({ length: 100_000 }, (_, n) => `k${n}`)));
  quotas.check(table, session, makeClaim("k"));
  waitingCount++;
  expect(() => quotas.check(table, session, makeClaim("k"))).toThrow("at most 100000 waiting claims on this server");
  quotas.check(table, session, makeClaim("k", { wait: false }));
});

test("a holder that reclaims has twice the room of a waiting claim, under the wider ones of the old and the new limits", () => {
  const fixture = new Fixture({ waitersPerKey: 1 }, { waitersPerKey: 2, claims: 6 });
  const { quotas, table, session } = fixture;
  const sharedSpec = { key: "k", permits: 1, limit: 10 };
  const exceeded = (isHeld: boolean): string | null =>
    quotas.exceededOnReclaim(table, session, makeClaim([sharedSpec]), isHeld);
  const add = (claim: Claim): void => {
    table.enqueue(claim, { owner: null }, { now: 0, micros: 0 });
    quotas.add("", claim);
  };
  expect([exceeded(true), exceeded(false)]).toEqual([null, null]);
  for (let count = 0; count < 2; count++) add(makeClaim([sharedSpec]));
  expect([exceeded(true), exceeded(false)]).toEqual([null, "1 entries in the queue of a key"]);
  for (let count = 0; count < 2; count++) add(makeClaim([sharedSpec]));
  expect(exceeded(true)).toBe("1 entries in the queue of a key");
});

test("reclaimed waiting claims: no more than the server has room for; what is in the table is never refused", () => {
  const fixture = new Fixture({}, undefined, 1);
  const { quotas, table, session } = fixture;
  const waiter = makeClaim("k");
  fixture.place(makeClaim("k"));
  fixture.place(waiter);
  expect(quotas.exceededOnReclaim(table, session, makeClaim("x"), false)).toBe("1 waiting claims on this server");
  expect(quotas.exceededOnReclaim(table, session, makeClaim("x"), true)).toBeNull();
  expect(quotas.exceededOnReclaim(table, session, waiter, false)).toBeNull();
});

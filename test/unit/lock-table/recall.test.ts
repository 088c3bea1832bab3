import { describe, expect, test } from "vitest";
import type { Answer, Claim, LockSpec } from "../../../src/spi/driver.ts";
import { findTableViolations } from "../../support/stores/table-inspector.ts";
import { lockSpec, SECOND_MS, TableFixture } from "./table-fixture.ts";

/** A table in which "holder" holds the keys and asked to be recalled. */
function createFixture(keys: string | readonly LockSpec[] = "k", change: Partial<Claim> = {}): TableFixture {
  const fixture = new TableFixture();
  fixture.claimState("holder", keys, { recall: true, ...change });
  return fixture;
}

function recheckMs(answer: Answer): number {
  return answer.state === "waiting" ? answer.recheckMs : Number.NaN;
}

describe("the holders of a queue are recalled", () => {
  test("when a claim begins to wait behind them, and not for each further one", () => {
    const fixture = createFixture();
    expect(fixture.takeRecalled()).toEqual([]);
    fixture.claimState("first", "k");
    expect(fixture.takeRecalled()).toEqual(["holder"]);
    fixture.claimState("second", "k");
    fixture.claimState("third", "k");
    expect(fixture.takeRecalled()).toEqual([]);
  });

  test("again when the queue was empty meanwhile", () => {
    const fixture = createFixture();
    for (let round = 0; round < 3; round++) {
      fixture.claimState(`w${round}`, "k");
      expect(fixture.takeRecalled()).toEqual(["holder"]);
      fixture.release(`w${round}`);
    }
  });

  test("again when the waiter at the front is renewed or claimed again, not for those behind it", () => {
    const fixture = createFixture();
    fixture.claimState("first", "k");
    fixture.claimState("second", "k");
    fixture.takeRecalled();
    fixture.renew("first");
    expect(fixture.takeRecalled()).toEqual(["holder"]);
    fixture.claimState("first", "k");
    expect(fixture.takeRecalled()).toEqual(["holder"]);
    fixture.renew("second");
    fixture.renew("holder");
    expect(fixture.takeRecalled()).toEqual([]);
  });

  test("if they asked for it: others get no push, no flag and no early recheck of their waiters", () => {
    const fixture = createFixture("k", { recall: false });
    const answer = fixture.claim({ ...claimOf("first"), ttlMs: 60 * SECOND_MS });
    expect(recheckMs(answer)).toBe(30 * SECOND_MS);
    fixture.renew("first");
    expect(fixture.takeRecalled()).toEqual([]);
    expect(fixture.isRecalled("holder")).toBe(false);
  });

  test("unless they are detached or revoked", () => {
    const detached = createFixture();
    detached.detach("holder");
    detached.claimState("first", "k");
    expect(detached.takeRecalled()).toEqual([]);
    expect(detached.isRecalled("holder")).toBe(false);
    const revoked = createFixture();
    revoked.revoke("k", revoked.token("holder"));
    revoked.claimState("first", "k");
    expect(revoked.takeRecalled()).toEqual([]);
  });

  test("each of several readers, when a writer comes", () => {
    const fixture = new TableFixture();
    for (const id of ["r1", "r2", "r3"]) fixture.claimState(id, [lockSpec("k", 1)], { recall: id !== "r2" });
    fixture.claimState("writer", "k");
    expect(fixture.takeRecalled()).toEqual(["r1", "r3"]);
    expect(findTableViolations(fixture.table)).toEqual([]);
  });

  test("by a waiter that is back from its suspension", () => {
    const fixture = createFixture();
    fixture.claimState("first", "k");
    fixture.table.suspendWaiter("first");
    fixture.takeRecalled();
    fixture.renew("first");
    expect(fixture.takeRecalled(), "it is in no queue").toEqual([]);
    expect(fixture.isRecalled("holder")).toBe(false);
    fixture.table.resumeWaiter("first");
    expect(fixture.takeRecalled()).toEqual(["holder"]);
  });
});

describe("the answers of a held claim say that it is recalled", () => {
  test("as long as another one waits", () => {
    const fixture = createFixture();
    expect(fixture.isRecalled("holder")).toBe(false);
    fixture.claimState("first", "k");
    expect(fixture.isRecalled("holder")).toBe(true);
    fixture.release("first");
    expect(fixture.isRecalled("holder")).toBe(false);
  });

  test("from the push of its grant on, when others wait behind it", () => {
    const fixture = createFixture();
    fixture.claimState("first", "k", { recall: true });
    fixture.claimState("second", "k");
    fixture.table.release("holder", { now: fixture.now, micros: fixture.wallMicros });
    const [grant] = fixture.table.drainNotifications().filter(({ id }) => id === "first");
    expect(grant?.answer).toMatchObject({ state: "held", recalled: true });
    fixture.release("second");
    expect(fixture.isRecalled("first")).toBe(false);
  });

  test("for a claim of several keys when one of them is wanted, and not while it is on its way through them", () => {
    const fixture = createFixture("b", { recall: false });
    fixture.claimState("both", "a b", { recall: true });
    fixture.claimState("waiter", "a");
    fixture.renew("waiter");
    expect(fixture.takeRecalled(), "it has nothing to give back").toEqual([]);
    fixture.release("holder");
    expect(fixture.granted).toEqual(["both"]);
    expect(fixture.isRecalled("both")).toBe(true);
    expect(findTableViolations(fixture.table)).toEqual([]);
  });

  test("in no list", () => {
    const fixture = createFixture();
    fixture.claimState("first", "k");
    expect(fixture.renew("holder")).toHaveProperty("recalled", true);
    expect(fixture.listFirst().answer).not.toHaveProperty("recalled");
    expect(fixture.listFirst()).not.toHaveProperty("recall");
  });
});

test("the waiter at the front asks again soon, then at intervals of its age, and never later than without a recall", () => {
  const fixture = createFixture();
  expect(recheckMs(fixture.claim(claimOf("first")))).toBe(200);
  expect(recheckMs(fixture.claim(claimOf("second"))), "only the front").toBe(30 * SECOND_MS);
  const intervals = [200, 200, 400, 800, 1_600].map((ms) => {
    fixture.advance(ms);
    return recheckMs(fixture.renew("first"));
  });
  expect(intervals).toEqual([200, 400, 800, 1_600, 3_200]);
  fixture.advance(24 * SECOND_MS);
  expect(recheckMs(fixture.renew("first")), "when the holder's lease ends").toBe(2_800);
});

describe("a claim whose maxHold is half over", () => {
  function recall(fixture: TableFixture): readonly string[] {
    const record = fixture.table.records.get("holder");
    if (record === undefined) throw new Error("the claim is in the table");
    fixture.table.recall(record);
    return fixture.takeRecalled();
  }

  test("is recalled, and its answers say so", () => {
    const fixture = createFixture();
    expect(recall(fixture)).toEqual(["holder"]);
    expect(fixture.isRecalled("holder")).toBe(true);
  });

  test("is not recalled if it did not ask, was revoked or is detached", () => {
    const silent = createFixture("k", { recall: false });
    expect(recall(silent)).toEqual([]);
    expect(silent.isRecalled("holder")).toBe(false);
    const revoked = createFixture();
    revoked.revoke("k", revoked.token("holder"));
    expect(recall(revoked)).toEqual([]);
    const detached = createFixture();
    detached.detach("holder");
    expect(recall(detached)).toEqual([]);
  });
});

describe("a renewal lengthens the token range", () => {
  test("of a held claim, and later tokens lie above it", () => {
    const fixture = createFixture("a b", { tokenCount: 2 });
    const token = fixture.token("holder");
    expect(fixture.renew("holder", "owner", 10)).toMatchObject({ token: BigInt(token), tokenCount: 10 });
    expect(fixture.renew("holder", "owner", 5), "it never becomes shorter").toMatchObject({ tokenCount: 10 });
    expect(fixture.revoke("a", token + 9)).toBe(true);
    fixture.release("holder");
    fixture.claimState("next", "b");
    expect(fixture.token("next")).toBe(token + 10);
  });

  test("not if a later token was issued on one of its keys", () => {
    const fixture = new TableFixture();
    fixture.claimState("r1", [lockSpec("k", 1)]);
    fixture.claimState("r2", [lockSpec("k", 1)]);
    expect(fixture.renew("r1", "owner", 10)).toMatchObject({ tokenCount: 1 });
    expect(fixture.renew("r2", "owner", 10)).toMatchObject({ tokenCount: 10 });
  });

  test("not beyond the ceiling", () => {
    const fixture = createFixture();
    fixture.table.raiseTokenCeiling(fixture.token("holder") + 4);
    expect(fixture.renew("holder", "owner", 10)).toMatchObject({ tokenCount: 4 });
    expect(fixture.renew("holder", "owner", 20)).toMatchObject({ tokenCount: 4 });
  });

  test("not of a claim that waits or was revoked", () => {
    const fixture = createFixture();
    fixture.claimState("waiter", "k");
    expect(fixture.renew("waiter", "owner", 10)).toMatchObject({ state: "waiting" });
    fixture.revoke("k", fixture.token("holder"));
    expect(fixture.renew("holder", "owner", 10)).toEqual({ state: "none", reason: "revoked" });
    fixture.release("holder");
    expect(fixture.renew("waiter")).toMatchObject({ state: "held", tokenCount: 1 });
  });
});

function claimOf(id: string): Claim {
  return { id, locks: [lockSpec("k")], ttlMs: 30 * SECOND_MS, tokenCount: 1, floor: 0n, wait: true, label: "test" };
}

import { expect, test } from "vitest";
import { LockTable } from "../../../src/lock-table/table.ts";
import { TokenIssuer } from "../../../src/lock-table/token-issuer.ts";
import { lockSpec, makeClaim, SECOND_MS, TableFixture, TTL_MS } from "./table-fixture.ts";

test("a token is the clock in microseconds unless a higher one is required", () => {
  const fixture = new TableFixture();
  fixture.advance(5);
  fixture.claimState("a", "k");
  expect(fixture.token("a")).toBe(fixture.wallMicros);
});

test("the next token lies above the complete range before it, even while the clock stands still or goes back", () => {
  const fixture = new TableFixture();
  fixture.claimState("a", "k", { tokenCount: 64 });
  fixture.release("a");
  fixture.claimState("b", "k");
  expect(fixture.token("b")).toBe(fixture.token("a") + 64);
  fixture.release("b");
  fixture.wallMicros -= 3_600_000_000;
  fixture.claimState("c", "k");
  expect(fixture.token("c")).toBe(fixture.token("b") + 1);
  // the tokens of a key that was forgotten meanwhile rise too
  fixture.claimState("d", "fresh");
  expect(fixture.token("d")).toBeGreaterThanOrEqual(fixture.token("a"));
});

test("a token is never below the floor of its client", () => {
  const fixture = new TableFixture();
  const floor = BigInt(fixture.wallMicros) + 1_000_000n;
  fixture.claimState("a", "k", { floor });
  expect(fixture.token("a")).toBe(Number(floor));
  fixture.release("a");
  fixture.claimState("b", "k");
  expect(fixture.token("b")).toBe(Number(floor) + 1);
});

test("a floor more than a day ahead of the clock cannot be reached, except one above the last token", () => {
  const tokenIssuer = new TokenIssuer(Number.POSITIVE_INFINITY);
  const day = 86_400_000_000;
  expect(tokenIssuer.acceptsFloor(0, 0n, 0)).toBe(true);
  expect(tokenIssuer.acceptsFloor(0, BigInt(day), 0)).toBe(true);
  expect(tokenIssuer.acceptsFloor(0, BigInt(day + 1), 0)).toBe(false);
  tokenIssuer.advance(1);
  expect(tokenIssuer.acceptsFloor(0, BigInt(day + 1), 0)).toBe(true);
  expect(tokenIssuer.acceptsFloor(5 * day, BigInt(5 * day + 1), 0)).toBe(true);
  expect(tokenIssuer.acceptsFloor(5 * day, BigInt(5 * day + 2), 0)).toBe(false);
});

test("the last tokens of all keys of a claim count for its floor", () => {
  const fixture = new TableFixture();
  const day = 86_400_000_000;
  const ahead = BigInt(fixture.wallMicros + day);
  fixture.claimState("a", "k", { floor: ahead, tokenCount: 10 });
  const claim = makeClaim("b", "j k", { floor: ahead + 10n });
  expect(fixture.table.acceptsFloor(claim, claim.floor, fixture.wallMicros)).toBe(true);
  expect(fixture.table.acceptsFloor(claim, claim.floor + 1n, fixture.wallMicros)).toBe(false);
});

test("an idle key needs no memory once the clock has passed its last token", () => {
  const fixture = new TableFixture();
  const { queues } = fixture.table;
  fixture.claimState("a", "k", { tokenCount: 64 });
  fixture.release("a");
  expect(queues.size).toBe(1);
  fixture.wallMicros += 63;
  fixture.advance(0);
  expect(queues.size).toBe(1);
  fixture.wallMicros += 1;
  fixture.advance(0);
  expect(queues.size).toBe(0);
  fixture.advance(1).claimState("b", "k");
  fixture.advance(1).release("b");
  expect(queues.size).toBe(0);
});

test("a key in use is not forgotten when the clock passes an earlier token", () => {
  const fixture = new TableFixture();
  fixture.claimState("a", "k", { tokenCount: 64 });
  fixture.release("a");
  fixture.claimState("b", "k", { tokenCount: 64 });
  fixture.advance(SECOND_MS);
  expect(fixture.claimState("c", "k")).toBe("waiting");
  fixture.release("b");
  expect(fixture.granted).toEqual(["c"]);
  fixture.advance(SECOND_MS).release("c");
  expect(fixture.table.queues.size).toBe(0);
});

test("a million grants of a key whose tokens run ahead of the clock leave one record", () => {
  const fixture = new TableFixture();
  for (let turn = 0; turn < 1_000; turn++) {
    fixture.claimState(`a${turn}`, "k", { tokenCount: 64 });
    fixture.release(`a${turn}`);
  }
  expect(fixture.table.hasIdleQueues).toBe(true);
  fixture.advance(64);
  expect([fixture.table.hasIdleQueues, fixture.table.queues.size]).toEqual([false, 0]);
});

test("no token reaches the ceiling; a claim that needs a higher one waits until it is raised", () => {
  const fixture = new TableFixture(new LockTable({ tokenCeiling: 1_577_836_800_000_000 + 1_000 }));
  fixture.claimState("a", "k", { tokenCount: 1_000 });
  expect(fixture.token("a") + 999).toBeLessThan(fixture.table.tokenIssuer.ceiling);
  fixture.release("a");
  expect(fixture.claimState("b", "k", { tokenCount: 1 })).toBe("waiting");
  expect(fixture.claimState("once", "k2", { wait: false, tokenCount: 1_001 })).toBe("none");
  expect(fixture.claimState("c", [lockSpec("k2")], { tokenCount: 2_000 })).toBe("waiting");
  expect(fixture.claimState("gone", "k3", { tokenCount: 1_001 })).toBe("waiting");
  fixture.release("gone");
  expect(fixture.table.requiredTokenCeiling).toBe(fixture.wallMicros + 2_000);
  fixture.table.raiseTokenCeiling(fixture.wallMicros + 1_500);
  expect(fixture.collectGrants()).toEqual(["b"]);
  expect(fixture.token("b")).toBe(fixture.token("a") + 1_000);
  fixture.table.raiseTokenCeiling(fixture.wallMicros + 5_000);
  expect(fixture.collectGrants()).toEqual(["c"]);
  expect(fixture.table.requiredTokenCeiling).toBe(0);
});

test("a claim that waits for the ceiling keeps its entry, and ends with its lease", () => {
  const fixture = new TableFixture(new LockTable({ tokenCeiling: 0 }));
  expect(fixture.claimState("a", "k")).toBe("waiting");
  expect(fixture.claimState("b", "k", { ttlMs: 60 * SECOND_MS })).toBe("waiting");
  fixture.advance(30 * SECOND_MS);
  fixture.table.raiseTokenCeiling(Number.POSITIVE_INFINITY);
  expect(fixture.collectGrants()).toEqual(["b"]);
});

test("the tokens of several keys advance together, and never go back", () => {
  const fixture = new TableFixture();
  const { table } = fixture;
  fixture.wallMicros = 100;
  fixture.claim(makeClaim("a", "a b", { tokenCount: 10 }));
  expect(fixture.token("a")).toBe(100);
  expect(table.queues.get("a")?.lastToken).toBe(109);
  expect(
    table.reclaim(makeClaim("lost", "a b"), { owner: "owner" }, { token: 50, tokenCount: 1, remainingMs: TTL_MS }),
  ).toBe(false);
  expect(table.queues.get("b")?.lastToken).toBe(109);
  expect(table.nextToken(makeClaim("b", "b"))).toBe(110);
  expect(table.nextToken(makeClaim("c", "c"))).toBe(100);
});

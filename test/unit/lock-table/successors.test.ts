import { expect, test } from "vitest";
import { withoutSuccessors } from "../../../src/lock-table/successors.ts";
import { LockTable } from "../../../src/lock-table/table.ts";
import type { Answer, Claim } from "../../../src/spi/driver.ts";
import { lockSpec, makeClaim, TTL_MS } from "./table-fixture.ts";

const START_MICROS = 1_577_836_800_000_000;
const STRICT = { successors: true } as const;

/** Releases the holder, so that the claim "a" is granted, and returns the answer that is pushed to the owner of "a". */
function grantA(table: LockTable, behind: readonly (readonly [claim: Claim, owner: unknown])[]): Answer {
  table.claim(makeClaim("holder", "k"), { owner: "other" }, { now: 0, micros: START_MICROS });
  table.claim(makeClaim("a", "k", STRICT), { owner: "owner" }, { now: 0, micros: START_MICROS });
  for (const [claim, owner] of behind) table.claim(claim, { owner }, { now: 0, micros: START_MICROS });
  table.drainNotifications();
  table.release("holder", { now: 1, micros: START_MICROS + 1_000 });
  const [notification] = table.drainNotifications();
  expect(notification?.id).toBe("a");
  return notification?.answer as Answer;
}

const strict = (id: string, change: Partial<Claim> = {}): Claim => makeClaim(id, "k", { ...STRICT, ...change });

test("a grant names the claims of its owner directly behind it, up to the first of another one", () => {
  const table = new LockTable();
  const answer = grantA(table, [
    [strict("b"), "owner"],
    [strict("c"), "owner"],
    [strict("x"), "another"],
    [strict("d"), "owner"],
  ]);
  expect(answer).toMatchObject({ state: "held", tokenCount: 3, successors: ["b", "c"] });
  table.release("b", { now: 2, micros: START_MICROS + 2_000 });
  table.release("c", { now: 2, micros: START_MICROS + 2_000 });
  table.release("a", { now: 2, micros: START_MICROS + 2_000 });
  const [next] = table.drainNotifications();
  const first = answer.state === "held" ? answer.token : 0n;
  expect(next).toMatchObject({ id: "x", owner: "another", answer: { state: "held" } });
  expect(typeof next?.answer === "object" && next.answer.state === "held" && next.answer.token).toBeGreaterThan(
    first + 2n,
  );
});

test.each<[string, Claim, unknown]>([
  ["with another ttl", strict("b", { ttlMs: TTL_MS - 1 }), "owner"],
  ["that did not ask", makeClaim("b", "k"), "owner"],
  ["of a reader", makeClaim("b", [lockSpec("k", 1)], STRICT), "owner"],
  ["of all permits of a semaphore", makeClaim("b", [lockSpec("k", 2, 2)], STRICT), "owner"],
  ["of several keys", makeClaim("b", "k l", STRICT), "owner"],
  ["with a floor above its token", strict("b", { floor: BigInt(START_MICROS) + 10_000_000n }), "owner"],
  ["of another owner", strict("b"), "another"],
])("a claim %s is no successor, nor are those behind it", (_, claim, owner) => {
  const answer = grantA(new LockTable(), [
    [claim, owner],
    [strict("c"), "owner"],
  ]);
  expect(answer).toMatchObject({ state: "held", tokenCount: 1 });
  expect(answer).not.toHaveProperty("successors");
});

test("a claim that did not ask gets no names", () => {
  const table = new LockTable();
  table.claim(makeClaim("holder", "k"), { owner: "owner" }, { now: 0, micros: START_MICROS });
  table.claim(makeClaim("a", "k"), { owner: "owner" }, { now: 0, micros: START_MICROS });
  table.claim(strict("b"), { owner: "owner" }, { now: 0, micros: START_MICROS });
  table.release("holder", { now: 1, micros: START_MICROS + 1_000 });
  expect(table.drainNotifications()[0]?.answer).not.toHaveProperty("successors");
});

test("at most 63 are named", () => {
  const behind = Array.from({ length: 80 }, (_, index) => [strict(`s${index}`), "owner"] as const);
  const answer = grantA(new LockTable(), behind);
  expect(answer).toMatchObject({ tokenCount: 64, successors: behind.slice(0, 63).map(([{ id }]) => id) });
});

test("only as many are named as there are tokens below the ceiling", () => {
  const table = new LockTable({ tokenCeiling: START_MICROS + 1_003 });
  const behind = ["b", "c", "d", "e"].map((id) => [strict(id), "owner"] as const);
  const answer = grantA(table, behind);
  expect(answer).toMatchObject({ state: "held" });
  if (answer.state !== "held") return;
  expect(Number(answer.token) + answer.tokenCount).toBeLessThanOrEqual(START_MICROS + 1_003);
  expect(answer.successors ?? []).toHaveLength(answer.tokenCount - 1);
});

test.each<[string, Claim]>([
  ["a reader", makeClaim("a", [lockSpec("k", 1)], STRICT)],
  ["a claim of several keys", makeClaim("a", "k l", STRICT)],
])("%s gets no names, though it asks for them", (_, claim) => {
  const table = new LockTable();
  table.claim(makeClaim("holder", "k"), { owner: "owner" }, { now: 0, micros: START_MICROS });
  table.claim(claim, { owner: "owner" }, { now: 0, micros: START_MICROS });
  table.claim(strict("b"), { owner: "owner" }, { now: 0, micros: START_MICROS });
  table.release("holder", { now: 1, micros: START_MICROS + 1_000 });
  expect(table.drainNotifications()[0]).toMatchObject({ id: "a", answer: { state: "held", tokenCount: 1 } });
});

test("a waiter that was suspended at the grant is passed by, though it gets its earlier place back", () => {
  const table = new LockTable();
  table.claim(makeClaim("holder", "k"), { owner: "owner" }, { now: 0, micros: START_MICROS });
  for (const id of ["a", "x", "b"])
    table.claim(strict(id), { owner: id === "x" ? "another" : "owner" }, { now: 0, micros: START_MICROS });
  table.suspendWaiter("x");
  table.release("holder", { now: 1, micros: START_MICROS + 1_000 });
  expect(table.drainNotifications()[0]).toMatchObject({ id: "a", answer: { successors: ["b"] } });
  table.resumeWaiter("x");
  expect([...(table.queues.get("k")?.entries ?? [])].map(({ record }) => record.claim.id)).toEqual(["a", "x", "b"]);
});

test("a claim without an owner, whose session is gone, has no successors", () => {
  const table = new LockTable();
  table.claim(makeClaim("holder", "k"), { owner: "other" }, { now: 0, micros: START_MICROS });
  for (const id of ["a", "b"]) table.claim(strict(id), { owner: null }, { now: 0, micros: START_MICROS });
  table.release("holder", { now: 1, micros: START_MICROS + 1_000 });
  expect(table.drainNotifications()[0]).toMatchObject({ id: "a", answer: { tokenCount: 1 } });
});

test("a grant without its successors is the same grant", () => {
  const held: Answer = { state: "held", token: 7n, tokenCount: 2, remainingMs: 10 };
  expect(withoutSuccessors({ ...held, successors: ["b"] })).toEqual(held);
  for (const answer of [held, { state: "none" } as const]) expect(withoutSuccessors(answer)).toBe(answer);
});

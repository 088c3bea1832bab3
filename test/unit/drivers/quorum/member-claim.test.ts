import { expect, test } from "vitest";
import { MemberClaim } from "../../../../src/drivers/quorum/member-claim.ts";
import type { Answer } from "../../../../src/spi/driver.ts";

const TTL_MS = 1_000;
const HELD = { state: "held", token: 5n, tokenCount: 1, remainingMs: TTL_MS } as const satisfies Answer;
const WAITING: Answer = { state: "waiting", remainingMs: TTL_MS, recheckMs: 100 };
const NONE = { state: "none" } as const satisfies Answer;

/** A member claim whose calls were answered, each sent at 100 times its number. */
function answered(...answers: readonly Answer[]): MemberClaim {
  const memberClaim = new MemberClaim();
  for (const answer of answers) {
    const call = memberClaim.startCall();
    memberClaim.onAnswer(call, 100 * call, answer, TTL_MS);
  }
  return memberClaim;
}

test("a lease counts from the send of the answered call, and an older answer does not shorten it", () => {
  const memberClaim = answered(WAITING);
  expect(memberClaim.state).toEqual({ kind: "waiting", endsAt: 1_000, recheckMs: 100 });
  expect(memberClaim.onPush(HELD)).toBe(true);
  expect(memberClaim.state).toEqual({ kind: "held", endsAt: 1_000, token: 5n });
  memberClaim.onAnswer(memberClaim.startCall(), 0, HELD, TTL_MS);
  expect([memberClaim.endsAt, memberClaim.isValidVote(999), memberClaim.isValidVote(1_000)]).toEqual([
    1_000,
    true,
    false,
  ]);
});

test("an answer from before a pushed grant does not take it back, a later one does", () => {
  const memberClaim = answered(WAITING);
  const inFlight = memberClaim.startCall();
  memberClaim.onPush(HELD);
  memberClaim.onAnswer(inFlight, 200, WAITING, TTL_MS);
  expect(memberClaim.isVote).toBe(true);
  memberClaim.onAnswer(memberClaim.startCall(), 300, WAITING, TTL_MS);
  expect(memberClaim.state.kind).toBe("waiting");
  expect(memberClaim.isCurrent(inFlight)).toBe(false);
});

test("a grant that is pushed before the first answer counts from that answer on", () => {
  const memberClaim = new MemberClaim();
  const call = memberClaim.startCall();
  expect(memberClaim.onPush(HELD)).toBe(true);
  expect([memberClaim.state, memberClaim.endsAt]).toEqual([{ kind: "unknown", earlyGrant: 5n }, 0]);
  memberClaim.onAnswer(call, 100, WAITING, TTL_MS);
  expect(memberClaim.state).toEqual({ kind: "held", endsAt: 1_000, token: 5n });
});

test("a pushed grant is only a hint if it may be about an earlier entry", () => {
  const twice = new MemberClaim();
  twice.startCall();
  twice.startCall();
  expect(twice.onPush(HELD)).toBe(false);
  const lost = answered(HELD, NONE, WAITING);
  expect([lost.onPush(HELD), lost.state.kind]).toEqual([false, "waiting"]);
  expect([lost.onPush(NONE), lost.state.kind, lost.isAbsent]).toEqual([false, "none", true]);
});

test("a vote that is being released counts for nothing, and answers to earlier calls never count again", () => {
  const memberClaim = answered(HELD);
  const inFlight = memberClaim.startCall();
  memberClaim.startRelease();
  expect([memberClaim.isVote, memberClaim.isAbsent, memberClaim.isCurrent(inFlight)]).toEqual([false, true, false]);
  memberClaim.confirmRelease();
  expect([memberClaim.state.kind, memberClaim.isCurrent(inFlight)]).toEqual(["none", false]);
  memberClaim.onAnswer(memberClaim.startCall(), 300, HELD, TTL_MS);
  memberClaim.confirmRelease();
  expect(memberClaim.isVote).toBe(true);
});

test("a recall lasts until an answer to a later call does not repeat it, or the vote ends", () => {
  const memberClaim = answered(HELD);
  const before = memberClaim.startCall();
  memberClaim.onRecalled();
  memberClaim.onAnswer(before, 200, HELD, TTL_MS);
  expect(memberClaim.isRecalled).toBe(true);
  memberClaim.onAnswer(memberClaim.startCall(), 300, { ...HELD, recalled: true }, TTL_MS);
  expect(memberClaim.isRecalled).toBe(true);
  memberClaim.onAnswer(memberClaim.startCall(), 400, HELD, TTL_MS);
  expect(memberClaim.isRecalled).toBe(false);
  memberClaim.onRecalled();
  memberClaim.onAnswer(memberClaim.startCall(), 500, WAITING, TTL_MS);
  expect(memberClaim.isRecalled).toBe(false);
});

test("after a break of the connection a vote confirms nothing until a call sent since then is answered", () => {
  const memberClaim = answered(HELD);
  const before = memberClaim.startCall();
  memberClaim.onDisconnected();
  expect([memberClaim.isValidVote(0), memberClaim.isConfirmedVote(0)]).toEqual([true, false]);
  memberClaim.onAnswer(before, 200, HELD, TTL_MS);
  expect(memberClaim.isConfirmedVote(0)).toBe(false);
  memberClaim.onAnswer(memberClaim.startCall(), 300, HELD, TTL_MS);
  expect(memberClaim.isConfirmedVote(0)).toBe(true);
});

test("a failed claim call may still arrive", () => {
  const memberClaim = new MemberClaim();
  memberClaim.claimSent();
  expect([memberClaim.isClaimInFlight, memberClaim.hasFailedClaim, memberClaim.mayClaimArrive]).toEqual([
    true,
    false,
    true,
  ]);
  memberClaim.claimSettled(true);
  expect([memberClaim.isClaimInFlight, memberClaim.mayClaimArrive]).toEqual([false, true]);
});

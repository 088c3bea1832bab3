import { expect, test } from "vitest";
import * as calls from "../../../src/claim/state.ts";

const TTL_MS = 30_000;

test("the first claim call is sent now or after a delay", () => {
  const now = calls.firstCall(5);
  expect(now).toMatchObject({ calls: 1, sentAt: 5, isClaimCall: true, failures: 0 });
  expect(calls.nextCallAt(now, TTL_MS, 9_000)).toBe(5 + TTL_MS / 6);
  const later = calls.delayedCall(50);
  expect(later).toMatchObject({ calls: 0, sentAt: null });
  expect(calls.nextCallAt(later, TTL_MS, 9_000)).toBe(50);
});

test("without failures the next call is the regular one", () => {
  expect(calls.nextCallAt(calls.afterReply(calls.firstCall(0), 0), TTL_MS, 9_000)).toBe(9_000);
});

test("each failure lengthens the back-off before the next call, up to a sixth of the ttl or two seconds", () => {
  let callState = calls.afterFailure(calls.firstCall(0), 100, 1, TTL_MS);
  expect(calls.nextCallAt(callState, TTL_MS, 9_000)).toBe(120);
  for (let turn = 0; turn < 20; turn++)
    callState = calls.afterFailure(calls.afterSend(callState, 0, true), 0, 1, TTL_MS);
  expect(callState.retryAt).toBe(2_000);
  expect(calls.afterFailure(callState, 0, 1, 600).retryAt).toBe(100);
});

test("a recheck is not dropped: after a failure the next call is sent at once", () => {
  const callState = calls.afterFailure(calls.askAgain(calls.firstCall(0)), 100, 1, TTL_MS);
  expect(callState.retryAt).toBe(100);
});

test("an unanswered claim call is remembered for good, an unanswered renewal is not", () => {
  expect(calls.leavesClaimUnanswered(calls.firstCall(0))).toBe(true);
  const answered = calls.afterReply(calls.firstCall(0), 0);
  expect(calls.leavesClaimUnanswered(answered)).toBe(false);
  expect(calls.leavesClaimUnanswered(calls.afterSend(answered, 0, false))).toBe(false);
  expect(calls.leavesClaimUnanswered(calls.afterFailure(calls.afterSend(answered, 0, false), 0, 1, TTL_MS))).toBe(
    false,
  );
  const failed = calls.afterFailure(calls.firstCall(0), 0, 1, TTL_MS);
  expect(calls.leavesClaimUnanswered(calls.afterReply(calls.afterSend(failed, 1, true), 0))).toBe(true);
});

import { expect, test } from "vitest";
import * as talking from "../../src/core/talk.ts";

const TTL = 30_000;

test("a conversation opens with a claim sent now, or begins later", () => {
  const now = talking.opened(5);
  expect(now).toMatchObject({ calls: 1, sentAt: 5, asks: true, failures: 0 });
  expect(talking.talksAt(now, TTL, 9_000)).toBe(5 + TTL / 6);
  const later = talking.postponed(50);
  expect(later).toMatchObject({ calls: 0, sentAt: null });
  expect(talking.talksAt(later, TTL, 9_000)).toBe(50);
});

test("when all is well the next call is the regular one", () => {
  expect(talking.talksAt(talking.settled(talking.opened(0)), TTL, 9_000)).toBe(9_000);
});

test("a failure is followed by another call after a back-off, which grows, up to a sixth of the ttl or two seconds", () => {
  let talk = talking.failed(talking.opened(0), 100, 1, TTL);
  expect(talking.talksAt(talk, TTL, 9_000)).toBe(120);
  for (let turn = 0; turn < 20; turn++) talk = talking.failed(talking.sent(talk, 0, true), 0, 1, TTL);
  expect(talk.retryAt).toBe(2_000);
  expect(talking.failed(talk, 0, 1, 600).retryAt).toBe(100);
});

test("a nudge is not dropped: after a failure the next call comes at once", () => {
  const talk = talking.failed(talking.nudged(talking.opened(0)), 100, 1, TTL);
  expect(talk.retryAt).toBe(100);
});

test("a claim call that was not answered is remembered for good, a renewal is not", () => {
  expect(talking.leavesUnanswered(talking.opened(0))).toBe(true);
  const answered = talking.settled(talking.opened(0));
  expect(talking.leavesUnanswered(answered)).toBe(false);
  expect(talking.leavesUnanswered(talking.sent(answered, 0, false))).toBe(false);
  expect(talking.leavesUnanswered(talking.failed(talking.sent(answered, 0, false), 0, 1, TTL))).toBe(false);
  const failed = talking.failed(talking.opened(0), 0, 1, TTL);
  expect(talking.leavesUnanswered(talking.settled(talking.sent(failed, 1, true)))).toBe(true);
});

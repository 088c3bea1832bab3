import { expect, test } from "vitest";
import { ANONYMOUS } from "../../../../src/auth/access-control.ts";
import { SESSION_MS, START_TOKEN_MS, ViewerSessions } from "../../../../src/gateway/dashboard/viewer-sessions.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

test("a start token is valid once, and for a minute", () => {
  const clock = new FakeClock();
  const sessions = new ViewerSessions(clock);
  const [first, second] = [sessions.createStartToken(), sessions.createStartToken()];
  clock.jump(START_TOKEN_MS - 1);
  expect([sessions.useStartToken(first), sessions.useStartToken(first)]).toEqual([true, false]);
  clock.jump(1);
  expect(sessions.useStartToken(second)).toBe(false);
  expect(sessions.useStartToken("")).toBe(false);
});

test("a session ends after twelve hours, when its viewer ends it, and when the account is removed", () => {
  const clock = new FakeClock();
  const sessions = new ViewerSessions(clock);
  const account = { ...ANONYMOUS, name: "ana", isValid: true };
  const [aged, ended, removed] = [sessions.open(ANONYMOUS), sessions.open(ANONYMOUS), sessions.open(account)];
  expect(sessions.find(removed.cookie)?.principal).toBe(account);
  sessions.end(ended.cookie);
  expect(sessions.find(ended.cookie)).toBeNull();
  account.isValid = false;
  expect(sessions.find(removed.cookie)).toBeNull();
  account.isValid = true;
  expect(sessions.find(removed.cookie), "it stays ended").toBeNull();
  clock.jump(SESSION_MS - 1);
  expect(sessions.find(aged.cookie)).not.toBeNull();
  clock.jump(1);
  expect(sessions.find(aged.cookie)).toBeNull();
});

test("the secret is that of the session, and neither a cookie nor a start token", () => {
  const sessions = new ViewerSessions(new FakeClock());
  const [session, other] = [sessions.open(ANONYMOUS), sessions.open(ANONYMOUS)];
  const viewer = sessions.find(session.cookie);
  expect(viewer?.hasSecret(session.secret)).toBe(true);
  for (const secret of [undefined, "", session.cookie, other.secret]) expect(viewer?.hasSecret(secret)).toBe(false);
});

test("of very many sessions of one account the oldest ends; those of another account stay", () => {
  const sessions = new ViewerSessions(new FakeClock());
  const other = sessions.open({ ...ANONYMOUS, name: "other" }).cookie;
  const opened = Array.from({ length: 101 }, () => sessions.open(ANONYMOUS).cookie);
  expect(opened.map((cookie) => sessions.find(cookie) !== null)).toEqual([false, ...opened.slice(1).map(() => true)]);
  expect(sessions.find(other)).not.toBeNull();
});

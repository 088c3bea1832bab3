import { expect, test } from "vitest";
import { toClaimInfo } from "../../../src/spi/claim-info.ts";
import type { ClaimView, LockSpec } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";

const mutex: LockSpec = { key: "app:a", permits: ALL_PERMITS, limit: ALL_PERMITS };
const view: ClaimView = {
  tag: "lrrx2sgngs",
  locks: [mutex],
  ttlMs: 30_000,
  tokenCount: 256,
  floor: 3n,
  wait: true,
  label: "ana",
  answer: { state: "held", token: 7n, tokenCount: 256, remainingMs: 20_000.9 },
  ageMs: 30.7,
  heldMs: 12.5,
};

test("a holder has its token, whole milliseconds, and nothing that only drivers need", () => {
  expect(toClaimInfo(view)).toEqual({
    tag: "lrrx2sgngs",
    state: "held",
    locks: [{ key: "app:a", mode: "exclusive" }],
    label: "ana",
    token: 7n,
    remainingMs: 20_000,
    ageMs: 30,
    heldMs: 12,
  });
});

test("each key has its own mode, and is named without the client's prefix", () => {
  const locks: ClaimView["locks"] = [
    mutex,
    { key: "app:b", permits: 1, limit: ALL_PERMITS },
    { key: "app:c", permits: 2, limit: 4 },
  ];
  expect(toClaimInfo({ ...view, locks }, "app:").locks).toEqual([
    { key: "a", mode: "exclusive" },
    { key: "b", mode: "shared" },
    { key: "c", mode: "semaphore", permits: 2, limit: 4 },
  ]);
});

test("a waiter has no token and no time held; a store without tokens, and a session, show null", () => {
  const { heldMs: _, ...others } = view;
  const waiting = toClaimInfo({ ...others, answer: { state: "waiting", remainingMs: -1, recheckMs: 10 } });
  expect(waiting).toMatchObject({ state: "waiting", token: null, remainingMs: 0 });
  expect(waiting).not.toHaveProperty("heldMs");
  const answer: ClaimView["answer"] = { state: "held", token: 0n, tokenCount: 1, remainingMs: 5 };
  expect(toClaimInfo({ ...view, ttlMs: "session", answer })).toMatchObject({ token: null, remainingMs: null });
});

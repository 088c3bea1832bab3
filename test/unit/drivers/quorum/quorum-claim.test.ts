import { expect, test } from "vitest";
import { QuorumClaim } from "../../../../src/drivers/quorum/quorum-claim.ts";
import { makeClaim } from "../../../support/server-fixture.ts";

test("a member may restore a vote until the end of its lease, not one that waits, is being released, or is another member's", () => {
  const quorumClaim = new QuorumClaim(makeClaim("k", { ttlMs: 1_000 }), 3);
  quorumClaim.onAnswer(0, 1, 0, { state: "held", token: 5n, tokenCount: 1, remainingMs: 1_000 }, 0);
  quorumClaim.onAnswer(1, 1, 0, { state: "waiting", remainingMs: 1_000, recheckMs: 100 }, 0);
  const heldTokens = (now: number) => [0, 1, 2].map((index) => quorumClaim.heldTokens(index, now));
  expect(heldTokens(899)).toEqual([{ token: 5n, tokenCount: 1 }, null, null]);
  expect(heldTokens(900)).toEqual([null, null, null]);
  quorumClaim.memberClaim(0).startRelease();
  expect(heldTokens(0)).toEqual([null, null, null]);
});

// A store that answers late, as one behind a proxy may: a claim can end while a call for it is in progress.

import { expect, test } from "vitest";
import { ANONYMOUS } from "../../../../src/auth/access-control.ts";
import type { ClaimOutcome } from "../../../../src/gateway/http/pending-claims.ts";
import { PendingClaims } from "../../../../src/gateway/http/pending-claims.ts";
import type { LockService } from "../../../../src/server/service.ts";
import type { Answer } from "../../../../src/spi/driver.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { makeClaim } from "../../../support/server-fixture.ts";

const WAITING: Answer = { state: "waiting", remainingMs: 30_000, recheckMs: 30_000 };
const HELD: Answer = { state: "held", token: 1n, tokenCount: 1, remainingMs: 30_000 };

interface Setting {
  readonly clock: FakeClock;
  readonly pendingClaims: PendingClaims;
  /** Answers the renewal that is in progress. */
  answerRenewal(answer: Answer): void;
  /** A request for a claim that is in the queue and for which no request waits; its renewal is in progress. */
  readonly outcome: Promise<ClaimOutcome>;
}

const claim = makeClaim("k");
const NEVER = new AbortController().signal;

async function startWait(): Promise<Setting> {
  const clock = new FakeClock();
  let answerRenewal: Setting["answerRenewal"] = () => undefined;
  const service = {
    clock,
    log: () => undefined,
    isDraining: false,
    endBatch: () => undefined,
    backend: {
      suspend: () => undefined,
      resume: () => undefined,
      endClaims: () => undefined,
      hasClaims: () => false,
      recoveryRemainingMs: () => 0,
    },
    calls: {
      claim: () => WAITING,
      renew: () =>
        new Promise<readonly Answer[]>((resolve) => {
          answerRenewal = (answer) => resolve([answer]);
        }),
    },
  };
  const pendingClaims = new PendingClaims(service as unknown as LockService);
  const first = await pendingClaims.claim(ANONYMOUS, claim, clock.now(), NEVER);
  expect(first.state).toBe("waiting");
  await clock.advance(9_990);
  const outcome = pendingClaims.wait(ANONYMOUS, claim, clock.now() + 5_000, NEVER);
  return { clock, pendingClaims, answerRenewal: (answer) => answerRenewal(answer), outcome };
}

test("a claim whose grace ends during a renewal is lost, whatever the store answers", async () => {
  const { clock, answerRenewal, outcome } = await startWait();
  await clock.advance(20);
  answerRenewal(HELD);
  expect(await outcome).toEqual({ state: "none", reason: "expired" });
});

test("a claim that another request releases during a renewal is lost, whatever the store answers", async () => {
  const { pendingClaims, answerRenewal, outcome } = await startWait();
  const pending = pendingClaims.find(ANONYMOUS, claim.id);
  pendingClaims.remove(pending as NonNullable<typeof pending>, "released");
  answerRenewal(HELD);
  expect(await outcome).toEqual({ state: "none", reason: "released" });
});

test("a claim that another request has detached during a renewal is held", async () => {
  const { pendingClaims, answerRenewal, outcome } = await startWait();
  const pending = pendingClaims.find(ANONYMOUS, claim.id);
  pendingClaims.remove(pending as NonNullable<typeof pending>);
  answerRenewal(HELD);
  expect(await outcome).toMatchObject({ state: "held", token: 1n });
});

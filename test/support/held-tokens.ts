/** What the core knows of the claims of a driver, for tests that call the driver themselves. */

import { believedUntil } from "../../src/claim/lease-deadline.ts";
import type { Answer, Claim, ClaimId, Driver, TokenRange } from "../../src/spi/driver.ts";
import { delegate } from "../../src/testing/delegate.ts";
import type { Clock } from "../../src/util/clock.ts";
import { systemClock } from "../../src/util/clock.ts";
import { SuspendDetector } from "../../src/util/suspend-detector.ts";

interface Known {
  /** null: it waits. */
  tokens: TokenRange | null;
  leaseEndsAt: number;
}

/** The driver, which learns from its own answers and pushes what its client holds: see DriverEvents.heldTokens(). */
export function withHeldTokens(driver: Driver, clock: Clock = systemClock): Driver {
  const suspendDetector = new SuspendDetector(clock);
  let suspendedMs = 0;
  const time = (): number => {
    const now = clock.now();
    suspendedMs += suspendDetector.suspendedMs(now);
    return now + suspendedMs;
  };
  const known = new Map<ClaimId, Known>();
  const record = (id: ClaimId, answer: Answer, leaseEndsAt: number): void => {
    if (answer.state === "none") return void known.delete(id);
    const earlier = known.get(id);
    known.set(id, {
      tokens: answer.state === "held" ? { token: answer.token, tokenCount: answer.tokenCount } : null,
      leaseEndsAt: Math.max(leaseEndsAt, earlier?.leaseEndsAt ?? 0),
    });
  };
  const recordReply = ({ id, ttlMs }: Claim, answer: Answer, sentAt: number): void =>
    record(id, answer, answer.state === "none" ? 0 : believedUntil(sentAt, answer.remainingMs, Number(ttlMs)));
  return delegate(driver, {
    open: (events) =>
      driver.open({
        pushed(id, answer) {
          record(id, answer, 0);
          events.pushed(id, answer);
        },
        recheck: (id) => events.recheck(id),
        disconnected: () => events.disconnected(),
        reconnected: () => events.reconnected(),
        recalled: (id) => events.recalled(id),
        heldTokens(id) {
          const claim = known.get(id);
          return claim !== undefined && time() < claim.leaseEndsAt ? claim.tokens : null;
        },
      }),
    async claim(claim) {
      const sentAt = time();
      const answer = await driver.claim(claim);
      recordReply(claim, answer, sentAt);
      return answer;
    },
    async renew(claims, tokenCounts) {
      const sentAt = time();
      const answers = await driver.renew(claims, tokenCounts);
      for (const [index, claim] of claims.entries()) {
        const answer = answers[index];
        if (answer !== undefined) recordReply(claim, answer, sentAt);
      }
      return answers;
    },
    release(releases) {
      for (const { claim } of releases) known.delete(claim.id);
      return driver.release(releases);
    },
  });
}

/** Keeps account of the claims for which a driver must keep something: those that have not ended yet, as the driver interface says. */

import type { Answer, ClaimId, Driver } from "../../src/spi/driver.ts";
import { delegate } from "../../src/testing/delegate.ts";

export interface ClaimLedger {
  /** The driver for the client. */
  readonly driver: Driver;
  /** Claims that were made or renewed, and then neither released, nor answered "none", nor forgotten. */
  readonly openClaims: ReadonlySet<ClaimId>;
  /** The claims that were forgotten, once for each call. */
  readonly forgotten: readonly ClaimId[];
}

export function createClaimLedger(inner: Driver): ClaimLedger {
  const openClaims = new Set<ClaimId>();
  const forgotten: ClaimId[] = [];
  const record = (id: ClaimId, answer: Answer | undefined): void => {
    if (answer?.state !== "none") return;
    // a holder that was told to stop releases its claim, which keeps its place until then
    if (answer.reason !== "revoked" && answer.reason !== "maxHold") openClaims.delete(id);
  };
  const { detach } = inner;
  const driver = delegate(inner, {
    open: (events) =>
      inner.open({
        pushed(id, answer) {
          record(id, answer);
          events.pushed(id, answer);
        },
        recheck: (id) => events.recheck(id),
        disconnected: () => events.disconnected(),
        reconnected: () => events.reconnected(),
        recalled: (id) => events.recalled(id),
        heldTokens: (id) => events.heldTokens(id),
      }),
    async claim(claim) {
      openClaims.add(claim.id);
      const answer = await inner.claim(claim);
      record(claim.id, answer);
      return answer;
    },
    async renew(claims, tokenCounts) {
      for (const { id } of claims) openClaims.add(id);
      const answers = await inner.renew(claims, tokenCounts);
      for (const [index, { id }] of claims.entries()) record(id, answers[index]);
      return answers;
    },
    ...(detach && { detach: (claims, remainingMs) => detach.call(inner, claims, remainingMs) }),
    release(releases) {
      for (const { claim } of releases) openClaims.delete(claim.id);
      return inner.release(releases);
    },
    forget(claim) {
      openClaims.delete(claim.id);
      forgotten.push(claim.id);
      inner.forget?.(claim);
    },
  });
  return { driver, openClaims, forgotten };
}

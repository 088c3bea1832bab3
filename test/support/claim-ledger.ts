/** Keeps account of the claims for which a client has called a driver, until it calls forget(). */

import { delegate } from "../../src/conformance/delegate.ts";
import type { Claim, ClaimId, Driver } from "../../src/spi/driver.ts";

export interface ClaimLedger {
  /** The driver for the client. */
  readonly driver: Driver;
  /** The number of calls in flight for each claim that was not forgotten. */
  readonly openClaims: ReadonlyMap<ClaimId, number>;
  /** How often each claim was forgotten. */
  readonly forgotten: ReadonlyMap<ClaimId, number>;
  /** Calls of forget() that came twice or during a call, and calls after it. */
  readonly violations: readonly string[];
}

export function createClaimLedger(inner: Driver): ClaimLedger {
  const openClaims = new Map<ClaimId, number>();
  const forgotten = new Map<ClaimId, number>();
  const violations: string[] = [];
  const count = (claims: readonly Claim[], change: number): void => {
    for (const { id } of claims) openClaims.set(id, (openClaims.get(id) ?? 0) + change);
  };
  const duringCall = <T>(claims: readonly Claim[], call: () => Promise<T>): Promise<T> => {
    count(claims, 1);
    return call().finally(() => count(claims, -1));
  };
  const { detach } = inner;
  const driver = delegate(inner, {
    claim(claim) {
      if (forgotten.has(claim.id)) violations.push("claim after forget");
      return duringCall([claim], () => inner.claim(claim));
    },
    // a renewal may follow: of an attached claim
    renew: (claims) => duringCall(claims, () => inner.renew(claims)),
    ...(detach && { detach: (claims, leftMs) => duringCall(claims, () => detach.call(inner, claims, leftMs)) }),
    release(releases) {
      for (const { claim } of releases) if (!openClaims.has(claim.id)) violations.push("release after forget");
      return inner.release(releases);
    },
    forget(claim) {
      const callsInFlight = openClaims.get(claim.id);
      if (callsInFlight === undefined) violations.push("forget twice");
      else if (callsInFlight > 0) violations.push("forget during a call");
      openClaims.delete(claim.id);
      forgotten.set(claim.id, (forgotten.get(claim.id) ?? 0) + 1);
      inner.forget?.(claim);
    },
  });
  return { driver, openClaims, forgotten, violations };
}

// The locks that clients rely on, from their answers, and the conflicts that must never exist.

import type { Claim } from "../../src/spi/driver.ts";

/** A client's knowledge of one of its claims. */
export interface ExpectedClaim {
  readonly claim: Claim;
  readonly key: string;
  readonly requestedAt: number;
  /** The end of its lease by the last answer. */
  deadline: number;
  token: bigint | null;
  heldAt: number;
  isAnswered: boolean;
  isReleased: boolean;
  isDetached: boolean;
}

/** Does its client rely on it? */
export function isBelievedHeld({ token, isReleased, deadline }: ExpectedClaim, now: number): boolean {
  return token !== null && !isReleased && now < deadline;
}

export class ClientExpectations {
  readonly all: ExpectedClaim[] = [];

  /** The claims that clients rely on. */
  believedHeld(now: number): ExpectedClaim[] {
    return this.all.filter((expectedClaim) => isBelievedHeld(expectedClaim, now));
  }

  /** It is held with this token; returns the violation, if any. */
  recordGrant(expectation: ExpectedClaim, token: bigint, now: number): string[] {
    expectation.token = token;
    expectation.heldAt = now;
    const isWrong = (otherExpectation: ExpectedClaim): boolean => {
      if (
        otherExpectation === expectation ||
        otherExpectation.key !== expectation.key ||
        otherExpectation.token === null
      )
        return false;
      return (
        otherExpectation.token === token ||
        (expectation.requestedAt > otherExpectation.heldAt && token < otherExpectation.token)
      );
    };
    return this.all
      .filter(isWrong)
      .map(({ claim, token: otherToken }) => `${otherToken} of ${claim.id}, then ${token} of ${expectation.claim.id}`);
  }

  /** Keys that several clients rely on at once. */
  findConflicts(now: number): string[] {
    const ids = new Map<string, string[]>();
    for (const { key, claim } of this.believedHeld(now)) ids.set(key, [...(ids.get(key) ?? []), claim.id]);
    return [...ids]
      .filter(([, claimIds]) => claimIds.length > 1)
      .map(([key, claimIds]) => `${claimIds} all believe to hold ${key}`);
  }
}

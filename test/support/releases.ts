import type { Claim, Release } from "../../src/spi/driver.ts";

/** Releases claims whose `claim` calls were all answered. */
export function toReleases(...claims: readonly Claim[]): readonly Release[] {
  return claims.map((claim) => ({ claim, hasUnansweredClaim: false }));
}

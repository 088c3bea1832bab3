/** Renewals without a pause, which must not keep a claim for the same bucket from being sent. */

import type { Claim, Driver } from "../../../src/spi/driver.ts";
import { makeClaim } from "../claims.ts";

/** Renews two waiting claims of a key until a new claim of it is answered. Returns the number of renewals, at most `limit`. */
export async function countRenewalsBeforeClaim(driver: Driver, limit: number): Promise<number> {
  const waiting = [makeClaim("key"), makeClaim("key")];
  for (const claim of [makeClaim("key"), ...waiting]) await driver.claim(claim);
  let [isAnswered, count] = [false, 0];
  const renew = async (claim: Claim): Promise<void> => {
    for (; !isAnswered && count < limit; count++) await driver.renew([claim]);
  };
  const renewals = waiting.map(renew);
  await driver.claim(makeClaim("key"));
  isAnswered = true;
  const counted = count;
  await Promise.all(renewals);
  return counted;
}

/** Wraps a driver. */

import type { Driver } from "../spi/driver.ts";

/** A driver that forwards to `driver`, except for the given members. It has the optional verbs that `driver` has. */
export function delegate(driver: Driver, members: Partial<Driver>): Driver {
  const { shardOf, releasesPerCall, setIdle, forget, detach, revoke, diagnose } = driver;
  return {
    name: driver.name,
    open: (events) => driver.open(events),
    claim: (claim) => driver.claim(claim),
    renew: (claims, tokenCounts) => driver.renew(claims, tokenCounts),
    ...(shardOf && { shardOf: (claim) => shardOf.call(driver, claim) }),
    ...(releasesPerCall !== undefined && { releasesPerCall }),
    release: (releases) => driver.release(releases),
    ...(forget && { forget: (claim) => forget.call(driver, claim) }),
    ...(setIdle && { setIdle: (claim, isIdle) => setIdle.call(driver, claim, isIdle) }),
    ...(detach && { detach: (claims, remainingMs) => detach.call(driver, claims, remainingMs) }),
    ...(revoke && { revoke: (targets) => revoke.call(driver, targets) }),
    ...(diagnose && { diagnose: () => diagnose.call(driver) }),
    list: (query, options) => driver.list(query, options),
    close: () => driver.close(),
    ...members,
  };
}

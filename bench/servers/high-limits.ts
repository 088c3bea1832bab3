/** Limits above the usual ones, for the cases in which one client has very many claims. */

import type { ServerLimits } from "../../src/server/limits.ts";

const UNLIMITED = 2_000_000;

export const HIGH_LIMITS: Partial<ServerLimits> = {
  claims: UNLIMITED,
  claimsPerAccount: UNLIMITED,
  waitersPerKey: UNLIMITED,
};

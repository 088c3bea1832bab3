/** Limits above the usual ones, for the cases in which one client has very many claims. */

import type { ServerLimits } from "../../src/server/limits.ts";

const MANY = 2_000_000;

export const ROOMY: Partial<ServerLimits> = {
  claims: MANY,
  claimsPerSession: MANY,
  waiters: MANY,
  waitersPerKey: MANY,
};

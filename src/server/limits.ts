/**
 * The limits that an operator may change, so that no client can exhaust the server. A server at its limit refuses new
 * claims; renewals and releases of existing ones go on. Every other bound is a constant of the file that keeps it.
 */

import { getHeapStatistics } from "node:v8";
import { PROTOCOL_LIMITS } from "../protocol/handshake.ts";
import { describeValue, MAX_DURATION_MS, MIN_TTL_MS } from "../util/duration.ts";

/** The limits of a server. Integers; times in milliseconds, sizes in bytes of UTF-8. */
export interface ServerLimits {
  /** Maximum number of connections, on all addresses together. */
  readonly connections: number;
  /** Maximum number of connections from one network address. Does not apply to Unix sockets. */
  readonly connectionsPerAddress: number;
  /** Wrong credentials in a minute from one address; further ones get another error and are not logged one by one. */
  readonly failuresPerMinute: number;
  /** Longest line to the server, including its line feed; over HTTP, longest body. */
  readonly lineBytes: number;
  /** Longest lease that a client may request. */
  readonly ttlMs: number;
  /**
   * Maximum number of claims in all, waiting and held; a claim on several keys counts once for each. Also the maximum
   * number of tombstones. The default is lower if the process has a heap of less than 6 KiB per claim.
   */
  readonly claims: number;
  /**
   * Maximum number of claims of one account, counted as in `claims`; on a server without credentials, of one client.
   */
  readonly claimsPerAccount: number;
  /** Maximum number of entries in the queue of one key, including its holders. */
  readonly waitersPerKey: number;
}

/** The limits on claims. Each start saves them, so that the next one knows the limits of claims granted earlier. */
export type ClaimLimits = Pick<ServerLimits, "claims" | "claimsPerAccount" | "waitersPerKey">;

/** The default limits. */
export const DEFAULT_LIMITS: ServerLimits = {
  connections: 10_000,
  connectionsPerAddress: 1_000,
  failuresPerMinute: 100,
  lineBytes: PROTOCOL_LIMITS.lineBytes,
  ttlMs: 30 * 86_400_000,
  claims: 1_000_000,
  claimsPerAccount: 100_000,
  waitersPerKey: 10_000,
};

/** The larger of each pair of limits. */
export function widestLimits(first: ClaimLimits, second: ClaimLimits = first): ClaimLimits {
  return {
    claims: Math.max(first.claims, second.claims),
    claimsPerAccount: Math.max(first.claimsPerAccount, second.claimsPerAccount),
    waitersPerKey: Math.max(first.waitersPerKey, second.waitersPerKey),
  };
}

/** Values outside these ranges would break promises of the protocol or the stores. All others: 1 or more. */
const LIMIT_RANGES: Partial<Record<keyof ServerLimits, readonly [least: number, most: number]>> = {
  // at least the default, which every client of this version relies on
  lineBytes: [PROTOCOL_LIMITS.lineBytes, 67_108_864],
  ttlMs: [MIN_TTL_MS, MAX_DURATION_MS],
};

/** The range of a limit. */
export function limitRange(name: keyof ServerLimits): readonly [least: number, most: number] {
  return LIMIT_RANGES[name] ?? [1, Number.MAX_SAFE_INTEGER];
}

/** Heap per claim: twice what the longest key with its entry, and a tombstone, were measured to take. */
const HEAP_BYTES_PER_CLAIM = 6_144;

/**
 * The default limits, overridden by these.
 * @param heapBytes the heap limit of the process; default: the actual one
 * @throws TypeError naming everything that is wrong
 */
export function resolveLimits(
  overrides: Partial<ServerLimits> = {},
  heapBytes: number = getHeapStatistics().heap_size_limit,
): ServerLimits {
  const problems: string[] = [];
  for (const [name, value] of Object.entries(overrides) as [keyof ServerLimits, unknown][]) {
    if (!Object.hasOwn(DEFAULT_LIMITS, name)) {
      problems.push(`limits.${name} is not a limit; the limits are ${Object.keys(DEFAULT_LIMITS).join(", ")}`);
      continue;
    }
    const [min, max] = limitRange(name);
    if (Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max) continue;
    problems.push(`limits.${name} must be a whole number from ${min} to ${max}, not ${describeValue(value)}`);
  }
  if (problems.length > 0) throw new TypeError(problems.join("; "));
  const claims = Math.min(DEFAULT_LIMITS.claims, Math.floor(heapBytes / HEAP_BYTES_PER_CLAIM));
  return { ...DEFAULT_LIMITS, claims, ...overrides };
}

const UNITS = [
  [86_400_000, "days"],
  [3_600_000, "h"],
  [60_000, "m"],
  [1_000, "s"],
] as const;

/** A limit in a readable and exact form: "30 days", "60 s", "1500 ms". */
export function formatExactDuration(ms: number): string {
  const unit = UNITS.find(([size]) => ms % size === 0 && ms >= 2 * size);
  return unit === undefined ? `${ms} ms` : `${ms / unit[0]} ${unit[1]}`;
}

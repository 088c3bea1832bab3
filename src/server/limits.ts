/**
 * All limits of a server in one place, so that no client can exhaust it. A server at its limit refuses new claims;
 * renewals and releases of existing ones go on. Each limit has a test in test/integration/server.
 */

import { getHeapStatistics } from "node:v8";
import { PROTOCOL_LIMITS } from "../protocol/handshake.ts";
import { describeValue, MAX_DURATION_MS, MIN_TTL_MS } from "../util/duration.ts";

/** The limits of a server. Integers; times in milliseconds, sizes in bytes of UTF-8. */
export interface ServerLimits {
  // connections
  /** Maximum number of connections, on all addresses together. */
  readonly connections: number;
  /** Maximum number of connections from one network address. Does not apply to Unix sockets. */
  readonly connectionsPerAddress: number;
  /**
   * Maximum number of connections without a completed handshake. They are shared by address: a new one evicts the oldest of the address with the most of them.
   */
  readonly unauthenticatedConnections: number;
  /** How long a connection may take for its handshake. */
  readonly helloMs: number;
  /** Wrong credentials in a minute from one address; further ones get another error and are not logged one by one. */
  readonly failuresPerMinute: number;
  /** Unsent output of a client that does not read, before its connection is closed. */
  readonly slowConsumerBytes: number;
  /**
   * How long a client over the network may read nothing while more than 1 MiB is unsent, before its connection is
   * closed. On a Unix socket the server only stops reading meanwhile: a stopped process still exists.
   */
  readonly slowConsumerMs: number;

  // what a client may say at a time
  /** Longest line to the server, including its line feed. */
  readonly lineBytes: number;
  /** Longest first line. */
  readonly helloBytes: number;
  /** Nesting depth of a first line, and of a body over HTTP. Later lines have the fixed form of their frames. */
  readonly depth: number;
  /** Maximum number of frames in one line. */
  readonly framesPerLine: number;
  /** Maximum number of ids or claims in one frame. */
  readonly itemsPerFrame: number;
  /** Maximum number of targets in one `revoke`. */
  readonly revocations: number;

  // one claim
  /** Longest lease that a client may request. */
  readonly ttlMs: number;

  // claims, waiting and held
  /** Maximum number of claims of one session. */
  readonly claimsPerSession: number;
  /**
   * Maximum number of claims of one account, counted as in `claims`. Does not apply to a server without credentials.
   */
  readonly claimsPerAccount: number;
  /**
   * Maximum number of claims in all; a claim on several keys counts once for each. Also the maximum number of
   * tombstones. The default is lower if the process has a heap of less than 6 KiB per claim.
   */
  readonly claims: number;
  /** Maximum number of entries in the queue of one key, including its holders. */
  readonly waitersPerKey: number;
  /** Maximum number of waiting claims in all. */
  readonly waiters: number;

  // what tools ask
  /** Maximum number of claims in one page of a list. */
  readonly pageSize: number;
  /** How long the server may work on lists at a stretch; other work then gets as much time. */
  readonly listSliceMs: number;
  /** Maximum number of `list` frames in one line, and of pending `history` frames of one connection. */
  readonly concurrentLists: number;
  /** Maximum number of subscriptions to events in all. */
  readonly subscribers: number;
  /** Maximum number of subscriptions to events of one account. */
  readonly subscribersPerAccount: number;
  /** Maximum number of subscriptions to events of one connection. */
  readonly subscribersPerConnection: number;
  /** How long an event stream over HTTP lasts; its reader reconnects and continues where it was. */
  readonly eventStreamMs: number;
}

/** The limits on claims. Each start saves them, so that the next one knows the limits of claims granted earlier. */
export type ClaimLimits = Pick<
  ServerLimits,
  "claims" | "claimsPerAccount" | "claimsPerSession" | "waiters" | "waitersPerKey"
>;

/** The default limits. */
export const DEFAULT_LIMITS: ServerLimits = {
  connections: 10_000,
  connectionsPerAddress: 1_000,
  unauthenticatedConnections: 256,
  helloMs: 5_000,
  failuresPerMinute: 100,
  slowConsumerBytes: 4_194_304,
  slowConsumerMs: 30_000,
  lineBytes: PROTOCOL_LIMITS.lineBytes,
  helloBytes: 4_096,
  depth: 16,
  framesPerLine: 10_000,
  itemsPerFrame: 5_000,
  revocations: 64,
  ttlMs: 30 * 86_400_000,
  claimsPerSession: 20_000,
  claimsPerAccount: 100_000,
  claims: 1_000_000,
  waitersPerKey: 10_000,
  waiters: 100_000,
  pageSize: PROTOCOL_LIMITS.pageSize,
  listSliceMs: 5,
  concurrentLists: 16,
  subscribers: 1_000,
  subscribersPerAccount: 250,
  subscribersPerConnection: 16,
  eventStreamMs: 3_600_000,
};

/** The larger of each pair of limits. */
export function widestLimits(first: ClaimLimits, second: ClaimLimits = first): ClaimLimits {
  return {
    claims: Math.max(first.claims, second.claims),
    claimsPerAccount: Math.max(first.claimsPerAccount, second.claimsPerAccount),
    claimsPerSession: Math.max(first.claimsPerSession, second.claimsPerSession),
    waiters: Math.max(first.waiters, second.waiters),
    waitersPerKey: Math.max(first.waitersPerKey, second.waitersPerKey),
  };
}

/**
 * Values outside these ranges would break promises of the protocol, the stores or the design. All others: 1 or more.
 */
const LIMIT_RANGES: Partial<Record<keyof ServerLimits, readonly [least: number, most: number]>> = {
  // at least the defaults, which every client of this version relies on
  lineBytes: [PROTOCOL_LIMITS.lineBytes, 67_108_864],
  helloBytes: [1_024, 65_536],
  depth: [8, 1_000],
  // at least what our own clients of every version send in a line
  framesPerLine: [6_000, 1_000_000],
  itemsPerFrame: [2_000, 1_000_000],
  ttlMs: [MIN_TTL_MS, MAX_DURATION_MS],
  slowConsumerBytes: [65_536, 1_073_741_824],
  slowConsumerMs: [100, 3_600_000],
  eventStreamMs: [1_000, 86_400_000],
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

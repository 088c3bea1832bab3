/**
 * Every bound of a server in one place, so that no client can exhaust it. What is full refuses what is new: renewals and
 * releases of what is there go on. Tests under test/server/limits* hit each of them.
 */

import { getHeapStatistics } from "node:v8";
import { PROTOCOL_LIMITS } from "../../protocol/handshake.ts";
import { describeValue, MAX_DURATION_MS, MIN_TTL_MS } from "../../util/duration.ts";
import { MAX_KEY_BYTES, MAX_LABEL_BYTES } from "../../util/keys.ts";

/** What a server allows. Whole numbers; times in milliseconds, sizes in bytes of UTF-8. */
export interface ServerLimits {
  // connections
  /** Connections at once, on all addresses together. */
  readonly connections: number;
  /** Connections at once from one network address. A Unix socket has none. */
  readonly connectionsPerAddress: number;
  /**
   * Connections at once that have not said hello, or whose refusal is being delayed. They are shared out by address: for a
   * newcomer the oldest of the address that has most of them is given up.
   */
  readonly unauthenticatedConnections: number;
  /** How long a connection may take to say hello. */
  readonly helloMs: number;
  /** How long the answer to a wrong credential is held back. */
  readonly refusalMs: number;
  /** Such answers held back at once; who fails beyond is refused without delay. */
  readonly refusals: number;
  /** Wrong credentials in a minute from one address; beyond, they are refused at once and no more logged one by one. */
  readonly failuresPerMinute: number;
  /** What may wait for a client that does not read, before its connection is ended. */
  readonly slowConsumerBytes: number;
  /**
   * How long a client over the network may read nothing while more than 1 MiB waits for it, before its connection is
   * ended. On a Unix socket it is only not read from meanwhile: a stopped process is still there.
   */
  readonly slowConsumerMs: number;

  // what a client may say at a time
  /** Longest line to the server, its line feed included. */
  readonly lineBytes: number;
  /** Longest first line. */
  readonly helloBytes: number;
  /** Levels of arrays and objects in a first line, and in a body over HTTP. Later lines have the form of their frames. */
  readonly depth: number;
  /** Frames in one line. */
  readonly framesPerLine: number;
  /** Ids or claims in one frame. */
  readonly itemsPerFrame: number;
  /** Targets in one `revoke`. */
  readonly revocations: number;

  // one claim; all but ttlMs are fixed by this version of the protocol
  /** Keys of one claim. */
  readonly holds: number;
  /** Longest key. */
  readonly keyBytes: number;
  /** Longest label; longer ones are cut. */
  readonly labelBytes: number;
  /** Longest lease that may be asked for. */
  readonly ttlMs: number;
  /** Longest run of fencing tokens of one claim. */
  readonly tokens: number;
  /** How far ahead of the server's clock a floor of tokens may lie. */
  readonly floorMs: number;

  // claims, waiting and held
  /** Claims of one session. */
  readonly claimsPerSession: number;
  /** Claims of one credential's account, counted as `claims` are; whoever a server without credentials serves is no account. */
  readonly claimsPerAccount: number;
  /**
   * Claims in all, one of several keys counted once for each; and, by themselves, claims that have ended and are remembered
   * for a while. The default is lower where the process has a heap of less than 6 KiB for each.
   */
  readonly claims: number;
  /** Places in the line of one key, its holders among them. */
  readonly waitersPerKey: number;
  /** Waiting claims in all. */
  readonly waiters: number;

  // what tools ask
  /** Claims in one page of a list. */
  readonly pageSize: number;
  /** How long the server may be at lists at a time; then it serves others for as long. */
  readonly listSliceMs: number;
  /** `list` frames in one line, and `history` frames of one connection that wait. */
  readonly concurrentLists: number;
  /** Subscriptions to events at once, in all. */
  readonly subscribers: number;
  /** Subscriptions to events of one credential's account. */
  readonly subscribersPerAccount: number;
  /** Subscriptions to events of one connection. */
  readonly subscribersPerConnection: number;
  /** How long one stream of events over HTTP lasts; its reader comes back and goes on where it was. */
  readonly eventStreamMs: number;
}

/** The bounds of claims: a start notes them, so that the next one knows what may have been held under them. */
export type ClaimLimits = Pick<
  ServerLimits,
  "claims" | "claimsPerAccount" | "claimsPerSession" | "waiters" | "waitersPerKey"
>;

/** What holds where nothing else is said. */
export const DEFAULT_LIMITS: ServerLimits = {
  connections: 10_000,
  connectionsPerAddress: 1_000,
  unauthenticatedConnections: 256,
  helloMs: 5_000,
  refusalMs: 1_000,
  refusals: 64,
  failuresPerMinute: 100,
  slowConsumerBytes: 4_194_304,
  slowConsumerMs: 30_000,
  lineBytes: PROTOCOL_LIMITS.lineBytes,
  helloBytes: 4_096,
  depth: 16,
  framesPerLine: 10_000,
  itemsPerFrame: 5_000,
  revocations: 64,
  holds: PROTOCOL_LIMITS.holds,
  keyBytes: MAX_KEY_BYTES,
  labelBytes: MAX_LABEL_BYTES,
  ttlMs: 30 * 86_400_000,
  tokens: PROTOCOL_LIMITS.tokens,
  floorMs: 86_400_000,
  claimsPerSession: 20_000,
  claimsPerAccount: 100_000,
  claims: 1_000_000,
  waitersPerKey: 10_000,
  waiters: 100_000,
  pageSize: PROTOCOL_LIMITS.page,
  listSliceMs: 5,
  concurrentLists: 16,
  subscribers: 1_000,
  subscribersPerAccount: 250,
  subscribersPerConnection: 16,
  eventStreamMs: 3_600_000,
};

/** Of each bound the wider one. */
export function widestLimits(first: ClaimLimits, second: ClaimLimits = first): ClaimLimits {
  return {
    claims: Math.max(first.claims, second.claims),
    claimsPerAccount: Math.max(first.claimsPerAccount, second.claimsPerAccount),
    claimsPerSession: Math.max(first.claimsPerSession, second.claimsPerSession),
    waiters: Math.max(first.waiters, second.waiters),
    waitersPerKey: Math.max(first.waitersPerKey, second.waitersPerKey),
  };
}

/** Beyond these a limit would break what the protocol, the stores or the design promise. All others: 1 and no end. */
const LIMIT_RANGES: Partial<Record<keyof ServerLimits, readonly [least: number, most: number]>> = {
  // the default ones must fit, as those of any client of this version
  lineBytes: [PROTOCOL_LIMITS.lineBytes, 67_108_864],
  helloBytes: [1_024, 65_536],
  depth: [8, 1_000],
  // what our own clients of every version send at a time
  framesPerLine: [6_000, 1_000_000],
  itemsPerFrame: [2_000, 1_000_000],
  holds: [PROTOCOL_LIMITS.holds, PROTOCOL_LIMITS.holds],
  keyBytes: [MAX_KEY_BYTES, MAX_KEY_BYTES],
  labelBytes: [MAX_LABEL_BYTES, MAX_LABEL_BYTES],
  ttlMs: [MIN_TTL_MS, MAX_DURATION_MS],
  floorMs: [86_400_000, 86_400_000],
  tokens: [PROTOCOL_LIMITS.tokens, PROTOCOL_LIMITS.tokens],
  refusalMs: [0, 60_000],
  refusals: [0, 100_000],
  slowConsumerBytes: [65_536, 1_073_741_824],
  slowConsumerMs: [100, 3_600_000],
  eventStreamMs: [1_000, 86_400_000],
};

/** What a limit may be set to; the same number twice: it is part of the protocol. */
export function limitRange(name: keyof ServerLimits): readonly [least: number, most: number] {
  return LIMIT_RANGES[name] ?? [1, Number.MAX_SAFE_INTEGER];
}

/** Heap for each claim: twice what the longest key with its place, and a claim that has ended, were seen to take. */
const HEAP_BYTES_PER_CLAIM = 6_144;

/**
 * The default limits with these in their place.
 * @param heapBytes what the process may have; default: what it has
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

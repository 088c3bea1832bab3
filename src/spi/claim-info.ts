/** A claim as users see it in lists: the library, the HTTP port and the command line have the same fields. */

import type { ClaimView, LockSpec } from "./driver.ts";
import { ALL_PERMITS } from "./driver.ts";

/** exclusive: a mutex or writer; shared: a reader; semaphore: permits of a semaphore, alone or together with others. */
export type LockMode = "exclusive" | "shared" | "semaphore";

/** One key of a listed claim. */
export interface LockInfo {
  readonly key: string;
  readonly mode: LockMode;
  /** For a semaphore: the permits that the claim takes. */
  readonly permits?: number;
  /** For a semaphore: the most permits that may be held at once, as this claim has it. */
  readonly limit?: number;
}

/** A claim in a list: it holds its keys, or waits for them. Times are whole milliseconds. */
export interface ClaimInfo {
  /** Identifies the claim in lists and gives no right to it. */
  readonly tag: string;
  readonly state: "held" | "waiting";
  /** At least one. */
  readonly locks: readonly [LockInfo, ...LockInfo[]];
  /** The description of its holder or waiter. */
  readonly label: string;
  /** The first fencing token of a holder; null while it waits, and where the store does not list it. */
  readonly token: bigint | null;
  /** What remains of its lease; null: it lasts as long as its session. */
  readonly remainingMs: number | null;
  /** The time since the store first saw the claim. */
  readonly ageMs: number;
  /** The time since the grant, if the claim is held and the store knows. */
  readonly heldMs?: number;
  /** The time since its last use, of a cached lock of the client that lists it, if it is not in use. */
  readonly unusedMs?: number;
}

/** The mode of a request or a claim. */
export function modeOf(locks: readonly LockSpec[]): LockMode {
  if (locks.some(({ limit }) => limit !== ALL_PERMITS)) return "semaphore";
  return locks.every(({ permits }) => permits === ALL_PERMITS) ? "exclusive" : "shared";
}

/** A listed claim for users. @param keyPrefix what their keys do not have, of those at the store */
export function toClaimInfo(view: ClaimView, keyPrefix = ""): ClaimInfo {
  const { tag, locks, answer, ttlMs, label, ageMs, heldMs } = view;
  const [first, ...rest] = locks;
  const toInfo = (spec: LockSpec): LockInfo => toLockInfo({ ...spec, key: spec.key.slice(keyPrefix.length) });
  const hasLease = ttlMs !== "session" && answer.state !== "none";
  return {
    tag,
    state: answer.state === "held" ? "held" : "waiting",
    locks: [toInfo(first), ...rest.map(toInfo)],
    label,
    // some stores do not report the token of every claim in the queue of one key
    token: answer.state === "held" && answer.token > 0n ? answer.token : null,
    remainingMs: hasLease ? Math.max(0, Math.floor(answer.remainingMs)) : null,
    ageMs: Math.floor(ageMs),
    ...(heldMs !== undefined && { heldMs: Math.floor(heldMs) }),
  };
}

function toLockInfo(spec: LockSpec): LockInfo {
  const { key, permits, limit } = spec;
  const mode = modeOf([spec]);
  return mode === "semaphore" ? { key, mode, permits, limit } : { key, mode };
}

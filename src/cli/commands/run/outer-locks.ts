/**
 * Runs inside runs. The environment contains the references of the outer runs. A nested run of one of their keys joins
 * the outer run if the store confirms that the key is held. It fails at once if it would wait for its own outer run.
 */

import { BELIEVED_SHARE } from "../../../claim/lease-shares.ts";
import { resolveNesting } from "../../../client/reentrancy.ts";
import type { DetachedClaim } from "../../../protocol/lock-reference.ts";
import { decodeReference } from "../../../protocol/lock-reference.ts";
import type { ClaimInfo } from "../../../spi/claim-info.ts";
import type { Claim, LockSpec } from "../../../spi/driver.ts";
import { formatDuration } from "../../../util/duration.ts";
import { CommandError } from "../../errors.ts";
import type { RequestedLocks } from "../../lock-request.ts";
import { toLockSpec } from "../../lock-request.ts";
import type { Store } from "../../open-store.ts";
import { escapeControl, quoteKey } from "../../output.ts";
import { findHeld, REFERENCE_VARIABLE } from "../../references.ts";

/** The references of the runs around the one of REFERENCE_VARIABLE, innermost first, separated by spaces. */
export const ANCESTORS_VARIABLE = "HOLDFAST_ANCESTORS";

/** A key that an outer run holds. */
export interface OuterLock {
  readonly key: string;
  readonly reference: string;
  readonly token: bigint;
  /** The length of its lease; null for a session claim. */
  readonly leaseMs: number | null;
  /** When the lease ends by our clock unless it is renewed; Infinity for a session claim. */
  readonly leaseEndsAt: number;
  /** Asks the store for the current end of the lease; null: the key is no longer held. */
  queryLeaseEnd(): Promise<number | null>;
}

/** The requested keys that outer runs hold, and the keys that are left to claim. */
export interface SplitLocks {
  readonly outerLocks: readonly OuterLock[];
  readonly toClaim: readonly string[];
}

/** A lock on a key that an outer run has according to the environment. */
interface NamedHold {
  readonly spec: LockSpec;
  readonly reference: string;
  readonly part: DetachedClaim;
}

/** One that the store has confirmed. */
interface OuterHold extends NamedHold {
  readonly info: ClaimInfo;
  /** When the store was asked. */
  readonly askedAt: number;
}

/** The references in the environment, innermost first. */
export function readReferences(env: NodeJS.ProcessEnv): string[] {
  return [env[REFERENCE_VARIABLE] ?? "", ...(env[ANCESTORS_VARIABLE] ?? "").split(" ")].filter((text) => text !== "");
}

/**
 * Separates the keys that outer runs hold from the keys to claim.
 * @throws CommandError deadlock (121) for a key that would wait for its own outer run
 */
export async function findOuterLocks(
  store: Store,
  request: RequestedLocks,
  env: NodeJS.ProcessEnv,
): Promise<SplitLocks> {
  const outerReferences = readReferences(env).flatMap((reference) =>
    decodeOuterReference(reference).map((part) => ({ reference, part })),
  );
  const outerLocks: OuterLock[] = [];
  const toClaim: string[] = [];
  for (const key of request.keys) {
    const wanted = toLockSpec(key, request.mode);
    const named = outerReferences.flatMap(({ reference, part }): NamedHold[] => {
      const spec = part.claim.locks.find((candidate) => candidate.key === key);
      return spec === undefined ? [] : [{ spec, reference, part }];
    });
    // what fits beside all of them needs no answer of the store
    const holds = resolveNesting(named, wanted, true) === "separate" ? [] : await findHolds(store, key, named);
    const [innermost] = holds;
    if (innermost === undefined) {
      toClaim.push(key);
      continue;
    }
    const nesting = resolveNesting(holds, wanted, true);
    if (nesting === "deadlock") throw toDeadlockError(key, innermost.info);
    if (nesting === "separate") toClaim.push(key);
    else outerLocks.push(toOuterLock(store, key, nesting));
  }
  return { outerLocks, toClaim };
}

/** The locks of outer runs on the key that the store confirms: the environment may be older than the end of its run. */
async function findHolds(store: Store, key: string, named: readonly NamedHold[]): Promise<readonly OuterHold[]> {
  const holds: OuterHold[] = [];
  for (const hold of named) {
    const askedAt = performance.now();
    const info = await findHeld(store, hold.part, key);
    // this store says nothing about the outer run's lock, and to wait for it could last for ever
    if (info === null && store.traits.list === "own") throw createUnknownHolderError(key);
    if (info !== null) holds.push({ ...hold, info, askedAt });
  }
  return holds;
}

function toOuterLock(store: Store, key: string, { reference, part, info, askedAt }: OuterHold): OuterLock {
  const { ttlMs } = part.claim;
  return {
    key,
    reference,
    token: part.token,
    leaseMs: ttlMs === "session" ? null : ttlMs,
    leaseEndsAt: leaseEnd(info, ttlMs, askedAt),
    async queryLeaseEnd() {
      const calledAt = performance.now();
      const current = await findHeld(store, part, key);
      return current === null ? null : leaseEnd(current, ttlMs, calledAt);
    },
  };
}

/**
 * Not later than the end by the store's clock: counted from before the query, and a share is left unused as for own
 * locks.
 */
function leaseEnd({ remainingMs }: ClaimInfo, ttlMs: Claim["ttlMs"], calledAt: number): number {
  if (remainingMs === null || ttlMs === "session") return Number.POSITIVE_INFINITY;
  return calledAt + remainingMs - (1 - BELIEVED_SHARE) * ttlMs;
}

function createUnknownHolderError(key: string): CommandError {
  return new CommandError(
    "deadlock",
    `deadlock: ${quoteKey(key)} is held by an outer run, and locks of this store cannot be joined: unset ${REFERENCE_VARIABLE} and ${ANCESTORS_VARIABLE} if that run has ended`,
  );
}

function toDeadlockError(key: string, { label, ageMs }: ClaimInfo): CommandError {
  const holder = label === "" ? "" : ` (${escapeControl(label)}, for ${formatDuration(ageMs)})`;
  const message = `deadlock: ${quoteKey(key)} is already held by an outer run${holder}`;
  return new CommandError("deadlock", message, { details: { ancestor: label } });
}

function decodeOuterReference(reference: string): readonly DetachedClaim[] {
  try {
    return decodeReference(reference);
  } catch (cause) {
    throw new CommandError(
      "usage",
      `${REFERENCE_VARIABLE} or ${ANCESTORS_VARIABLE} in the environment is damaged: unset both to run without joining outer runs`,
      {
        cause,
      },
    );
  }
}

/**
 * Runs inside runs. What an outer run holds stands in the environment as references; a nested run of such a key joins it,
 * if the store confirms that it is held, or fails at once where it could only wait for its own ancestor.
 */

import type { Locks } from "../../../client/locks.ts";
import { decodeReference } from "../../../protocol/decode-reference.ts";
import type { DetachedClaim } from "../../../protocol/lock-reference.ts";
import type { ClaimView, LockSpec } from "../../../spi/driver.ts";
import { ALL_PERMITS } from "../../../spi/driver.ts";
import { formatDuration } from "../../../util/duration.ts";
import { publicTag } from "../../../util/ids.ts";
import { CommandError } from "../../errors.ts";
import type { LockRequest } from "../../lock-request.ts";
import { toLockSpec } from "../../lock-request.ts";
import { escapeControl, quoteKey } from "../../output.ts";

/** The innermost run's reference: what `holdfast check` asks about. */
export const REFERENCE_VARIABLE = "HOLDFAST_REFERENCE";
/** The references of the runs around that one, innermost first, with blanks between. */
export const ANCESTORS_VARIABLE = "HOLDFAST_ANCESTORS";

/** A key that an outer run holds for us. */
export interface InheritedLock {
  readonly key: string;
  readonly reference: string;
  readonly token: bigint;
  /** The length of its lease; null where a session keeps it. */
  readonly leaseMs: number | null;
  /** When that lease ends by our clock unless it is renewed; Infinity where a session keeps it. */
  readonly leaseEndsAt: number;
  /** The same, asked of the store anew; null: it is not held any more. */
  queryLeaseEnd(): Promise<number | null>;
}

/** What of the wanted is held by outer runs, and what is left to claim. */
export interface SplitLocks {
  readonly inherited: readonly InheritedLock[];
  readonly toClaim: readonly string[];
}

/** References in the environment, innermost first. */
export function readReferences(env: NodeJS.ProcessEnv): string[] {
  return [env[REFERENCE_VARIABLE] ?? "", ...(env[ANCESTORS_VARIABLE] ?? "").split(" ")].filter((text) => text !== "");
}

/**
 * Tells the keys that an outer run holds from those to be claimed.
 * @throws CommandError deadlock (121) for a key that would wait for its own ancestor
 */
export async function splitInherited(locks: Locks, request: LockRequest, env: NodeJS.ProcessEnv): Promise<SplitLocks> {
  const ancestors = readReferences(env).flatMap((reference) =>
    decodeAncestor(reference).map((part) => ({ reference, part })),
  );
  const inherited: InheritedLock[] = [];
  const toClaim: string[] = [];
  for (const key of request.keys) {
    const spec = toLockSpec(key, request.mode);
    let match: InheritedLock | null = null;
    for (const { reference, part } of ancestors) {
      const held = part.claim.holds.find((hold) => hold.key === key);
      if (held === undefined || match !== null || compatibility(held, spec) === "beside") continue;
      const calledAt = performance.now();
      const view = await findHeldView(locks, part, key);
      // an environment outlives its run: what is not held any more is no ancestor's
      if (view === null) continue;
      if (compatibility(held, spec) === "behind") throw toDeadlockError(key, view);
      const leaseMs = view.ttlMs === "session" ? null : view.ttlMs;
      const queryLeaseEnd = async (): Promise<number | null> => {
        const calledAt = performance.now();
        const current = await findHeldView(locks, part, key);
        return current === null ? null : leaseEnd(current, calledAt);
      };
      match = { key, reference, token: part.token, leaseMs, leaseEndsAt: leaseEnd(view, calledAt), queryLeaseEnd };
    }
    if (match === null) toClaim.push(key);
    else inherited.push(match);
  }
  return { inherited, toClaim };
}

/** Not later than the store ends it: it told what was left after it was asked, and a tenth is kept as for locks of our own. */
function leaseEnd({ answer, ttlMs }: ClaimView, calledAt: number): number {
  if (answer.state !== "held" || ttlMs === "session") return Number.POSITIVE_INFINITY;
  return calledAt + answer.ttlMs - ttlMs / 10;
}

/** How a request meets what its own ancestor holds: it joins, could be granted beside it, or could only wait behind it. */
function compatibility(held: LockSpec, requested: LockSpec): "joins" | "beside" | "behind" {
  const isSemaphore = requested.limit < ALL_PERMITS;
  if (isSemaphore || held.limit < ALL_PERMITS)
    return held.permits + requested.permits > requested.limit ? "behind" : "beside";
  return held.permits >= requested.permits ? "joins" : "behind";
}

/** The view of a reference's claim if the store says that it is held; null if not. */
export async function findHeldView(
  locks: Locks,
  { claim, firstToken }: DetachedClaim,
  key: string,
): Promise<ClaimView | null> {
  const tag = publicTag(claim.id);
  const views = await locks.list(key);
  return (
    views.find((view) => view.tag === tag && view.answer.state === "held" && view.answer.token === firstToken) ?? null
  );
}

function toDeadlockError(key: string, { label, ageMs }: ClaimView): CommandError {
  const message = `${quoteKey(key)} is held for ${formatDuration(ageMs)} by ${escapeControl(label)}, which this run is a part of: it would wait for itself for ever`;
  return new CommandError("deadlock", message, { details: { ancestor: label } });
}

function decodeAncestor(reference: string): readonly DetachedClaim[] {
  try {
    return decodeReference(reference);
  } catch (cause) {
    throw new CommandError(
      "usage",
      `${REFERENCE_VARIABLE} or ${ANCESTORS_VARIABLE} in the environment is damaged: unset both to run without what they name`,
      {
        cause,
      },
    );
  }
}

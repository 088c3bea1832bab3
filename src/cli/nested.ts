/**
 * Runs inside runs. What an outer run holds stands in the environment as references; a nested run of such a key joins it,
 * if the store confirms that it is held, or fails at once where it could only wait for its own ancestor.
 */

import type { Locks } from "../client/locks.ts";
import { shownDuration } from "../duration.ts";
import { tagOf } from "../ids.ts";
import { readReference } from "../read-reference.ts";
import type { Referenced } from "../reference.ts";
import type { ClaimView, Hold } from "../spi/driver.ts";
import { ALL_PERMITS } from "../spi/driver.ts";
import { CommandError } from "./failure.ts";
import { quoted, visible } from "./output.ts";
import type { Wanted } from "./wanted.ts";
import { holdOf } from "./wanted.ts";

/** The innermost run's reference: what `holdfast check` asks about. */
export const REFERENCE = "HOLDFAST_REFERENCE";
/** The references of the runs around that one, innermost first, with blanks between. */
export const ANCESTORS = "HOLDFAST_ANCESTORS";

/** A key that an outer run holds for us. */
export interface Joined {
  readonly key: string;
  readonly reference: string;
  readonly token: bigint;
  /** The length of its lease; null where a session keeps it. */
  readonly leaseMs: number | null;
  /** When that lease ends by our clock unless it is renewed; Infinity where a session keeps it. */
  readonly heldUntil: number;
  /** The same, asked of the store anew; null: it is not held any more. */
  ask(): Promise<number | null>;
}

/** What of the wanted is held by outer runs, and what is left to claim. */
export interface Sorted {
  readonly joined: readonly Joined[];
  readonly rest: readonly string[];
}

/** References in the environment, innermost first. */
export function referencesIn(env: NodeJS.ProcessEnv): string[] {
  return [env[REFERENCE] ?? "", ...(env[ANCESTORS] ?? "").split(" ")].filter((text) => text !== "");
}

/**
 * Tells the keys that an outer run holds from those to be claimed.
 * @throws CommandError deadlock (121) for a key that would wait for its own ancestor
 */
export async function sortOut(locks: Locks, wanted: Wanted, env: NodeJS.ProcessEnv): Promise<Sorted> {
  const ancestors = referencesIn(env).flatMap((reference) => read(reference).map((part) => ({ reference, part })));
  const joined: Joined[] = [];
  const rest: string[] = [];
  for (const key of wanted.keys) {
    const want = holdOf(key, wanted.mode);
    let found: Joined | null = null;
    for (const { reference, part } of ancestors) {
      const held = part.claim.holds.find((hold) => hold.key === key);
      if (held === undefined || found !== null || meets(held, want) === "beside") continue;
      const askedAt = performance.now();
      const view = await heldView(locks, part, key);
      // an environment outlives its run: what is not held any more is no ancestor's
      if (view === null) continue;
      if (meets(held, want) === "behind") throw ownAncestor(key, view);
      const leaseMs = view.ttlMs === "session" ? null : view.ttlMs;
      const ask = async (): Promise<number | null> => {
        const at = performance.now();
        const now = await heldView(locks, part, key);
        return now === null ? null : heldUntil(now, at);
      };
      found = { key, reference, token: part.token, leaseMs, heldUntil: heldUntil(view, askedAt), ask };
    }
    if (found === null) rest.push(key);
    else joined.push(found);
  }
  return { joined, rest };
}

/** Not later than the store ends it: it told what was left after it was asked, and a tenth is kept as for locks of our own. */
function heldUntil({ answer, ttlMs }: ClaimView, askedAt: number): number {
  if (answer.state !== "held" || ttlMs === "session") return Number.POSITIVE_INFINITY;
  return askedAt + answer.ttlMs - ttlMs / 10;
}

/** How a request meets what its own ancestor holds: it joins, could be granted beside it, or could only wait behind it. */
function meets(held: Hold, want: Hold): "joins" | "beside" | "behind" {
  const semaphore = want.limit < ALL_PERMITS;
  if (semaphore || held.limit < ALL_PERMITS) return held.permits + want.permits > want.limit ? "behind" : "beside";
  return held.permits >= want.permits ? "joins" : "behind";
}

/** The view of a reference's claim if the store says that it is held; null if not. */
export async function heldView(locks: Locks, { claim, run }: Referenced, key: string): Promise<ClaimView | null> {
  const tag = tagOf(claim.id);
  const views = await locks.list(key);
  return views.find((view) => view.tag === tag && view.answer.state === "held" && view.answer.token === run) ?? null;
}

function ownAncestor(key: string, { label, ageMs }: ClaimView): CommandError {
  const message = `${quoted(key)} is held for ${shownDuration(ageMs)} by ${visible(label)}, which this run is a part of: it would wait for itself for ever`;
  return new CommandError("deadlock", message, { details: { ancestor: label } });
}

function read(reference: string): readonly Referenced[] {
  try {
    return readReference(reference);
  } catch (cause) {
    throw new CommandError(
      "usage",
      `${REFERENCE} or ${ANCESTORS} in the environment is damaged: unset both to run without what they name`,
      {
        cause,
      },
    );
  }
}

/** References on the command line: the variable that has one, and whether the store still holds its claim. */

import type { DetachedClaim } from "../protocol/lock-reference.ts";
import type { ClaimInfo } from "../spi/claim-info.ts";
import { toClaimInfo } from "../spi/claim-info.ts";
import type { ClaimView, Driver } from "../spi/driver.ts";
import { publicTag } from "../util/ids.ts";
import { createSilenceError, toCallError } from "./errors.ts";
import type { Store } from "./open-store.ts";
import { resultWithin } from "./timeout.ts";

/** A reference; within a run that of its lock. */
export const REFERENCE_VARIABLE = "HOLDFAST_REFERENCE";

const LOOKUP_TIMEOUT_MS = 10_000;
/** How many claims of a queue are read at first: nearly always all of them. */
const FIRST_LIST_SIZE = 1_000;

/**
 * A reference's claim as listed, if the store reports it as held in the queue of `key`; otherwise null. Its label is ""
 * and its age 0 if the store reads these of the first claim of a queue only.
 * @throws CommandError unreachable, refused
 */
export async function findHeld(
  { driver, name }: Pick<Store, "driver" | "name">,
  { claim, firstToken }: DetachedClaim,
  key: string,
): Promise<ClaimInfo | null> {
  const abort = new AbortController();
  const lookup = findInQueue(driver, key, publicTag(claim.id), abort.signal).catch((error: unknown) => {
    throw toCallError(error, name);
  });
  const view = await resultWithin(LOOKUP_TIMEOUT_MS, lookup);
  abort.abort();
  if (view === undefined) throw createSilenceError(name);
  if (view?.answer.state !== "held") return null;
  const info = toClaimInfo(view);
  // some stores list the token of the first claim of a queue only
  return info.token === null || info.token === firstToken ? info : null;
}

/** Reads more at once instead of in pages: a list may start again if the claim at which its page ended has gone. */
async function findInQueue(driver: Driver, key: string, tag: string, signal: AbortSignal): Promise<ClaimView | null> {
  for (let max = FIRST_LIST_SIZE; ; max *= 4) {
    signal.throwIfAborted();
    const { items, next } = await driver.list({ key }, { max, signal });
    const found = items.find((view) => view.tag === tag);
    if (found !== undefined || next === undefined) return found ?? null;
  }
}

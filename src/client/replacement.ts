/**
 * The option `replace` of acquire(): a request that waits revokes who holds its keys. Loaded when one first waits.
 *
 *   1  its claim enters the queue of the store like any other
 *   2  if the store answers that it waits, the holders of its keys are read and revoked. They are told at their next
 *      contact with the store, and the keys stay locked until they have ended, or their leases have
 *   3  while it waits, this is repeated: a claim that was ahead of it is revoked when it holds a key
 *
 * Invariants
 * - A revocation names the token that was read: a holder that came since is not revoked in place of the one before, but
 *   by the next look.
 * - Only a claim that waits behind the holder revokes it, so a holder is replaced by a newer request, never by an older
 *   one. Of several that replace each gets the lock, in order of arrival; the newest one keeps it.
 * - Nothing is revoked for a request that has its lock, or has left: no look or revocation is sent after that.
 */

import { isFatalError, UnsupportedError } from "../errors.ts";
import type { RevokeTarget } from "../spi/driver.ts";
import { publicTag } from "../util/ids.ts";
import { cleanLabel } from "../util/keys.ts";
import { sleep } from "../util/timeout.ts";
import type { ActiveClaim } from "./engine.ts";
import type { ClientContext } from "./local-queue.ts";
import type { Waiter } from "./waiter.ts";

/** How long a claim that was ahead may hold a key before it is revoked. */
const LOOK_INTERVAL_MS = 500;
const REVOKE_TIMEOUT_MS = 5_000;

/**
 * Settles when the request waits no longer. Rejects it with UnsupportedError if the store refuses to revoke.
 * @param findOwnClaim returns the claim of the request; null: none waits at the moment
 */
export async function replaceHolders(
  context: ClientContext,
  waiter: Waiter,
  findOwnClaim: () => ActiveClaim | null,
): Promise<void> {
  const revoked = new Set<string>();
  while (waiter.queue !== null) {
    try {
      await revokeHolders(context, waiter, findOwnClaim, revoked);
    } catch (error) {
      // unless it refuses, the store is asked again, as for the claim itself
      if (isFatalError(error)) waiter.queue?.withdraw(waiter, toRefusedError(error as Error, waiter));
    }
    if (waiter.queue !== null) await sleep(context.engine.scheduler, LOOK_INTERVAL_MS);
  }
}

async function revokeHolders(
  { engine, queueReader }: ClientContext,
  waiter: Waiter,
  findOwnClaim: () => ActiveClaim | null,
  revoked: Set<string>,
): Promise<void> {
  const reason = cleanLabel(`replaced by ${waiter.settings.label}`);
  for (const { key } of waiter.target.locks) {
    const { views } = await queueReader.read(key, true);
    // another one than before the look, if it had lost its place. Its grant may be on the way
    const ownClaim = findOwnClaim();
    if (ownClaim === null) return;
    const ownTag = publicTag(ownClaim.claim.id);
    const targets: (RevokeTarget & { readonly tag: string })[] = [];
    for (const { answer, tag } of views) {
      if (answer.state !== "held" || tag === ownTag || revoked.has(tag)) continue;
      targets.push({ key, token: answer.token, now: false, reason, tag });
    }
    if (targets.length === 0) continue;
    const wereHeld = await engine.scheduler.waitForCall(REVOKE_TIMEOUT_MS, () => {
      // the request may have left, or have been granted, since the look
      if (waiter.queue === null) return Promise.resolve([]);
      const { driver } = engine;
      return (driver.revoke as NonNullable<typeof driver.revoke>)(targets);
    });
    for (const [index, { tag }] of targets.entries()) if (wereHeld[index] === true) revoked.add(tag);
  }
  // a holder in this process need not wait for its next renewal to learn of it
  for (const { claim } of engine.listClaims()) if (revoked.has(publicTag(claim.id))) engine.recheck(claim.id);
}

function toRefusedError(error: Error, { target: { keys } }: Waiter): UnsupportedError {
  return new UnsupportedError(`cannot replace the holder: ${error.message}`, { keys, cause: error });
}

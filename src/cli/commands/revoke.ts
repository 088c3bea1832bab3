/** `holdfast revoke KEY --token T`: revokes the lock of the holder with that token. */

import type { ClaimView } from "../../spi/driver.ts";
import { formatDuration } from "../../util/duration.ts";
import { validateKey } from "../../util/keys.ts";
import { CommandError, toCommandError } from "../errors.ts";
import type { Store } from "../open-store.ts";
import { listClaims, openStore } from "../open-store.ts";
import { createReporter, escapeControl, formatJsonLine, printLine, quoteKey } from "../output.ts";
import type { StoreFlags } from "../store-choice.ts";
import { describeHolders } from "./show.ts";

/** Flags of `revoke`. */
export interface RevokeFlags extends StoreFlags {
  readonly json?: boolean;
  readonly quiet?: boolean;
  readonly token?: string;
  readonly now?: boolean;
  readonly reason?: string;
}

/**
 * Revokes a lock, or with --now removes it at once, and prints its holder.
 * @throws CommandError lost (123) if no holder of the key has that token, refused (77), usage
 */
export async function revokeCommand(key: string, flags: RevokeFlags): Promise<number> {
  validateKey(key);
  const store = await openStore(flags, { order: "strict" });
  try {
    const queue = await listQueue(store, key);
    const token = parseToken(flags.token, key, queue);
    const holder = queue.find((view) => hasToken(view, token));
    const now = flags.now === true;
    const options = { now, ...(flags.reason !== undefined && { reason: flags.reason }) };
    const isRevoked = await store.locks.revoke(key, token, options).catch((error: unknown) => {
      throw toCommandError(error, store.name);
    });
    if (!isRevoked) throw notHeldError(key, token, await listQueue(store, key));
    const details = {
      revoked: true,
      removed: now,
      key,
      token,
      holder: holder?.label ?? null,
      tag: holder?.tag ?? null,
    };
    if (flags.json === true) printLine(formatJsonLine(details));
    else createReporter(flags).info(describeResult(key, token, holder, now));
    return 0;
  } finally {
    await store.close();
  }
}

async function listQueue(store: Store, key: string): Promise<readonly ClaimView[]> {
  return (await listClaims(store, key)).items.filter(({ locks }) => locks.some((spec) => spec.key === key));
}

function hasToken({ answer }: ClaimView, token: bigint): boolean {
  return answer.state === "held" && token >= answer.token && token < answer.token + BigInt(answer.tokenCount);
}

/** @throws CommandError usage, with the holders and their tokens */
function parseToken(text: string | undefined, key: string, queue: readonly ClaimView[]): bigint {
  if (text !== undefined && /^\d{1,19}$/.test(text)) return BigInt(text);
  const problem =
    text === undefined ? "revoke needs --token, the token of the holder" : "--token must be a decimal number";
  throw new CommandError("usage", `${problem}; ${describeHolders(key, queue)}; nothing was changed`);
}

function notHeldError(key: string, token: bigint, queue: readonly ClaimView[]): CommandError {
  const isRevoked = queue.some((view) => hasToken(view, token));
  const problem = isRevoked
    ? `the lock on ${quoteKey(key)} with token ${token} is revoked already, but not released yet; --now frees it`
    : `no holder of ${quoteKey(key)} has token ${token}: ${describeHolders(key, queue)}`;
  const details = { reason: isRevoked ? "revoked" : "token", keys: [key] };
  return new CommandError("lost", `${problem}; nothing was changed`, { details });
}

/** What was done, and what it means for the holder and for the next one. */
function describeResult(key: string, token: bigint, holder: ClaimView | undefined, now: boolean): string {
  const holderText = holder === undefined ? "its holder" : escapeControl(holder.label);
  const otherKeys = (holder?.locks.length ?? 1) - 1;
  const otherKeysText =
    otherKeys === 0 ? "" : ` (and ${otherKeys} other ${otherKeys === 1 ? "key" : "keys"} of the same claim)`;
  if (now) {
    return (
      `${quoteKey(key)}${otherKeysText} was taken from ${holderText} (token ${token}), which may still be working: ` +
      "the next holder works at the same time, unless the resource refuses lower tokens"
    );
  }
  const endText =
    holder === undefined || holder.answer.state !== "held" || holder.ttlMs === "session"
      ? "its session ends"
      : `its lease ends in ${formatDuration(holder.answer.remainingMs)}`;
  return `revoked the lock of ${holderText} on ${quoteKey(key)}${otherKeysText} (token ${token}): it is free when its holder has released it, or when ${endText}`;
}

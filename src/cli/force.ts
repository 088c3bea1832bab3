/** `holdfast release --force KEY --token T`: takes a lock back from whoever holds it with that token (design A.24). */

import { shownDuration } from "../duration.ts";
import { checkedKey } from "../keys.ts";
import type { ClaimView } from "../spi/driver.ts";
import { CommandError, commandError } from "./failure.ts";
import { jsonLine, print, quoted, visible } from "./output.ts";
import { heldInWords } from "./show.ts";
import type { Store } from "./store.ts";
import { openStore } from "./store.ts";
import { claimsOf } from "./tools.ts";
import { voiceOf } from "./voice.ts";

/** Flags of `release` with --force. */
export interface ForceFlags {
  readonly url?: string;
  readonly json?: boolean;
  readonly quiet?: boolean;
  readonly token?: string;
  readonly now?: boolean;
  readonly reason?: string;
}

/**
 * Revokes a hold, or removes it at once, and says to whom that happened.
 * @throws CommandError: lost (123) if nobody holds the key with that token, refused (77), usage
 */
export async function forceRelease(key: string, flags: ForceFlags): Promise<number> {
  checkedKey(key);
  const store = await openStore(flags.url, { handoffs: 1 });
  try {
    const line = await lineOf(store, key);
    const token = tokenFrom(flags.token, key, line);
    const holder = line.find((view) => hasToken(view, token));
    const now = flags.now === true;
    const options = { now, ...(flags.reason !== undefined && { reason: flags.reason }) };
    const done = await store.locks.revoke(key, token, options).catch((error: unknown) => {
      throw commandError(error, store.name);
    });
    if (!done) throw notHeld(key, token, await lineOf(store, key));
    const details = {
      revoked: true,
      removed: now,
      key,
      token,
      holder: holder?.label ?? null,
      tag: holder?.tag ?? null,
    };
    if (flags.json === true) print(jsonLine(details));
    else voiceOf(flags).tell(doneInWords(key, token, holder, now));
    return 0;
  } finally {
    await store.locks.close();
  }
}

async function lineOf(store: Store, key: string): Promise<readonly ClaimView[]> {
  return (await claimsOf(store, key)).filter(({ holds }) => holds.some((hold) => hold.key === key));
}

function hasToken({ answer }: ClaimView, token: bigint): boolean {
  return answer.state === "held" && token >= answer.token && token < answer.token + BigInt(answer.tokens);
}

/** @throws CommandError usage, with the tokens that there are */
function tokenFrom(text: string | undefined, key: string, line: readonly ClaimView[]): bigint {
  if (text !== undefined && /^\d{1,19}$/.test(text)) return BigInt(text);
  const wrong = text === undefined ? "--force needs --token: whose hold is meant" : "--token must be a decimal number";
  throw new CommandError("usage", `${wrong}; ${heldInWords(key, line)}; nothing was changed`);
}

function notHeld(key: string, token: bigint, line: readonly ClaimView[]): CommandError {
  const isRevoked = line.some((view) => hasToken(view, token));
  const why = isRevoked
    ? `whoever holds ${quoted(key)} with token ${token} was asked to give it back already; --now takes it`
    : `no hold of ${quoted(key)} has token ${token}: ${heldInWords(key, line)}`;
  const details = { reason: isRevoked ? "revoked" : "token", keys: [key] };
  return new CommandError("lost", `${why}; nothing was changed`, { details });
}

/** What was done, and what it means for whoever had the lock. */
function doneInWords(key: string, token: bigint, holder: ClaimView | undefined, now: boolean): string {
  const who = holder === undefined ? "its holder" : visible(holder.label);
  const other = (holder?.holds.length ?? 1) - 1;
  const also = other === 0 ? "" : ` (and ${other} other ${other === 1 ? "key" : "keys"} of the same claim)`;
  if (now) {
    return (
      `${quoted(key)}${also} was taken from ${who} (token ${token}). It may still be working: whoever gets the lock now ` +
      "works beside it, unless what they write to refuses older tokens"
    );
  }
  const end =
    holder === undefined || holder.answer.state !== "held" || holder.ttlMs === "session"
      ? "its session ends"
      : `its lease ends in ${shownDuration(holder.answer.ttlMs)}`;
  return `${who} was asked to give ${quoted(key)}${also} back (token ${token}): nobody else gets it until it has, or until ${end}`;
}

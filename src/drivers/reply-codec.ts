/**
 * Decodes the replies of stores that answer with text: Redis scripts, and the functions and procedures of databases.
 *
 *   h <token> <tokens> <remaining ms> <store ms> [<grace end>]    held
 *   r <token> <tokens> <remaining ms> <store ms> [<grace end>]    held and recalled: another claim waits for it
 *   w <remaining ms> <recheck ms> <store ms> [<grace end>]        waiting
 *   q <remaining ms> <recheck ms> <store ms> <waiters ahead>      waiting; behind so many waiters at most
 *   n [<end reason>]                                              none
 *   p <grace end> <store ms>                                      none, because of a grace period
 *   b <grace end>                                                 none: the store has lost data and does not know the claim
 *   f                                                             the token floor is refused
 *
 * <grace end> and <store ms> are milliseconds of the store's wall clock.
 */

import { StoreRefusedError } from "../errors.ts";
import type { Answer, EndReason, Pause } from "../spi/driver.ts";

/**
 * The answer that a reply contains. `driverName` begins the messages.
 * @throws StoreRefusedError for a refused floor, Error for an unexpected reply
 */
export function decodeAnswer(reply: unknown, driverName: string): Answer {
  const [state, field1, field2, field3, field4] = String(reply).split(" ");
  switch (state) {
    case "h":
    case "r":
      return {
        state: "held",
        token: BigInt(field1 as string),
        tokenCount: Number(field2),
        remainingMs: Number(field3),
        storeTimeMs: Number(field4),
        ...(state === "r" && { recalled: true }),
      };
    case "w":
    case "q":
      return {
        state: "waiting",
        remainingMs: Number(field1),
        recheckMs: Number(field2),
        storeTimeMs: Number(field3),
        ...(state === "w" && field4 !== undefined && { paused: toGracePause(Number(field4), Number(field3)) }),
      };
    case "p":
      return { state: "none", paused: toGracePause(Number(field1), Number(field2)) };
    case "b":
      return { state: "none" };
    case "n":
      return field1 === undefined ? { state: "none" } : { state: "none", reason: field1 as EndReason };
    case "f":
      throw new StoreRefusedError(`${driverName}: the token floor is more than a day ahead of the store's clock`);
    default:
      throw new Error(`${driverName}: unexpected reply: ${String(reply).slice(0, 80)}`);
  }
}

/** Both times are of the store's clock. */
function toGracePause(graceEndsAt: number, storeTimeMs: number): Pause {
  return { reason: "gracePeriod", remainingMs: Math.max(graceEndsAt - storeTimeMs, 1) };
}

/** The end of the grace period that a reply reports: milliseconds of the store's wall clock. Null: no grace period. */
export function parseGraceEnd(reply: unknown): string | null {
  const fields = String(reply).split(" ");
  if (fields[0] === "q") return null;
  return (
    (fields[0] === "b" || fields[0] === "p" ? fields[1] : fields[fields[0] === "h" || fields[0] === "r" ? 5 : 4]) ??
    null
  );
}

/** How many waiters are ahead of a waiting claim at most; null: the reply does not say. */
export function parseWaitersAhead(reply: unknown): number | null {
  const fields = String(reply).split(" ");
  return fields[0] === "q" ? Number(fields[4]) : null;
}

/** Whether the store has lost data and does not know the claim: if it was held, it can be restored. */
export function isForgottenReply(reply: unknown): boolean {
  return String(reply).startsWith("b ");
}

/**
 * Whether a store that has lost data reports the claim as waiting. If the claim was granted before, a replica was
 * promoted that had missed the grant. The answer cannot be older than the grant, because a grace period grants nothing.
 */
export function isMissedGrantReply(reply: unknown): boolean {
  return String(reply).startsWith("w ") && parseGraceEnd(reply) !== null;
}

/** "101": one flag for each item; then, one on each line, the pushes for the caller's inbox. */
export function decodeFlags(
  reply: unknown,
  count: number,
  driverName: string,
): { readonly flags: boolean[]; readonly pushes: string[] } {
  const [flags = "", ...pushes] = String(reply).split("\n");
  // "QUEUED": the client is inside a MULTI of its user
  if (flags.length !== count || /[^01]/.test(flags)) {
    throw new Error(`${driverName}: the store answered for ${flags.length} of ${count} items: ${flags.slice(0, 20)}`);
  }
  return { flags: Array.from(flags, (flag) => flag === "1"), pushes };
}

/** What a push says of a claim: its answer; that it is recalled; or, with neither, that asking is worthwhile. */
export interface DecodedPush {
  readonly id: string;
  readonly answer?: Answer;
  readonly isRecall?: true;
  /** Where Redis has the claim: the bucket and name of its first key. Other stores do not say. */
  readonly bucketAndKey?: string;
}

/**
 * A push: "<id> <token> <tokens> <remaining ms>" is a grant, with "r" after it one for which another claim waits already, with
 * "h,<id>,<id>" one with successors; "<id> recalled"; and "<id>" a recheck push. Redis adds <bucket><first key> to the first two, which may
 * contain spaces, and then a grant has "h" at least. Null: none of these.
 */
export function decodePush(message: string): DecodedPush | null {
  const [id = "", token, tokens, remainingMs, flags = "", ...rest] = message.split(" ");
  if (id === "") return null;
  if (token === "recalled") return { id, isRecall: true, ...toBucketAndKey(message.slice(`${id} recalled `.length)) };
  if (remainingMs === undefined) return { id };
  return {
    id,
    ...toBucketAndKey(rest.join(" ")),
    answer: {
      state: "held",
      token: BigInt(token as string),
      tokenCount: Number(tokens),
      remainingMs: Number(remainingMs),
      ...(flags === "r" && { recalled: true }),
      ...(flags.startsWith("h,") && { successors: flags.slice(2).split(",") }),
    },
  };
}

function toBucketAndKey(text: string): { readonly bucketAndKey?: string } {
  return text === "" ? {} : { bucketAndKey: text };
}

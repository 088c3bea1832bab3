/** What the scripts are told, and what they say. lua/lib.lua has the names and forms. */

import { FatalDriverError } from "../../errors.ts";
import type { Answer, Claim, EndReason, Pause } from "../../spi/driver.ts";
import { crc16 } from "./crc16.ts";
import type { Script } from "./scripts.ts";
import { CLAIM, DETACH, RENEW, RESTORE } from "./scripts.ts";

/** The number of our layout: in every key and channel, so that no two layouts serve one prefix. */
export const LAYOUT_VERSION = "1";

/** How many hash tags the keys are spread over, on every topology. */
const BUCKET_COUNT = 256;
const BUCKET_NAMES: readonly string[] = Array.from({ length: BUCKET_COUNT }, (_, index) =>
  index.toString(16).padStart(2, "0"),
);

/** Every bucket there is. */
export const ALL_BUCKETS: readonly string[] = BUCKET_NAMES;

/** The bucket of a key: two hexadecimal digits, the same in every client and version. */
export function toBucket(key: string): string {
  return BUCKET_NAMES[crc16(key) & (BUCKET_COUNT - 1)] as string;
}

/** Where a call goes: any name of its bucket. */
export function toRoutingKey(namePrefix: string, bucket: string): string {
  return `${namePrefix}{${bucket}}:n`;
}

/**
 * The keys that a call of a script names, and before them how many. In a Cluster one that never is goes along: while a slot
 * moves, Redis then refuses our scripts on both its nodes (TRYAGAIN). Else they would run where a part of the bucket's keys
 * is: whoever holds would not be seen.
 */
export function toScriptKeys(routingKey: string, isCluster: boolean): readonly string[] {
  return isCluster ? ["2", routingKey, `${routingKey}ever`] : ["1", routingKey];
}

/**
 * The command that says something to the inbox of a route. In a Cluster a script does, as with grants: ioredis takes a
 * sharded channel for a key, and puts a prefix of its own before it.
 */
export function buildPublishCommand(
  routingKey: string,
  channel: string,
  message: string,
  isCluster: boolean,
): string[] {
  if (!isCluster) return ["PUBLISH", channel, message];
  return [
    "EVAL",
    "return redis.call('SPUBLISH', ARGV[1], ARGV[2])",
    ...toScriptKeys(routingKey, true),
    channel,
    message,
  ];
}

/** The birth record of a bucket (guardDataLoss; lua/lib/grace.lua). */
export function toRunRecordKey(routingKey: string): string {
  return `${routingKey.slice(0, routingKey.indexOf("}") + 1)}:b`;
}

const encodedClaims = new WeakMap<Claim, readonly string[]>();

/** A claim as every script takes it: id, ttl, count, then bucket, key, permits and limit of each hold. */
export function encodeClaim(claim: Claim): readonly string[] {
  let args = encodedClaims.get(claim);
  if (args === undefined) {
    const lockFields = claim.holds.flatMap(({ key, permits, limit }) => [
      toBucket(key),
      key,
      String(permits),
      String(limit),
    ]);
    args = [claim.id, String(claim.ttlMs), String(claim.holds.length), ...lockFields];
    encodedClaims.set(claim, args);
  }
  return args;
}

/** The bucket of a claim: that of its first key. */
export function toClaimBucket(claim: Claim): string {
  return encodeClaim(claim)[3] as string;
}

/** What only `claim` tells: tokens, floor, waits, label, and the holds as the record keeps them. */
export function encodeClaimDetails(claim: Claim, defaultLabel = ""): readonly string[] {
  const { holds, tokens, floor, wait, label } = claim;
  const lockRows = holds.map(({ key, permits, limit }) => [toBucket(key), key, String(permits), String(limit)]);
  return [
    String(tokens),
    String(floor),
    wait ? "1" : "0",
    label || defaultLabel,
    holds.length > 1 ? JSON.stringify(lockRows) : "",
  ];
}

/** @throws FatalDriverError for a refused floor, Error for what no script of ours says */
export function decodeAnswer(reply: unknown): Answer {
  const [state, field1, field2, field3, field4] = String(reply).split(" ");
  switch (state) {
    case "h":
      return {
        state: "held",
        token: BigInt(field1 as string),
        tokens: Number(field2),
        ttlMs: Number(field3),
        storeMs: Number(field4),
      };
    case "w":
      return {
        state: "waiting",
        ttlMs: Number(field1),
        recheckMs: Number(field2),
        storeMs: Number(field3),
        ...(field4 !== undefined && { paused: toGracePause(Number(field4), Number(field3)) }),
      };
    case "p":
      return { state: "none", paused: toGracePause(Number(field1), Number(field2)) };
    case "b":
      return { state: "none" };
    case "n":
      return field1 === undefined ? { state: "none" } : { state: "none", reason: field1 as EndReason };
    case "f":
      throw new FatalDriverError("redis: the token floor is more than a day ahead of the store's clock");
    default:
      throw new Error(`redis: unexpected script reply: ${String(reply).slice(0, 80)}`);
  }
}

/** A store that may have lost data grants nothing new until then; both times are its own. */
function toGracePause(graceEndsAt: number, storeTimeMs: number): Pause {
  return { reason: "gracePeriod", remainingMs: Math.max(graceEndsAt - storeTimeMs, 1) };
}

/** Does this answer let somebody believe that a claim is held? */
export function isHeldReply(script: Script, reply: unknown): boolean {
  if (script === DETACH) return String(reply).includes("1");
  if (script === CLAIM) return String(reply).startsWith("h ");
  return (script === RENEW || script === RESTORE) && [reply].flat().some((item) => String(item).startsWith("h "));
}

/** Does this answer tell somebody to wait? */
export function isWaitingReply(script: Script, reply: unknown): boolean {
  if (script === CLAIM) return String(reply).startsWith("w ");
  return script === RENEW && [reply].flat().some((item) => String(item).startsWith("w "));
}

/** From when on a store that forgot grants new claims, if an answer says so: its wall clock in milliseconds. */
export function parseGraceEnd(reply: unknown): string | null {
  const fields = String(reply).split(" ");
  return (fields[0] === "b" || fields[0] === "p" ? fields[1] : fields[fields[0] === "h" ? 5 : 4]) ?? null;
}

/** May this claim be placed anew? */
export function isForgottenReply(reply: unknown): boolean {
  return String(reply).startsWith("b ");
}

/**
 * Does a store that has forgotten take this claim for one that waits? If it was granted, a replica was promoted that had
 * missed the grant: nothing is granted meanwhile, so it is no answer from before the grant.
 */
export function isMissedGrantReply(reply: unknown): boolean {
  return String(reply).startsWith("w ") && parseGraceEnd(reply) !== null;
}

/** "101": what was there; then, a line each, what the inbox would have heard. */
export function decodeFlags(reply: unknown, count: number): { readonly flags: boolean[]; readonly pushes: string[] } {
  const [flags = "", ...pushes] = String(reply).split("\n");
  // "QUEUED": the client is within somebody else's MULTI
  if (flags.length !== count || /[^01]/.test(flags)) {
    throw new Error(`redis: a script answered for ${flags.length} of ${count} items: ${flags.slice(0, 20)}`);
  }
  return { flags: Array.from(flags, (flag) => flag === "1"), pushes };
}

/** A push: "<id> <token> <tokens> <ttl>" is a grant, "<id>" a nudge. Null: it is none of ours. */
export function decodePush(message: string): { readonly id: string; readonly answer?: Answer } | null {
  const [id = "", token, tokens, ttlMs] = message.split(" ");
  if (id === "") return null;
  if (ttlMs === undefined) return { id };
  return {
    id,
    answer: { state: "held", token: BigInt(token as string), tokens: Number(tokens), ttlMs: Number(ttlMs) },
  };
}

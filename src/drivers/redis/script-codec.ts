/** Encodes script arguments and decodes script replies. lua/lib/prelude.lua describes the keys, lua/lib/records.lua the formats. */

import { FatalDriverError } from "../../errors.ts";
import type { Answer, Claim, EndReason, Pause } from "../../spi/driver.ts";
import { crc16 } from "./hash-slot.ts";
import type { Script } from "./scripts.ts";
import { CLAIM, DETACH, RENEW, RESTORE } from "./scripts.ts";

/** The layout version. It is part of every key and channel, so that no two layouts share a prefix. */
export const LAYOUT_VERSION = "1";

/** Number of hash tags over which keys are spread, with and without Cluster. */
const BUCKET_COUNT = 256;
const BUCKET_NAMES: readonly string[] = Array.from({ length: BUCKET_COUNT }, (_, index) =>
  index.toString(16).padStart(2, "0"),
);

export const ALL_BUCKETS: readonly string[] = BUCKET_NAMES;

/** The bucket of a key: two hexadecimal digits. Every client and version must compute the same. */
export function toBucket(key: string): string {
  return BUCKET_NAMES[crc16(key) & (BUCKET_COUNT - 1)] as string;
}

/** The prefix of all keys and channels except the layout key: "holdfast:1:". */
export function toNamePrefix({ prefix = "holdfast" }: { readonly prefix?: string }): string {
  return `${prefix}:${LAYOUT_VERSION}:`;
}

/** The key that keeps the layout version of a prefix. */
export function toLayoutKey({ prefix = "holdfast" }: { readonly prefix?: string }): string {
  return `${prefix}:{00}:layout`;
}

/** Sends a command. `routingKey`: any key of its bucket. */
export type SendCommand = (args: string[], routingKey: string) => Promise<unknown>;

/** Runs a script. `routingKey`: any key of its bucket. */
export type RunScript = (script: Script, routingKey: string, args: readonly string[]) => Promise<unknown>;

/** A key of the bucket, by which a call is routed. */
export function toRoutingKey(namePrefix: string, bucket: string): string {
  return `${namePrefix}{${bucket}}:n`;
}

/**
 * The KEYS of a script call, preceded by their number. In a Cluster a second key, which never exists, makes Redis
 * refuse scripts on both nodes while a slot moves (TRYAGAIN). Without it a script would run where only a part of the
 * bucket's keys is, and would not see the holders of the others.
 */
export function toScriptKeys(routingKey: string, isCluster: boolean): readonly string[] {
  return isCluster ? ["2", routingKey, `${routingKey}ever`] : ["1", routingKey];
}

/**
 * The command that publishes to an inbox. In a Cluster a script publishes, as for grants: ioredis takes a sharded
 * channel for a key and would add its keyPrefix.
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

/** A name with the hash tag of the routing key, so in the same slot. */
export function toSiblingKey(routingKey: string, name: string): string {
  return `${routingKey.slice(0, routingKey.indexOf("}") + 1)}:${name}`;
}

/** The run record of a bucket (guardDataLoss, see lua/lib/grace.lua). */
export function toRunRecordKey(routingKey: string): string {
  return toSiblingKey(routingKey, "b");
}

const encodedClaims = new WeakMap<Claim, readonly string[]>();

/** The arguments of a claim in every script: id, ttl, count, then bucket, key, permits and limit of each lock. */
export function encodeClaim(claim: Claim): readonly string[] {
  let args = encodedClaims.get(claim);
  if (args === undefined) {
    const lockFields = claim.locks.flatMap(({ key, permits, limit }) => [
      toBucket(key),
      key,
      String(permits),
      String(limit),
    ]);
    args = [claim.id, String(claim.ttlMs), String(claim.locks.length), ...lockFields];
    encodedClaims.set(claim, args);
  }
  return args;
}

/** The bucket of a claim is that of its first key. */
export function toClaimBucket(claim: Claim): string {
  return encodeClaim(claim)[3] as string;
}

/** The further arguments of claim.lua: tokens, floor, waits, label, and the locks as JSON, as the record keeps them. */
export function encodeClaimDetails(claim: Claim, defaultLabel = ""): readonly string[] {
  const { locks, tokenCount, floor, wait, label } = claim;
  const lockRows = locks.map(({ key, permits, limit }) => [toBucket(key), key, String(permits), String(limit)]);
  return [
    String(tokenCount),
    String(floor),
    wait ? "1" : "0",
    label || defaultLabel,
    locks.length > 1 ? JSON.stringify(lockRows) : "",
  ];
}

/** @throws FatalDriverError for a refused floor, Error for an unexpected reply */
export function decodeAnswer(reply: unknown): Answer {
  const [state, field1, field2, field3, field4] = String(reply).split(" ");
  switch (state) {
    case "h":
      return {
        state: "held",
        token: BigInt(field1 as string),
        tokenCount: Number(field2),
        remainingMs: Number(field3),
        storeTimeMs: Number(field4),
      };
    case "w":
      return {
        state: "waiting",
        remainingMs: Number(field1),
        recheckMs: Number(field2),
        storeTimeMs: Number(field3),
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

/** Both times are of the store's clock. */
function toGracePause(graceEndsAt: number, storeTimeMs: number): Pause {
  return { reason: "gracePeriod", remainingMs: Math.max(graceEndsAt - storeTimeMs, 1) };
}

/** Whether the reply reports a claim as held. */
export function isHeldReply(script: Script, reply: unknown): boolean {
  if (script === DETACH) return String(reply).includes("1");
  if (script === CLAIM) return String(reply).startsWith("h ");
  return (script === RENEW || script === RESTORE) && [reply].flat().some((item) => String(item).startsWith("h "));
}

/** Whether the reply reports a claim as waiting. */
export function isWaitingReply(script: Script, reply: unknown): boolean {
  if (script === CLAIM) return String(reply).startsWith("w ");
  return script === RENEW && [reply].flat().some((item) => String(item).startsWith("w "));
}

/** The end of the grace period that a reply reports: milliseconds of the store's wall clock. Null: no grace period. */
export function parseGraceEnd(reply: unknown): string | null {
  const fields = String(reply).split(" ");
  return (fields[0] === "b" || fields[0] === "p" ? fields[1] : fields[fields[0] === "h" ? 5 : 4]) ?? null;
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
export function decodeFlags(reply: unknown, count: number): { readonly flags: boolean[]; readonly pushes: string[] } {
  const [flags = "", ...pushes] = String(reply).split("\n");
  // "QUEUED": the client is inside a MULTI of its user
  if (flags.length !== count || /[^01]/.test(flags)) {
    throw new Error(`redis: a script answered for ${flags.length} of ${count} items: ${flags.slice(0, 20)}`);
  }
  return { flags: Array.from(flags, (flag) => flag === "1"), pushes };
}

/** A push: "<id> <token> <tokens> <ttl>" is a grant, "<id>" a recheck push. Null: neither. */
export function decodePush(message: string): { readonly id: string; readonly answer?: Answer } | null {
  const [id = "", token, tokens, ttlMs] = message.split(" ");
  if (id === "") return null;
  if (ttlMs === undefined) return { id };
  return {
    id,
    answer: { state: "held", token: BigInt(token as string), tokenCount: Number(tokens), remainingMs: Number(ttlMs) },
  };
}

/**
 * Encodes script arguments. lua/lib/prelude.lua describes the keys, lua/lib/records.lua the formats, drivers/reply-codec.ts
 * the replies.
 */

import type { Claim, ClaimId, Release } from "../../spi/driver.ts";
import { crc16 } from "../../util/crc16.ts";
import DETACH from "./lua/detach.lua";
import RENEW from "./lua/renew.lua";
import RESTORE from "./lua/restore.lua";
import TURN from "./lua/turn.lua";

/** The layout version. It is part of every key and channel, so that no two layouts share a prefix. */
export const LAYOUT_VERSION = "3";

/** Number of hash tags over which keys are spread, with and without Cluster. */
const BUCKET_COUNT = 256;
const BUCKET_NAMES: readonly string[] = Array.from({ length: BUCKET_COUNT }, (_, index) =>
  index.toString(16).padStart(2, "0"),
);

export const ALL_BUCKETS: readonly string[] = BUCKET_NAMES;

let lastKey = "";
let lastBucket = BUCKET_NAMES[crc16("") & (BUCKET_COUNT - 1)] as string;

/** The bucket of a key: two hexadecimal digits. Every client and version must compute the same. */
export function toBucket(key: string): string {
  // the calls of one turn are often for the same key
  if (key === lastKey) return lastBucket;
  lastKey = key;
  lastBucket = BUCKET_NAMES[crc16(key) & (BUCKET_COUNT - 1)] as string;
  return lastBucket;
}

/** The prefix of all keys and channels except the layout key: "holdfast:3:". */
export function toNamePrefix({ prefix = "holdfast" }: { readonly prefix?: string }): string {
  return `${prefix}:${LAYOUT_VERSION}:`;
}

/** The key that keeps the layout version of a prefix. */
export function toLayoutKey({ prefix = "holdfast" }: { readonly prefix?: string }): string {
  return `${prefix}:{00}:layout`;
}

/** Sends a command. `routingKey`: any key of its bucket. */
export type SendCommand = (args: string[], routingKey: string) => Promise<unknown>;

/** A script as Redis is given it: by its digest, or whole when Redis does not have it. */
export interface Script {
  readonly sha: string;
  readonly text: string;
}

/** Runs a script. `routingKey`: any key of its bucket. */
export type RunScript = (script: Script, routingKey: string, args: readonly string[]) => Promise<unknown>;

/** A key of the bucket, by which a call is routed. */
export function toRoutingKey(namePrefix: string, bucket: string): string {
  return `${namePrefix}{${bucket}}:h`;
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

/** Locks as the records keep them: bucket, key, permits and limit of each, all text. */
function encodeLocks(locks: Claim["locks"]): string {
  return JSON.stringify(locks.map(({ key, permits, limit }) => [toBucket(key), key, String(permits), String(limit)]));
}

/** The request that names a claim in every script (lua/lib/records.lua). */
export function encodeName({ id, locks, ttlMs }: Claim): string {
  if (locks.length > 1) return `${encodeLocks(locks)}\n${id} ${ttlMs} 0 0`;
  const [{ key, permits, limit }] = locks;
  return `${toBucket(key)}${key}\n${id} ${ttlMs} ${permits} ${limit}`;
}

/** The request that makes a claim. */
export function encodeClaim(claim: Claim, defaultLabel = ""): string {
  const { tokenCount, floor, wait, recall, successors, label } = claim;
  const flags = `${wait ? 1 : 0}${recall === true ? 1 : successors === true ? 2 : 0}`;
  return `${encodeName(claim)} ${tokenCount} ${floor} ${flags}\n${label || defaultLabel}`;
}

/** The item of turn.lua that makes a claim. */
export function encodeClaimItem(claim: Claim, defaultLabel = ""): string {
  return (claim.locks.length === 1 ? "C" : "M") + encodeClaim(claim, defaultLabel);
}

/** The item of turn.lua that releases a claim. */
export function encodeReleaseItem({ claim, hasUnansweredClaim }: Release): string {
  const letter = claim.locks.length === 1 ? (hasUnansweredClaim ? "U" : "R") : hasUnansweredClaim ? "V" : "S";
  return letter + encodeName(claim);
}

/** The item of turn.lua that gives a claim back which is unknown here. */
export function encodeGiveBackItem(id: ClaimId, bucketAndKey: string): string {
  return `G${bucketAndKey}\n${id}`;
}

/** The bucket of a claim is that of its first key. */
export function toClaimBucket({ locks: [{ key }] }: Claim): string {
  return toBucket(key);
}

/** Whether the reply reports a claim as held. */
export function isHeldReply(script: Script, reply: unknown): boolean {
  if (script === DETACH) return String(reply).includes("1");
  if (script === TURN) return /^[hr] /m.test(String(reply));
  return (script === RENEW || script === RESTORE) && [reply].flat().some((item) => /^[hr] /.test(String(item)));
}

/** Whether the reply reports a claim as waiting. */
export function isWaitingReply(script: Script, reply: unknown): boolean {
  if (script === TURN) return /^w /m.test(String(reply));
  return script === RENEW && [reply].flat().some((item) => String(item).startsWith("w "));
}

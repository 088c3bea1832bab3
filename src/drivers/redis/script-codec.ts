/**
 * Encodes script arguments, whose formats are those of lua/lib/records.lua. drivers/reply-codec.ts describes the
 * replies.
 */

import type { Claim, ClaimId, Release } from "../../spi/driver.ts";
import { toBucket, toScriptKeys } from "./key-names.ts";
import DETACH from "./lua/detach.lua";
import RENEW from "./lua/renew.lua";
import RESTORE from "./lua/restore.lua";
import TURN from "./lua/turn.lua";

/** Sends a command. `routingKey`: any key of its bucket. */
export type SendCommand = (args: string[], routingKey: string) => Promise<unknown>;

/** A script as Redis is given it: by its digest, or whole when Redis does not have it. */
export interface Script {
  readonly sha: string;
  readonly text: string;
}

/** Runs a script. `routingKey`: any key of its bucket. */
export type RunScript = (script: Script, routingKey: string, args: readonly string[]) => Promise<unknown>;

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
  // what this client is to be told about the claims behind it
  const wants = recall === true ? "1" : successors === true ? "2" : "0";
  return `${encodeName(claim)} ${tokenCount} ${floor} ${wait ? "1" : "0"}${wants}\n${label || defaultLabel}`;
}

/** The item of turn.lua that makes a claim. */
export function encodeClaimItem(claim: Claim, defaultLabel = ""): string {
  return `${formatKind(claim, "C")}${encodeClaim(claim, defaultLabel)}`;
}

/** The item of turn.lua that releases a claim. */
export function encodeReleaseItem({ claim, hasUnansweredClaim }: Release): string {
  return formatKind(claim, hasUnansweredClaim ? "U" : "R") + encodeName(claim);
}

/** The first path of turn.lua takes claims with one key only, and knows the others by the "M". */
function formatKind({ locks }: Claim, kind: "C" | "R" | "U"): string {
  return locks.length > 1 ? `M${kind}` : kind;
}

/** The item of turn.lua that gives a claim back which is unknown here. */
export function encodeGiveBackItem(id: ClaimId, bucketAndKey: string): string {
  return `G${bucketAndKey}\n${id}`;
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

/** What the scripts are told, and what they say. lua/line.lua has the names and forms. */

import { FatalDriverError } from "../../errors.ts";
import type { Answer, Claim, Ending, Pause } from "../../spi/driver.ts";
import { crc16 } from "./crc16.ts";
import type { Script } from "./scripts.ts";
import { CLAIM, DETACH, RENEW, REPLACE } from "./scripts.ts";

/** The number of our layout: in every key and channel, so that no two layouts serve one prefix. */
export const LAYOUT = "1";

/** How many hash tags the keys are spread over, on every topology. */
const BUCKETS = 256;
const HEX: readonly string[] = Array.from({ length: BUCKETS }, (_, at) => at.toString(16).padStart(2, "0"));

/** Every bucket there is. */
export const ALL_BUCKETS: readonly string[] = HEX;

/** The bucket of a key: two hexadecimal digits, the same in every client and version. */
export function bucketOf(key: string): string {
  return HEX[crc16(key) & (BUCKETS - 1)] as string;
}

/** Where a call goes: any name of its bucket. */
export function routeOf(root: string, bucket: string): string {
  return `${root}{${bucket}}:n`;
}

/**
 * The keys that a call of a script names, and before them how many. In a Cluster one that never is goes along: while a slot
 * moves, Redis then refuses our scripts on both its nodes (TRYAGAIN). Else they would run where a part of the bucket's keys
 * is: whoever holds would not be seen.
 */
export function keysOf(route: string, isCluster: boolean): readonly string[] {
  return isCluster ? ["2", route, `${route}ever`] : ["1", route];
}

/**
 * The command that says something to the inbox of a route. In a Cluster a script does, as with grants: ioredis takes a
 * sharded channel for a key, and puts a prefix of its own before it.
 */
export function sayingOf(route: string, channel: string, message: string, isCluster: boolean): string[] {
  if (!isCluster) return ["PUBLISH", channel, message];
  return ["EVAL", "return redis.call('SPUBLISH', ARGV[1], ARGV[2])", ...keysOf(route, true), channel, message];
}

/** The birth record of a bucket (guardDataLoss; lua/line/birth.lua). */
export function birthOf(route: string): string {
  return `${route.slice(0, route.indexOf("}") + 1)}:b`;
}

const known = new WeakMap<Claim, readonly string[]>();

/** A claim as every script takes it: id, ttl, count, then bucket, key, permits and limit of each hold. */
export function wordsOf(claim: Claim): readonly string[] {
  let words = known.get(claim);
  if (words === undefined) {
    const holds = claim.holds.flatMap(({ key, permits, limit }) => [
      bucketOf(key),
      key,
      String(permits),
      String(limit),
    ]);
    words = [claim.id, String(claim.ttlMs), String(claim.holds.length), ...holds];
    known.set(claim, words);
  }
  return words;
}

/** The bucket of a claim: that of its first key. */
export function homeOf(claim: Claim): string {
  return wordsOf(claim)[3] as string;
}

/** What only `claim` tells: tokens, floor, waits, label, and the holds as the record keeps them. */
export function termsOf(claim: Claim, defaultLabel = ""): readonly string[] {
  const { holds, tokens, floor, wait, label } = claim;
  const rows = holds.map(({ key, permits, limit }) => [bucketOf(key), key, String(permits), String(limit)]);
  return [
    String(tokens),
    String(floor),
    wait ? "1" : "0",
    label || defaultLabel,
    holds.length > 1 ? JSON.stringify(rows) : "",
  ];
}

/** @throws FatalDriverError for a refused floor, Error for what no script of ours says */
export function readAnswer(raw: unknown): Answer {
  const [state, one, two, three, four] = String(raw).split(" ");
  switch (state) {
    case "h":
      return {
        state: "held",
        token: BigInt(one as string),
        tokens: Number(two),
        ttlMs: Number(three),
        storeMs: Number(four),
      };
    case "w":
      return {
        state: "waiting",
        ttlMs: Number(one),
        recheckMs: Number(two),
        storeMs: Number(three),
        ...(four !== undefined && { paused: graceUntil(Number(four), Number(three)) }),
      };
    case "p":
      return { state: "none", paused: graceUntil(Number(one), Number(two)) };
    case "b":
      return { state: "none" };
    case "n":
      return one === undefined ? { state: "none" } : { state: "none", reason: one as Ending };
    case "f":
      throw new FatalDriverError("redis: the token floor is more than a day ahead of the store's clock");
    default:
      throw new Error(`redis: a script answered what it never does: ${String(raw).slice(0, 80)}`);
  }
}

/** A store that may have lost data grants nothing new until then; both times are its own. */
function graceUntil(opensAt: number, storeMs: number): Pause {
  return { reason: "gracePeriod", remainingMs: Math.max(opensAt - storeMs, 1) };
}

/** Does this answer let somebody believe that a claim is held? */
export function saysHeld(script: Script, raw: unknown): boolean {
  if (script === DETACH) return String(raw).includes("1");
  if (script === CLAIM) return String(raw).startsWith("h ");
  return (script === RENEW || script === REPLACE) && [raw].flat().some((one) => String(one).startsWith("h "));
}

/** Does this answer tell somebody to wait? */
export function saysWaiting(script: Script, raw: unknown): boolean {
  if (script === CLAIM) return String(raw).startsWith("w ");
  return script === RENEW && [raw].flat().some((one) => String(one).startsWith("w "));
}

/** From when on a store that forgot grants new claims, if an answer says so: its wall clock in milliseconds. */
export function opensAtOf(raw: unknown): string | null {
  const words = String(raw).split(" ");
  return (words[0] === "b" || words[0] === "p" ? words[1] : words[words[0] === "h" ? 5 : 4]) ?? null;
}

/** May this claim be placed anew? */
export function isForgotten(raw: unknown): boolean {
  return String(raw).startsWith("b ");
}

/**
 * Does a store that has forgotten take this claim for one that waits? If it was granted, a replica was promoted that had
 * missed the grant: nothing is granted meanwhile, so it is no answer from before the grant.
 */
export function hasMissedGrant(raw: unknown): boolean {
  return String(raw).startsWith("w ") && opensAtOf(raw) !== null;
}

/** "101": what was there; then, a line each, what the inbox would have heard. */
export function readFlags(raw: unknown, count: number): { readonly flags: boolean[]; readonly pushes: string[] } {
  const [flags = "", ...pushes] = String(raw).split("\n");
  // "QUEUED": the client is within somebody else's MULTI
  if (flags.length !== count || /[^01]/.test(flags)) {
    throw new Error(`redis: a script answered for ${flags.length} of ${count}: ${flags.slice(0, 20)}`);
  }
  return { flags: Array.from(flags, (flag) => flag === "1"), pushes };
}

/** A push: "<id> <token> <tokens> <ttl>" is a grant, "<id>" a nudge. Null: it is none of ours. */
export function readPush(message: string): { readonly id: string; readonly answer?: Answer } | null {
  const [id = "", token, tokens, ttlMs] = message.split(" ");
  if (id === "") return null;
  if (ttlMs === undefined) return { id };
  return {
    id,
    answer: { state: "held", token: BigInt(token as string), tokens: Number(tokens), ttlMs: Number(ttlMs) },
  };
}

/** The names of keys and channels. Those that only scripts use, and the fields of the hashes: lua/lib/names.lua. */

import type { Claim } from "../../spi/driver.ts";
import { crc16 } from "../../util/crc16.ts";

/** The layout version. It is part of every key and channel, so that no two layouts share a prefix. */
export const LAYOUT_VERSION = "3";

/** Number of hash tags over which keys are spread, with and without Cluster. */
const BUCKET_COUNT = 256;

export const ALL_BUCKETS: readonly string[] = Array.from({ length: BUCKET_COUNT }, (_, index) =>
  index.toString(16).padStart(2, "0"),
);

interface PrefixOptions {
  readonly prefix?: string;
}

let lastKey = "";
let lastBucket = ALL_BUCKETS[crc16("") & (BUCKET_COUNT - 1)] as string;

/** The bucket of a key: two hexadecimal digits. Every client and version must compute the same. */
export function toBucket(key: string): string {
  // the calls of one turn are often for the same key
  if (key === lastKey) return lastBucket;
  lastKey = key;
  lastBucket = ALL_BUCKETS[crc16(key) & (BUCKET_COUNT - 1)] as string;
  return lastBucket;
}

/** The bucket of a claim is that of its first key. */
export function toClaimBucket({ locks: [{ key }] }: Claim): string {
  return toBucket(key);
}

/** The prefix of all keys and channels except the layout key: "holdfast:3:". */
export function toNamePrefix({ prefix = "holdfast" }: PrefixOptions): string {
  return `${prefix}:${LAYOUT_VERSION}:`;
}

/** The key that keeps the layout version of a prefix. */
export function toLayoutKey({ prefix = "holdfast" }: PrefixOptions): string {
  return `${prefix}:{00}:layout`;
}

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

/** The run record of a bucket (guardDataLoss, see lua/lib/grace.lua). */
export function toRunRecordKey(routingKey: string): string {
  return toSiblingKey(routingKey, "b");
}

export function isRunRecordKey(key: string): boolean {
  return /\{..\}:b$/.test(key);
}

/** The key that is written to count the replicas that have it. */
export function toMarkerKey(routingKey: string, markerId: string): string {
  return toSiblingKey(routingKey, `m:${markerId}`);
}

/** The prefix of the keys on which commands are tried. */
export function toTrialPrefix(routingKey: string): string {
  return toSiblingKey(routingKey, "p:");
}

/** The channel for pushes to one client. */
export function toInboxChannel(namePrefix: string, inboxId: string): string {
  return `${namePrefix}inbox:${inboxId}`;
}

/** In a Cluster each bucket has an inbox of its own, in its slot. */
export function toBucketInboxChannel(routingKey: string, inboxId: string): string {
  return toSiblingKey(routingKey, `inbox:${inboxId}`);
}

/** A name with the hash tag of the routing key, so in the same slot. */
function toSiblingKey(routingKey: string, name: string): string {
  return `${routingKey.slice(0, routingKey.indexOf("}") + 1)}:${name}`;
}

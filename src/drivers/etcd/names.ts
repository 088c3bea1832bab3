/**
 * Names and values of entries. An entry of a key is `<prefix><key>/<tag>`, as `etcdctl lock` and the official Go client name theirs
 * `<name>/<lease>`: each recipe takes all keys below the name for one queue, in the order of their creation. The tag follows from the id
 * of the claim, so that any client of the claim finds its entry.
 */

import type { PermitRequest } from "../../lock-table/admission.ts";
import type { Claim } from "../../spi/driver.ts";
import { ALL_PERMITS } from "../../spi/driver.ts";
import type { KeyValue } from "./client/messages.ts";
import { decodeText, encodeText } from "./client/messages.ts";

/** What precedes every key, unless the option says otherwise. */
export const DEFAULT_PREFIX: string = "holdfast/";

/** The version of the values. */
const VALUE_VERSION = 1;

/** How claims have ended, as far as another call may ask. A key has no control characters, so none is below it. */
const TOMBSTONES = "\u0000tombstones/";

/** Where the driver keeps its entries. */
export class Names {
  readonly prefix: string;
  readonly #isCompatible: boolean;

  /** isCompatible: a key is used as it is, so that other clients can use its name; else its slashes are escaped. */
  constructor(prefix: string, isCompatible: boolean) {
    this.prefix = prefix;
    this.#isCompatible = isCompatible;
  }

  /** A key that only the driver reads: a user who may read its entries may read it. */
  get probeKey(): string {
    return `${this.prefix}\u0000`;
  }

  /** The beginning of the names of a key's entries. */
  toQueueName(key: string): string {
    return `${this.prefix}${this.toKeyPrefix(key)}/`;
  }

  /** As much of the name as the beginning of a key decides. */
  toKeyPrefix(key: string): string {
    return this.#isCompatible ? key : key.replaceAll("%", "%25").replaceAll("/", "%2F");
  }

  /** The key of an entry; null: it is no entry of this driver's. */
  parseKey(name: string): string | null {
    if (!name.startsWith(this.prefix)) return null;
    const end = name.lastIndexOf("/");
    const text = name.slice(this.prefix.length, end);
    if (end <= this.prefix.length || text.includes("\u0000")) return null;
    return this.#isCompatible ? text : text.replaceAll("%2F", "/").replaceAll("%25", "%");
  }

  /** The tombstone of an entry. */
  toTombstone(name: string): string {
    return `${this.prefix}${TOMBSTONES}${toTag(name)}`;
  }
}

/** An entry of a queue, as it was read. */
export interface QueuedEntry extends PermitRequest {
  readonly name: string;
  readonly createRevision: bigint;
  /** "0": none. */
  readonly leaseId: string;
  /** null: another program's. It takes all permits. */
  readonly value: EntryValue | null;
}

/** The value of an entry. */
export interface EntryValue extends PermitRequest {
  readonly ttlMs: number;
  readonly tokens: number;
  readonly floor: bigint;
  readonly wait: boolean;
  readonly label: string;
  /** The client's wall clock when it was made; for people only. */
  readonly madeAt: number;
  readonly isRevoked: boolean;
}

export function encodeValue(claim: Claim, madeAt: number): string {
  const { permits, limit } = claim.locks[0];
  const { ttlMs, tokenCount: tokens, floor, wait, label } = claim;
  const value = { holdfast: VALUE_VERSION, permits, limit, ttlMs, tokens, floor: String(floor), wait, label, madeAt };
  return encodeText(JSON.stringify(value));
}

/** The same entry, revoked. */
export function encodeRevoked(value: EntryValue): string {
  return encodeText(JSON.stringify({ holdfast: VALUE_VERSION, ...value, floor: String(value.floor), isRevoked: true }));
}

export function decodeEntry({ key, value, create_revision, lease = "0" }: KeyValue): QueuedEntry {
  const decoded = decodeValue(decodeText(value));
  const { permits, limit } = decoded ?? { permits: ALL_PERMITS, limit: ALL_PERMITS };
  return {
    name: decodeText(key),
    createRevision: BigInt(create_revision),
    leaseId: lease,
    value: decoded,
    permits,
    limit,
  };
}

/** Null: another program's, or of a later version. */
function decodeValue(text: string): EntryValue | null {
  if (!text.startsWith('{"holdfast":')) return null;
  let parsed: Partial<Record<keyof EntryValue | "holdfast", unknown>>;
  try {
    parsed = JSON.parse(text) as typeof parsed;
  } catch {
    return null;
  }
  const { holdfast, permits, limit, ttlMs, tokens, madeAt, floor, wait, label, isRevoked } = parsed;
  const numbers = { permits, limit, ttlMs, tokens, madeAt };
  if (holdfast !== VALUE_VERSION || !Object.values(numbers).every(Number.isSafeInteger)) return null;
  if (typeof label !== "string" || typeof floor !== "string" || !/^\d{1,19}$/.test(floor)) return null;
  return {
    ...(numbers as Record<keyof typeof numbers, number>),
    ...{ floor: BigInt(floor), wait: wait !== false, label, isRevoked: isRevoked === true },
  };
}

/** The entries directly below the queue's name, front first. Those of a key that begins with this one are not part of it. */
export function toQueue(kvs: readonly KeyValue[] | undefined, queueName: string): QueuedEntry[] {
  return (kvs ?? [])
    .map(decodeEntry)
    .filter(({ name }) => !name.includes("/", queueName.length))
    .sort(compareRevisions);
}

/** The order of a queue. */
export function compareRevisions(left: QueuedEntry, right: QueuedEntry): number {
  return left.createRevision < right.createRevision ? -1 : 1;
}

/** The last part of a name. */
export function toTag(name: string): string {
  return name.slice(name.lastIndexOf("/") + 1);
}

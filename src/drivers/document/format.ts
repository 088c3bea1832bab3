/**
 * The bytes of a document: "holdfast-locks", the version of the layout, a checksum of the rest, and the rest as JSON. What there may be
 * much of is a list there, which takes half the room of an object.
 */

import type { EndReason } from "../../errors.ts";
import { StoreRefusedError } from "../../errors.ts";
import type { ClaimId } from "../../spi/driver.ts";
import { computeChecksum } from "../../util/checksum.ts";

/** Since when a claim, or a tombstone, has its lease. */
export type Renewal = readonly [
  /** The number of the write that placed it or renewed it last. */
  renewedBy: number,
  /** What the lease is from that write on: ttlMs, or less for a detached claim until it is renewed. */
  leaseMs: number,
  /** The age of the claim at that write. */
  ageMs: number,
];

/** A claim in the queue of its key. */
export type Entry = readonly [
  ...[id: ClaimId, renewal: Renewal, label: string],
  ...[permits: number, limit: number, ttlMs: number, tokenCount: number, floor: number],
  ...[wait: boolean, recall: boolean, isRevoked: boolean, isDetached: boolean],
  /** The first token of its range, without tokenBase; 0: it waits. */
  token: number,
];

/** How a claim ended. A late `claim` call with its id is answered "none". */
export type EndNote = readonly [id: ClaimId, renewal: Renewal, reason: EndReason];

/** One of the documents of a store, as it was read or will be written. */
export interface LockDocument {
  /** The store that it belongs to: one that was copied from another store is refused. */
  readonly storeId: string;
  /** How many documents the store has, and which this is; the layout is the one behind the last. */
  readonly documents: number;
  readonly number: number;
  /** How often it was written, and the random marks of the last of these writes, the newest last. */
  readonly writeNumber: number;
  readonly marks: readonly string[];
  /** The last token that was granted in it, without tokenBase. */
  readonly lastToken: number;
  /** By key; front first. */
  readonly queues: readonly (readonly [key: string, entries: readonly Entry[]])[];
  /** The oldest first. */
  readonly tombstones: readonly EndNote[];
}

/** A document that is in the store. */
export interface StoredLocks {
  readonly document: LockDocument;
  readonly version: string;
  readonly byteCount: number;
}

const LAYOUT_VERSION = 1;

export function encodeDocument(document: LockDocument): Uint8Array {
  const body = Buffer.from(JSON.stringify(document));
  return Buffer.concat([Buffer.from(`holdfast-locks ${LAYOUT_VERSION} ${computeChecksum(body)} `), body]);
}

/**
 * Reads what encodeDocument() has written. @param name begins the messages
 * @throws StoreRefusedError for any other bytes: they are neither believed nor overwritten
 */
export function decodeDocument(bytes: Uint8Array, name: string): LockDocument {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const [head, version, checksum] = /^holdfast-locks (\d+) (\S+) /.exec(buffer.toString("latin1", 0, 50)) ?? [];
  if (head === undefined) throw new StoreRefusedError(`${name} was not written by Holdfast, and is left as it is`);
  if (version !== String(LAYOUT_VERSION))
    throw new StoreRefusedError(`${name} has the layout ${version}, and this release knows only ${LAYOUT_VERSION}`);
  const body = buffer.subarray(head.length);
  if (computeChecksum(body) !== checksum)
    throw new StoreRefusedError(`${name} is damaged: its checksum is wrong. It is left as it is, and not believed`);
  return JSON.parse(body.toString()) as LockDocument;
}

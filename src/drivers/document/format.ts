/**
 * The bytes of a document: "holdfast-locks", the version of the layout, a checksum of the rest, and the rest as JSON. Entries are
 * lists there, without the names of their fields; the key of a queue is there once.
 */

import type { EndReason } from "../../errors.ts";
import { StoreRefusedError } from "../../errors.ts";
import type { ClaimId, LockSpec } from "../../spi/driver.ts";
import { computeChecksum } from "../../util/checksum.ts";

/** Since when a claim, or a tombstone, has its lease. */
export interface Renewal {
  /** The number of the write that placed it or renewed it last. */
  readonly renewedBy: number;
  /** What the lease is from that write on: ttlMs, or less for a detached claim until it is renewed. */
  readonly leaseMs: number;
}

/** A claim in the queue of its key. */
export interface Entry extends Omit<LockSpec, "key">, Renewal {
  readonly id: ClaimId;
  readonly label: string;
  readonly ttlMs: number;
  readonly tokenCount: number;
  readonly floor: number;
  readonly wait: boolean;
  readonly recall: boolean;
  /** The first token of its range, without tokenBase; 0: it waits. */
  readonly token: number;
  readonly isRevoked: boolean;
  readonly isDetached: boolean;
  /** Its age at the write that renewed it. */
  readonly ageMs: number;
}

/** How a claim ended. A late `claim` call with its id is answered "none". */
export interface EndNote extends Renewal {
  readonly reason: EndReason;
}

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
  readonly queues: ReadonlyMap<string, readonly Entry[]>;
  readonly tombstones: ReadonlyMap<ClaimId, EndNote>;
}

/** A document that is in the store. */
export interface StoredLocks {
  readonly document: LockDocument;
  readonly version: string;
  readonly byteCount: number;
}

const LAYOUT_VERSION = 1;
const ENTRY_FIELDS: readonly (keyof Entry)[] = [
  ...(["id", "label", "permits", "limit", "ttlMs", "tokenCount", "floor", "wait", "recall"] as const),
  ...(["token", "isRevoked", "isDetached", "renewedBy", "leaseMs", "ageMs"] as const),
];
const TOMBSTONE_FIELDS: readonly (keyof EndNote)[] = ["reason", "leaseMs", "renewedBy"];

export function encodeDocument({ queues, tombstones, ...header }: LockDocument): Uint8Array {
  const lists = {
    queues: Array.from(queues, ([key, entries]) => [key, entries.map((entry) => toList(entry, ENTRY_FIELDS))]),
    tombstones: Array.from(tombstones, ([id, note]) => [id, toList(note, TOMBSTONE_FIELDS)]),
  };
  const body = Buffer.from(JSON.stringify({ ...header, ...lists }));
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
  const { queues, tombstones, ...header } = JSON.parse(body.toString()) as Omit<
    LockDocument,
    "queues" | "tombstones"
  > & {
    readonly queues: readonly [string, readonly (readonly unknown[])[]][];
    readonly tombstones: readonly [ClaimId, readonly unknown[]][];
  };
  return {
    ...header,
    queues: new Map(queues.map(([key, lists]) => [key, lists.map((list) => fromList(list, ENTRY_FIELDS))])),
    tombstones: new Map(tombstones.map(([id, list]) => [id, fromList(list, TOMBSTONE_FIELDS)])),
  };
}

function toList<T>(item: T, fields: readonly (keyof T)[]): readonly unknown[] {
  return fields.map((name) => item[name]);
}

function fromList<T>(list: readonly unknown[], fields: readonly (keyof T)[]): T {
  return Object.fromEntries(fields.map((name, index) => [name, list[index]])) as T;
}

/**
 * The bytes of a document: "HFDC", the version of the layout, the body, and the first 8 bytes of the SHA-256 of all that. The body is a
 * list of numbers, texts and lists: each begins with a number that says which of them it is, and how long. Numbers have 7 bits a byte.
 * Keys and labels are there once, however many entries have them.
 */

import { hash } from "node:crypto";
import type { EndReason } from "../../errors.ts";
import { StoreRefusedError } from "../../errors.ts";
import type { ClaimId, LockSpec } from "../../spi/driver.ts";

/** A claim in the queue of its key. */
export interface Entry extends LockSpec {
  readonly id: ClaimId;
  readonly label: string;
  readonly ttlMs: number;
  readonly tokenCount: number;
  /** In tokens of the document, without tokenBase. */
  readonly floor: number;
  readonly wait: boolean;
  readonly recall: boolean;
  readonly isRevoked: boolean;
  readonly isDetached: boolean;
  /** The number of the write that placed it or renewed it last. */
  readonly renewedBy: number;
  /** What the lease is from that write on: ttlMs, or less for a detached claim until it is renewed. */
  readonly leaseMs: number;
  /** Its age at that write. */
  readonly ageMs: number;
  /** The first token of its range; 0: it waits. */
  readonly token: number;
}

/** How a claim ended. A late `claim` call with its id is answered "none". */
export interface Tombstone {
  readonly reason: EndReason;
  readonly leaseMs: number;
  /** The number of the write that made it. */
  readonly renewedBy: number;
}

/** One of the documents of a store, as it was read or will be written. */
export interface LockDocument {
  /** The store that it belongs to, in hex: one that was copied from another store is refused. */
  readonly storeId: string;
  /** How many documents the store has, and which this is; the layout is the one behind the last. */
  readonly documents: number;
  readonly number: number;
  /** How often it was written, and the random marks of the last of these writes, in hex, the newest last. */
  readonly writeNumber: number;
  readonly marks: readonly string[];
  /** The last token that was granted in it. */
  readonly lastToken: number;
  /** All queues of the document in one, in order of arrival. */
  readonly entries: ReadonlyMap<ClaimId, Entry>;
  readonly tombstones: ReadonlyMap<ClaimId, Tombstone>;
}

const MAGIC = "HFDC";
const LAYOUT_VERSION = 1;
const HEADER_BYTES = MAGIC.length + 1;
const CHECKSUM_BYTES = 8;
/** An entry takes less, beside its id, its key and its label. */
export const MAX_ENTRY_BYTES = 80;
const REASONS: readonly EndReason[] = ["released", "expired", "revoked", "maxHold"];
const FLAGS = ["wait", "recall", "isRevoked", "isDetached"] as const;
const NUMBERS = [
  ...(["permits", "limit", "ttlMs", "tokenCount", "floor", "renewedBy", "leaseMs", "ageMs", "token"] as const),
];

type Item = number | string | readonly Item[];
const NUMBER = 0;
const TEXT = 1;
const LIST = 2;

export function encodeDocument(document: LockDocument): Uint8Array {
  const { storeId, documents, number, writeNumber, marks, lastToken } = document;
  const texts = new Map<string, number>();
  const indexOf = (text: string): number => {
    if (!texts.has(text)) texts.set(text, texts.size);
    return texts.get(text) as number;
  };
  const entries = [...document.entries.values()].map((entry) => [
    ...[entry.id, indexOf(entry.key), indexOf(entry.label)],
    FLAGS.reduce((bits, flag, index) => bits + Number(entry[flag]) * 2 ** index, 0),
    ...NUMBERS.map((name) => entry[name]),
  ]);
  const tombstones = [...document.tombstones].map(([id, { reason, leaseMs, renewedBy }]) => [
    ...[id, REASONS.indexOf(reason), leaseMs, renewedBy],
  ]);
  const parts: Uint8Array[] = [Buffer.from(MAGIC), Uint8Array.of(LAYOUT_VERSION)];
  write(parts, [storeId, documents, number, writeNumber, marks, lastToken, [...texts.keys()], entries, tombstones]);
  const body = Buffer.concat(parts);
  return Buffer.concat([body, checksumOf(body)]);
}

/**
 * Reads what encodeDocument() has written. @param name begins the messages
 * @throws StoreRefusedError for any other bytes: they are neither believed nor overwritten
 */
export function decodeDocument(bytes: Uint8Array, name: string): LockDocument {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (buffer.length < HEADER_BYTES + CHECKSUM_BYTES || buffer.toString("latin1", 0, MAGIC.length) !== MAGIC)
    throw new StoreRefusedError(`${name} was not written by Holdfast, and is left as it is`);
  const version = buffer[MAGIC.length];
  if (version !== LAYOUT_VERSION)
    throw new StoreRefusedError(`${name} has the layout ${version}, and this release knows only ${LAYOUT_VERSION}`);
  const body = buffer.subarray(0, -CHECKSUM_BYTES);
  if (!checksumOf(body).equals(buffer.subarray(-CHECKSUM_BYTES)))
    throw new StoreRefusedError(`${name} is damaged: its checksum is wrong. It is left as it is, and not believed`);
  const items = new Reader(body, HEADER_BYTES).read() as readonly never[];
  const [storeId, documents, number, writeNumber, marks, lastToken, texts, entries, tombstones] = items;
  return {
    ...({ storeId, documents, number, writeNumber, marks, lastToken } as unknown as Omit<LockDocument, "entries">),
    entries: new Map(
      (entries as unknown as Item[][]).map((entry) => [entry[0] as string, toEntry(entry, texts as never)]),
    ),
    tombstones: new Map((tombstones as unknown as [string, number, number, number][]).map(toTombstone)),
  };
}

function toEntry([id, key, label, bits, ...numbers]: readonly Item[], texts: readonly string[]): Entry {
  const flags = Object.fromEntries(FLAGS.map((flag, index) => [flag, (((bits as number) >> index) & 1) === 1]));
  const values = Object.fromEntries(NUMBERS.map((name, index) => [name, numbers[index]]));
  return { id, key: texts[key as number], label: texts[label as number], ...flags, ...values } as unknown as Entry;
}

function toTombstone([id, reason, leaseMs, renewedBy]: [string, number, number, number]): [string, Tombstone] {
  return [id, { reason: REASONS[reason] as EndReason, leaseMs, renewedBy }];
}

function checksumOf(bytes: Uint8Array): Buffer {
  return hash("sha256", bytes, "buffer").subarray(0, CHECKSUM_BYTES);
}

function write(parts: Uint8Array[], item: Item): void {
  if (typeof item === "number") parts.push(toBytes(item, NUMBER));
  else if (typeof item === "string") parts.push(toBytes(Buffer.byteLength(item), TEXT), Buffer.from(item));
  else {
    parts.push(toBytes(item.length, LIST));
    for (const one of item) write(parts, one);
  }
}

/** The kind is in the first two bits. Shifts would have 32 bits only. */
function toBytes(value: number, kind: number): Uint8Array {
  const bytes: number[] = [];
  let rest = value;
  for (let room = 0x20; rest >= room; room = 0x80) {
    bytes.push((rest % room) + room);
    rest = Math.floor(rest / room);
  }
  bytes.push(rest);
  bytes[0] = ((bytes[0] as number) << 2) | kind;
  return Uint8Array.from(bytes);
}

class Reader {
  readonly #buffer: Buffer;
  #offset: number;

  constructor(buffer: Buffer, offset: number) {
    this.#buffer = buffer;
    this.#offset = offset;
  }

  read(): Item {
    const first = this.#byte();
    const kind = first & 3;
    const value = this.#number(first >> 2, 0x20);
    if (kind === NUMBER) return value;
    if (kind === LIST) return Array.from({ length: value }, () => this.read());
    this.#offset += value;
    return this.#buffer.toString("utf8", this.#offset - value, this.#offset);
  }

  #number(byte: number, room: number): number {
    return byte < room ? byte : byte - room + room * this.#number(this.#byte(), 0x80);
  }

  #byte(): number {
    return this.#buffer[this.#offset++] as number;
  }
}

/**
 * The bytes of a document: "HFDC", the version of the layout, the body, and the first 8 bytes of the SHA-256 of all that. Numbers
 * have a variable length, 7 bits a byte. Keys and labels are stored once, however many entries have them.
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
const STORE_ID_BYTES = 16;
const MARK_BYTES = 8;
/** An entry takes less, beside its id, its key and its label. */
export const MAX_ENTRY_BYTES = 64;
const REASONS: readonly EndReason[] = ["released", "expired", "revoked", "maxHold"];
const FLAGS = ["wait", "recall", "isRevoked", "isDetached"] as const;
const ENTRY_NUMBERS = [
  ...(["permits", "limit", "ttlMs", "tokenCount", "floor", "renewedBy", "leaseMs", "ageMs", "token"] as const),
];

export function encodeDocument(document: LockDocument): Uint8Array {
  const { storeId, documents, number, writeNumber, marks, lastToken, entries, tombstones } = document;
  const parts = new Encoder();
  parts.bytes(Buffer.from(MAGIC, "latin1")).number(LAYOUT_VERSION).bytes(Buffer.from(storeId, "hex"));
  for (const value of [documents, number, writeNumber, marks.length]) parts.number(value);
  for (const mark of marks) parts.bytes(Buffer.from(mark, "hex"));
  const texts = new Map<string, number>();
  for (const { key, label } of entries.values())
    for (const text of [key, label]) if (!texts.has(text)) texts.set(text, texts.size);
  parts.number(lastToken).number(texts.size);
  for (const text of texts.keys()) parts.text(text);
  parts.number(entries.size);
  for (const entry of entries.values()) {
    parts
      .text(entry.id)
      .number(texts.get(entry.key) as number)
      .number(texts.get(entry.label) as number);
    parts.number(FLAGS.reduce((flags, name, bit) => flags | (Number(entry[name]) << bit), 0));
    for (const name of ENTRY_NUMBERS) parts.number(entry[name]);
  }
  parts.number(tombstones.size);
  for (const [id, { reason, leaseMs, renewedBy }] of tombstones)
    parts.text(id).number(REASONS.indexOf(reason)).number(leaseMs).number(renewedBy);
  return parts.finish();
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
  if (!checksumOf(body).equals(buffer.subarray(-CHECKSUM_BYTES))) throw damaged(name);
  const parts = new Decoder(body, HEADER_BYTES, name);
  const storeId = parts.hex(STORE_ID_BYTES);
  const [documents, number, writeNumber] = [parts.number(), parts.number(), parts.number()];
  const marks = parts.list(() => parts.hex(MARK_BYTES));
  const lastToken = parts.number();
  const texts = parts.list(() => parts.text());
  const entries = new Map(parts.list(() => decodeEntry(parts, texts)).map((entry) => [entry.id, entry]));
  const tombstones = new Map(parts.list(() => [parts.text(), decodeTombstone(parts)] as const));
  parts.finish();
  return { storeId, documents, number, writeNumber, marks, lastToken, entries, tombstones };
}

function decodeEntry(parts: Decoder, texts: readonly string[]): Entry {
  const id = parts.text();
  const [key, label] = [parts.item(texts), parts.item(texts)];
  const bits = parts.number();
  const flags = Object.fromEntries(FLAGS.map((flag, bit) => [flag, (bits & (1 << bit)) !== 0]));
  const numbers = Object.fromEntries(ENTRY_NUMBERS.map((field) => [field, parts.number()]));
  return { id, key, label, ...flags, ...numbers } as unknown as Entry;
}

function decodeTombstone(parts: Decoder): Tombstone {
  return { reason: parts.item(REASONS), leaseMs: parts.number(), renewedBy: parts.number() };
}

function checksumOf(bytes: Uint8Array): Buffer {
  return hash("sha256", bytes, "buffer").subarray(0, CHECKSUM_BYTES);
}

function damaged(name: string): StoreRefusedError {
  return new StoreRefusedError(`${name} is damaged: its checksum is wrong. It is left as it is, and not believed`);
}

class Encoder {
  readonly #parts: Uint8Array[] = [];

  bytes(bytes: Uint8Array): this {
    this.#parts.push(bytes);
    return this;
  }

  number(value: number): this {
    const bytes: number[] = [];
    let rest = value;
    for (; rest >= 0x80; rest = Math.floor(rest / 0x80)) bytes.push((rest % 0x80) | 0x80); // shifts have 32 bits only
    return this.bytes(Uint8Array.of(...bytes, rest));
  }

  text(text: string): this {
    const bytes = Buffer.from(text);
    return this.number(bytes.length).bytes(bytes);
  }

  finish(): Uint8Array {
    const body = Buffer.concat(this.#parts);
    return Buffer.concat([body, checksumOf(body)]);
  }
}

/** The checksum was right, so wrong contents mean a fault of another program: they are refused all the same. */
class Decoder {
  readonly #buffer: Buffer;
  readonly #name: string;
  #offset: number;

  constructor(buffer: Buffer, offset: number, name: string) {
    this.#buffer = buffer;
    this.#offset = offset;
    this.#name = name;
  }

  bytes(length: number): Buffer {
    const start = this.#offset;
    this.#offset += length;
    if (this.#offset > this.#buffer.length) throw damaged(this.#name);
    return this.#buffer.subarray(start, this.#offset);
  }

  number(): number {
    let value = 0;
    for (let factor = 1; factor < Number.MAX_SAFE_INTEGER; factor *= 0x80) {
      const byte = this.bytes(1)[0] as number;
      value += (byte & 0x7f) * factor;
      if (byte < 0x80 && value <= Number.MAX_SAFE_INTEGER) return value;
    }
    throw damaged(this.#name);
  }

  hex(length: number): string {
    return this.bytes(length).toString("hex");
  }

  text(): string {
    return this.bytes(this.number()).toString();
  }

  list<T>(readItem: () => T): T[] {
    const items: T[] = [];
    for (let left = this.number(); left > 0; left--) items.push(readItem());
    return items;
  }

  item<T>(items: readonly T[]): T {
    const item = items[this.number()];
    if (item === undefined) throw damaged(this.#name);
    return item;
  }

  finish(): void {
    if (this.#offset !== this.#buffer.length) throw damaged(this.#name);
  }
}

/** Jute, ZooKeeper's encoding: big-endian numbers, and strings, buffers and vectors after their lengths. */

const NULL_LENGTH = -1;

/** Writes one frame: four bytes of length, then the fields. */
export class JuteWriter {
  #bytes = Buffer.allocUnsafe(256);
  #offset = 4;

  int(value: number): this {
    this.#offset = this.#reserve(4).writeInt32BE(value, this.#offset);
    return this;
  }

  long(value: bigint): this {
    this.#offset = this.#reserve(8).writeBigInt64BE(value, this.#offset);
    return this;
  }

  bool(value: boolean): this {
    this.#offset = this.#reserve(1).writeUInt8(value ? 1 : 0, this.#offset);
    return this;
  }

  buffer(value: Uint8Array | null): this {
    if (value === null) return this.int(NULL_LENGTH);
    this.int(value.length);
    this.#reserve(value.length).set(value, this.#offset);
    this.#offset += value.length;
    return this;
  }

  text(value: string): this {
    const length = Buffer.byteLength(value);
    this.int(length);
    this.#offset += this.#reserve(length).write(value, this.#offset, "utf8");
    return this;
  }

  vector<T>(items: readonly T[], writeItem: (writer: this, item: T) => void): this {
    this.int(items.length);
    for (const item of items) writeItem(this, item);
    return this;
  }

  /** The frame, with its length. The writer must not be used afterwards. */
  frame(): Buffer {
    this.#bytes.writeInt32BE(this.#offset - 4, 0);
    return this.#bytes.subarray(0, this.#offset);
  }

  #reserve(bytes: number): Buffer {
    if (this.#offset + bytes > this.#bytes.length) {
      const larger = Buffer.allocUnsafe(Math.max(this.#bytes.length * 2, this.#offset + bytes));
      this.#bytes.copy(larger, 0, 0, this.#offset);
      this.#bytes = larger;
    }
    return this.#bytes;
  }
}

/** A malformed frame: the connection is unusable. */
export class JuteError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "JuteError";
  }
}

/**
 * Reads one frame, without its length. Every length is checked against the remaining bytes before anything is
 * allocated.
 */
export class JuteReader {
  readonly #bytes: Buffer;
  #offset = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get remaining(): number {
    return this.#bytes.length - this.#offset;
  }

  int(): number {
    const value = this.#bytes.readInt32BE(this.#take(4));
    return value;
  }

  long(): bigint {
    return this.#bytes.readBigInt64BE(this.#take(8));
  }

  bool(): boolean {
    return this.#bytes[this.#take(1)] !== 0;
  }

  /** Returns a copy: the frame may be part of a larger chunk. */
  buffer(): Buffer | null {
    const length = this.int();
    if (length === NULL_LENGTH) return null;
    const start = this.#take(length);
    return Buffer.from(this.#bytes.subarray(start, start + length));
  }

  text(): string {
    const length = this.int();
    if (length === NULL_LENGTH) return "";
    const start = this.#take(length);
    return this.#bytes.toString("utf8", start, start + length);
  }

  vector<T>(readItem: (reader: this) => T): T[] {
    const length = this.int();
    if (length === NULL_LENGTH) return [];
    // an item has at least one byte
    if (length < 0 || length > this.remaining) throw new JuteError("a vector is longer than its frame");
    return Array.from({ length }, () => readItem(this));
  }

  #take(bytes: number): number {
    const start = this.#offset;
    if (bytes < 0 || bytes > this.remaining) throw new JuteError("a frame is truncated");
    this.#offset += bytes;
    return start;
  }
}

/** Splits a stream's chunks into frames. Each connection has its own: half a frame must not survive the connection. */
export class FrameReader {
  readonly #maxBytes: number;
  #chunks: Buffer[] = [];
  #bufferedBytes = 0;
  #neededBytes = 4;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** The frames that this chunk completes, without their lengths. @throws JuteError if one is too long */
  push(chunk: Buffer): Buffer[] {
    this.#chunks.push(chunk);
    this.#bufferedBytes += chunk.length;
    if (this.#bufferedBytes < this.#neededBytes) return [];
    let bytes = this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks);
    const frames: Buffer[] = [];
    this.#neededBytes = 4;
    while (bytes.length >= 4) {
      const length = bytes.readInt32BE(0);
      if (length < 0 || length > this.#maxBytes) throw new JuteError(`a frame of ${length} bytes`);
      this.#neededBytes = 4 + length;
      if (bytes.length < this.#neededBytes) break;
      frames.push(bytes.subarray(4, this.#neededBytes));
      bytes = bytes.subarray(this.#neededBytes);
      this.#neededBytes = 4;
    }
    this.#chunks = bytes.length === 0 ? [] : [bytes];
    this.#bufferedBytes = bytes.length;
    return frames;
  }
}

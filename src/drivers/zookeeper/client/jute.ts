/** Jute, ZooKeeper's encoding: big-endian numbers, and texts, buffers and vectors behind their lengths. */

const NOTHING = -1;

/** Writes one frame: four bytes of length, then what is put into it. */
export class JuteWriter {
  #bytes = Buffer.allocUnsafe(256);
  #at = 4;

  int(value: number): this {
    this.#at = this.#room(4).writeInt32BE(value, this.#at);
    return this;
  }

  long(value: bigint): this {
    this.#at = this.#room(8).writeBigInt64BE(value, this.#at);
    return this;
  }

  bool(value: boolean): this {
    this.#at = this.#room(1).writeUInt8(value ? 1 : 0, this.#at);
    return this;
  }

  buffer(value: Uint8Array | null): this {
    if (value === null) return this.int(NOTHING);
    this.int(value.length);
    this.#room(value.length).set(value, this.#at);
    this.#at += value.length;
    return this;
  }

  text(value: string): this {
    const length = Buffer.byteLength(value);
    this.int(length);
    this.#at += this.#room(length).write(value, this.#at, "utf8");
    return this;
  }

  vector<T>(items: readonly T[], write: (writer: this, item: T) => void): this {
    this.int(items.length);
    for (const item of items) write(this, item);
    return this;
  }

  /** The frame, its length in front. The writer is not to be used any more. */
  frame(): Buffer {
    this.#bytes.writeInt32BE(this.#at - 4, 0);
    return this.#bytes.subarray(0, this.#at);
  }

  #room(bytes: number): Buffer {
    if (this.#at + bytes > this.#bytes.length) {
      const larger = Buffer.allocUnsafe(Math.max(this.#bytes.length * 2, this.#at + bytes));
      this.#bytes.copy(larger, 0, 0, this.#at);
      this.#bytes = larger;
    }
    return this.#bytes;
  }
}

/** What was received is not what it should be: the connection is worth nothing any more. */
export class JuteError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "JuteError";
  }
}

/** Reads one frame, without its length. Every length is checked against what is there before anything is made of it. */
export class JuteReader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get left(): number {
    return this.#bytes.length - this.#at;
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

  /** A copy: the frame may be a part of a larger read. */
  buffer(): Buffer | null {
    const length = this.int();
    if (length === NOTHING) return null;
    const from = this.#take(length);
    return Buffer.from(this.#bytes.subarray(from, from + length));
  }

  text(): string {
    const length = this.int();
    if (length === NOTHING) return "";
    const from = this.#take(length);
    return this.#bytes.toString("utf8", from, from + length);
  }

  vector<T>(read: (reader: this) => T): T[] {
    const length = this.int();
    if (length === NOTHING) return [];
    // the shortest item there is has one byte
    if (length < 0 || length > this.left) throw new JuteError("a vector is longer than its frame");
    return Array.from({ length }, () => read(this));
  }

  #take(bytes: number): number {
    const from = this.#at;
    if (bytes < 0 || bytes > this.left) throw new JuteError("a frame ends too early");
    this.#at += bytes;
    return from;
  }
}

/** Chunks of a stream to frames. Made anew for every connection: half a frame must not survive it. */
export class FrameReader {
  readonly #mostBytes: number;
  #held: Buffer[] = [];
  #heldBytes = 0;
  #wanted = 4;

  constructor(mostBytes: number) {
    this.#mostBytes = mostBytes;
  }

  /** The frames that this chunk completes, without their lengths. @throws JuteError if one is too long */
  push(chunk: Buffer): Buffer[] {
    this.#held.push(chunk);
    this.#heldBytes += chunk.length;
    if (this.#heldBytes < this.#wanted) return [];
    let bytes = this.#held.length === 1 ? chunk : Buffer.concat(this.#held);
    const frames: Buffer[] = [];
    this.#wanted = 4;
    while (bytes.length >= 4) {
      const length = bytes.readInt32BE(0);
      if (length < 0 || length > this.#mostBytes) throw new JuteError(`a frame of ${length} bytes`);
      this.#wanted = 4 + length;
      if (bytes.length < this.#wanted) break;
      frames.push(bytes.subarray(4, this.#wanted));
      bytes = bytes.subarray(this.#wanted);
      this.#wanted = 4;
    }
    this.#held = bytes.length === 0 ? [] : [bytes];
    this.#heldBytes = bytes.length;
    return frames;
  }
}

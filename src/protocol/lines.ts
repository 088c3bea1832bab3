/** Bytes to lines. A line feed never stands inside a UTF-8 sequence or a JSON text, so bytes are split before they are read. */

import { isUtf8 } from "node:buffer";
import { ProtocolError } from "./hello.ts";

const LINE_FEED = 10;
const NO_LINES: readonly string[] = [];

export class LineReader {
  /** The beginning of a line whose end has not come. */
  #begun: Buffer[] = [];
  #begunBytes = 0;
  /** Longest line, in bytes, its line feed included. */
  mostBytes: number;

  constructor(mostBytes: number) {
    this.mostBytes = mostBytes;
  }

  /**
   * The lines that this chunk completes, without their line feeds.
   * @throws ProtocolError if a line is too long or is not UTF-8
   */
  push(chunk: Buffer): readonly string[] {
    let end = chunk.indexOf(LINE_FEED);
    if (end === -1) {
      this.#keep(chunk);
      return NO_LINES;
    }
    const lines: string[] = [];
    let from = 0;
    for (; end !== -1; end = chunk.indexOf(LINE_FEED, from)) {
      lines.push(this.#line(chunk.subarray(from, end)));
      from = end + 1;
    }
    if (from < chunk.length) this.#keep(chunk.subarray(from));
    return lines;
  }

  #keep(part: Buffer): void {
    this.#begun.push(part);
    this.#begunBytes += part.length;
    if (this.#begunBytes >= this.mostBytes) throw tooLong(this.mostBytes);
    // one byte at a time must not cost an object a byte
    if (this.#begun.length >= 64) this.#begun = [Buffer.concat(this.#begun)];
  }

  #line(last: Buffer): string {
    let line = last;
    if (this.#begunBytes > 0) {
      line = Buffer.concat([...this.#begun, last]);
      this.#begun = [];
      this.#begunBytes = 0;
    }
    if (line.length >= this.mostBytes) throw tooLong(this.mostBytes);
    if (!isUtf8(line)) throw new ProtocolError("PROTOCOL", "a line is not UTF-8");
    return line.toString("utf8");
  }
}

function tooLong(mostBytes: number): ProtocolError {
  return new ProtocolError("PROTOCOL", `a line is longer than ${mostBytes} bytes`);
}

/** Has the JSON text arrays and objects in each other to more than that many levels? Of a text that is no JSON it may say either. */
export function nestsDeeper(text: string, most: number): boolean {
  let depth = 0;
  let isInside = false;
  for (let at = 0; at < text.length; at++) {
    const char = text[at];
    if (isInside) {
      if (char === "\\") at++;
      else if (char === '"') isInside = false;
    } else if (char === '"') isInside = true;
    else if (char === "[" || char === "{") {
      if (++depth > most) return true;
    } else if (char === "]" || char === "}") depth--;
  }
  return false;
}

/** Frames as lines of at most that many bytes each, as far as every frame fits into a line. */
export function encodeLines(start: string, frames: readonly string[], mostBytes: number): string[] {
  const head = `["${start}"`;
  const room = mostBytes - head.length - "]\n".length;
  const lines: string[] = [];
  let text = "";
  let bytes = 0;
  for (const frame of frames) {
    const size = sizeOf(frame) + 1;
    if (bytes + size > room && text !== "") {
      lines.push(`${head}${text}]\n`);
      text = "";
      bytes = 0;
    }
    text += `,${frame}`;
    bytes += size;
  }
  lines.push(`${head}${text}]\n`);
  return lines;
}

/** Bytes of UTF-8, or more: a code unit has at most three. */
function sizeOf(frame: string): number {
  return frame.length < 1_024 ? frame.length * 3 : Buffer.byteLength(frame);
}

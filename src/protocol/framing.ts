/** Bytes to lines. A line feed never stands inside a UTF-8 sequence or a JSON text, so bytes are split before they are read. */

import { isUtf8 } from "node:buffer";
import { ProtocolError } from "./handshake.ts";

const LINE_FEED = 10;
const NO_LINES: readonly string[] = [];

export class LineDecoder {
  /** The beginning of a line whose end has not come. */
  #partial: Buffer[] = [];
  #partialBytes = 0;
  /** Longest line, in bytes, its line feed included. */
  maxBytes: number;

  constructor(maxBytes: number) {
    this.maxBytes = maxBytes;
  }

  /**
   * The lines that this chunk completes, without their line feeds.
   * @throws ProtocolError if a line is too long or is not UTF-8
   */
  push(chunk: Buffer): readonly string[] {
    let end = chunk.indexOf(LINE_FEED);
    if (end === -1) {
      this.#append(chunk);
      return NO_LINES;
    }
    const lines: string[] = [];
    let from = 0;
    for (; end !== -1; end = chunk.indexOf(LINE_FEED, from)) {
      lines.push(this.#finishLine(chunk.subarray(from, end)));
      from = end + 1;
    }
    if (from < chunk.length) this.#append(chunk.subarray(from));
    return lines;
  }

  #append(part: Buffer): void {
    this.#partial.push(part);
    this.#partialBytes += part.length;
    if (this.#partialBytes >= this.maxBytes) throw lineTooLongError(this.maxBytes);
    // one byte at a time must not cost an object a byte
    if (this.#partial.length >= 64) this.#partial = [Buffer.concat(this.#partial)];
  }

  #finishLine(last: Buffer): string {
    let line = last;
    if (this.#partialBytes > 0) {
      line = Buffer.concat([...this.#partial, last]);
      this.#partial = [];
      this.#partialBytes = 0;
    }
    if (line.length >= this.maxBytes) throw lineTooLongError(this.maxBytes);
    if (!isUtf8(line)) throw new ProtocolError("PROTOCOL", "a line is not UTF-8");
    return line.toString("utf8");
  }
}

function lineTooLongError(maxBytes: number): ProtocolError {
  return new ProtocolError("PROTOCOL", `a line is longer than ${maxBytes} bytes`);
}

/** Has the JSON text arrays and objects in each other to more than that many levels? Of a text that is no JSON it may say either. */
export function exceedsDepth(text: string, maxDepth: number): boolean {
  let depth = 0;
  let isInString = false;
  for (let index = 0; index < text.length; index++) {
    const char = text[index];
    if (isInString) {
      if (char === "\\") index++;
      else if (char === '"') isInString = false;
    } else if (char === '"') isInString = true;
    else if (char === "[" || char === "{") {
      if (++depth > maxDepth) return true;
    } else if (char === "]" || char === "}") depth--;
  }
  return false;
}

/** Frames as lines of at most that many bytes each, as far as every frame fits into a line. */
export function encodeLines(runId: string, frames: readonly string[], maxBytes: number): string[] {
  const head = `["${runId}"`;
  const maxFrameBytes = maxBytes - head.length - "]\n".length;
  const lines: string[] = [];
  let text = "";
  let bytes = 0;
  for (const frame of frames) {
    const size = estimateBytes(frame) + 1;
    if (bytes + size > maxFrameBytes && text !== "") {
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
function estimateBytes(frame: string): number {
  return frame.length < 1_024 ? frame.length * 3 : Buffer.byteLength(frame);
}

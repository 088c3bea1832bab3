/** Splits bytes into lines before decoding: neither a UTF-8 sequence nor a JSON text of the protocol contains a line feed. */

import { isUtf8 } from "node:buffer";
import { ProtocolError } from "./handshake.ts";

const LINE_FEED = 10;
const NO_LINES: readonly string[] = [];

export class LineDecoder {
  /** The beginning of an incomplete line. */
  #partial: Buffer[] = [];
  #partialBytes = 0;
  /** The longest line in bytes, including its line feed. */
  maxBytes: number;

  constructor(maxBytes: number) {
    this.maxBytes = maxBytes;
  }

  /**
   * Returns the lines that this chunk completes, without their line feeds.
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
    // a peer that sends single bytes must not make this process keep one object per byte
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

/** Does the JSON text have more than maxDepth nested arrays and objects? For invalid JSON the result is arbitrary. */
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

/** Packs frames into lines of at most maxBytes. A frame that is longer gets a line of its own. */
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

/** An upper bound of the bytes in UTF-8: a code unit takes at most three. */
function estimateBytes(frame: string): number {
  return frame.length < 1_024 ? frame.length * 3 : Buffer.byteLength(frame);
}

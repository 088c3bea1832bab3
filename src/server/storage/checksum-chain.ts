/**
 * The format of `journal` and `sessions`: a header, and lines that are appended.
 *
 *   <checksum> {"kind":"journal","layout":2,"id":"...","generation":7,"lines":"000000000002"}
 *   <checksum> <text>
 *   <checksum> <text>
 *
 * The header names the state and the generation that the file belongs to, and the minimum number of its lines. It has a
 * fixed length and is overwritten after lines were appended. Each checksum also covers the previous one, so no line can
 * be missing from the middle; the header's count reveals lines missing from the end.
 *
 * Invariant: the server relies on a line only after the header counts it. A line beyond the count is possible (the
 * process ended in between), and is as valid as the others. The first one there that does not fit is the rest of a
 * failed write, and ends the file; so do spaces, which keep room for more lines.
 */

import type { StateEpoch } from "../../protocol/handshake.ts";
import { CHECKSUM_CHARS, computeChecksum, decodeCheckedLine, encodeCheckedLine } from "../../util/checksum.ts";
import { FORMAT_VERSION } from "./storage.ts";

const COUNT_DIGITS = 12;

/** Encodes the lines of such a file, in order. */
export class ChecksumChain {
  readonly #kind: string;
  readonly #epoch: StateEpoch;
  #lastChecksum: string;
  /** Number of lines so far. */
  lineCount = 0;

  constructor(kind: string, epoch: StateEpoch) {
    this.#kind = kind;
    this.#epoch = epoch;
    this.#lastChecksum = rootChecksum(kind, epoch);
  }

  /** The header for a file with the lines so far. */
  encodeHeader(): string {
    const lines = String(this.lineCount).padStart(COUNT_DIGITS, "0");
    return encodeCheckedLine(
      JSON.stringify({ kind: this.#kind, layout: FORMAT_VERSION, ...toEpoch(this.#epoch), lines }),
    );
  }

  /** To go back to, if the lines after it could not be written. */
  clone(): ChecksumChain {
    const copy = new ChecksumChain(this.#kind, this.#epoch);
    copy.#lastChecksum = this.#lastChecksum;
    copy.lineCount = this.lineCount;
    return copy;
  }

  /** The next line. */
  appendLine(text: string): string {
    this.#lastChecksum = computeChecksum(`${this.#lastChecksum} ${text}`);
    this.lineCount++;
    return `${this.#lastChecksum} ${text}\n`;
  }
}

/** The contents of such a file. */
export interface DecodedChain {
  readonly epoch: StateEpoch;
  readonly lines: readonly string[];
}

/** Decodes the lines, without an incomplete line at the end. Null: the file is damaged or of another kind. */
export function decodeChain(kind: string, text: string): DecodedChain | null {
  const [firstLine = "", ...lines] = text.split("\n");
  // text after the last line feed is an incomplete write
  if (lines.pop() === undefined) return null;
  const header = decodeHeader(kind, firstLine);
  if (header === null || lines.length < header.count) return null;
  let lastChecksum = rootChecksum(kind, header.epoch);
  const texts: string[] = [];
  for (const line of lines) {
    const lineText = line.slice(CHECKSUM_CHARS + 1);
    lastChecksum = computeChecksum(`${lastChecksum} ${lineText}`);
    if (line !== `${lastChecksum} ${lineText}`) {
      if (texts.length < header.count) return null;
      break;
    }
    texts.push(lineText);
  }
  return { epoch: header.epoch, lines: texts };
}

function decodeHeader(kind: string, line: string): { readonly epoch: StateEpoch; readonly count: number } | null {
  const text = decodeCheckedLine(line);
  if (text === null) return null;
  const header = JSON.parse(text) as { kind: string; layout: number; lines: string } & StateEpoch;
  if (header.kind !== kind || header.layout !== FORMAT_VERSION) return null;
  return { epoch: toEpoch(header), count: Number(header.lines) };
}

/** The start of the chain: it makes lines invalid in another file, and in the same file of another start. */
function rootChecksum(kind: string, epoch: StateEpoch): string {
  return computeChecksum(JSON.stringify({ kind, ...toEpoch(epoch) }));
}

function toEpoch({ id, generation }: StateEpoch): StateEpoch {
  return { id, generation };
}

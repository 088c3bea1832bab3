/**
 * The form of `journal` and `sessions`: a header, and lines that are appended.
 *
 *   <checksum> {"kind":"journal","layout":2,"id":"...","generation":7,"lines":"000000000002"}
 *   <checksum> <text>
 *   <checksum> <text>
 *
 * The header says which start of which state the file belongs to, and how many lines it has at least: it always has the
 * same length, and is written over when lines have been appended. Each checksum covers the one before it, so that
 * no line can be missing from the middle, and the header's count shows lines that are missing from the end.
 *
 * Invariant: nothing that a line promises is relied on before the header counts the line. A line beyond the count may
 * stand there (the process ended in between), and is as good as the others.
 */

import { createHash } from "node:crypto";
import type { StateEpoch } from "../../protocol/handshake.ts";
import { FORMAT_VERSION } from "./storage.ts";

const COUNT_DIGITS = 12;
const CHECKSUM_CHARS = 16;

/** Writes the texts of such a file, in order. */
export class ChecksumChain {
  readonly #kind: string;
  readonly #epoch: StateEpoch;
  #lastChecksum: string;
  /** Lines so far. */
  lineCount = 0;

  constructor(kind: string, epoch: StateEpoch) {
    this.#kind = kind;
    this.#epoch = epoch;
    this.#lastChecksum = rootChecksum(kind, epoch);
  }

  /** The first line of a file that has the lines so far. */
  encodeHeader(): string {
    const lines = String(this.lineCount).padStart(COUNT_DIGITS, "0");
    const text = JSON.stringify({ kind: this.#kind, layout: FORMAT_VERSION, ...toEpoch(this.#epoch), lines });
    return `${computeChecksum(text)} ${text}\n`;
  }

  /** The next line. */
  appendLine(text: string): string {
    this.#lastChecksum = computeChecksum(`${this.#lastChecksum} ${text}`);
    this.lineCount++;
    return `${this.#lastChecksum} ${text}\n`;
  }
}

/** What such a file says. */
export interface DecodedChain {
  readonly epoch: StateEpoch;
  readonly lines: readonly string[];
}

/** The lines of a file; a line at the end that was being written is left out. Null: it is damaged, or something else. */
export function decodeChain(kind: string, text: string): DecodedChain | null {
  const [firstLine = "", ...lines] = text.split("\n");
  // what follows the last line feed was being written
  if (lines.pop() === undefined) return null;
  const header = decodeHeader(kind, firstLine);
  if (header === null || lines.length < header.count) return null;
  let lastChecksum = rootChecksum(kind, header.epoch);
  const texts: string[] = [];
  for (const line of lines) {
    const lineText = line.slice(CHECKSUM_CHARS + 1);
    lastChecksum = computeChecksum(`${lastChecksum} ${lineText}`);
    if (line !== `${lastChecksum} ${lineText}`) return null;
    texts.push(lineText);
  }
  return { epoch: header.epoch, lines: texts };
}

function decodeHeader(kind: string, line: string): { readonly epoch: StateEpoch; readonly count: number } | null {
  const text = line.slice(CHECKSUM_CHARS + 1);
  if (line !== `${computeChecksum(text)} ${text}`) return null;
  const header = JSON.parse(text) as { kind: string; layout: number; lines: string } & StateEpoch;
  if (header.kind !== kind || header.layout !== FORMAT_VERSION) return null;
  return { epoch: toEpoch(header), count: Number(header.lines) };
}

/** Lines of one file do not fit into another one, nor into that of another start. */
function rootChecksum(kind: string, epoch: StateEpoch): string {
  return computeChecksum(JSON.stringify({ kind, ...toEpoch(epoch) }));
}

function toEpoch({ id, generation }: StateEpoch): StateEpoch {
  return { id, generation };
}

/** Finds damage, not malice: who can write the folder can write checksums, too. */
export function computeChecksum(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, CHECKSUM_CHARS);
}

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
import type { StateName } from "../protocol/hello.ts";
import { LAYOUT } from "./disk.ts";

const COUNT_DIGITS = 12;
const CHECKSUM_CHARS = 16;

/** Writes the texts of such a file, in order. */
export class Chain {
  readonly #kind: string;
  readonly #epoch: StateName;
  #last: string;
  /** Lines so far. */
  count = 0;

  constructor(kind: string, epoch: StateName) {
    this.#kind = kind;
    this.#epoch = epoch;
    this.#last = rootOf(kind, epoch);
  }

  /** The first line of a file that has the lines so far. */
  header(): string {
    const lines = String(this.count).padStart(COUNT_DIGITS, "0");
    const text = JSON.stringify({ kind: this.#kind, layout: LAYOUT, ...plain(this.#epoch), lines });
    return `${checksum(text)} ${text}\n`;
  }

  /** The next line. */
  line(text: string): string {
    this.#last = checksum(`${this.#last} ${text}`);
    this.count++;
    return `${this.#last} ${text}\n`;
  }
}

/** What such a file says. */
export interface Chained {
  readonly epoch: StateName;
  readonly lines: readonly string[];
}

/** The lines of a file; a line at the end that was being written is left out. Null: it is damaged, or something else. */
export function chained(kind: string, whole: string): Chained | null {
  const [head = "", ...lines] = whole.split("\n");
  // what follows the last line feed was being written
  if (lines.pop() === undefined) return null;
  const header = headerOf(kind, head);
  if (header === null || lines.length < header.count) return null;
  let last = rootOf(kind, header.epoch);
  const texts: string[] = [];
  for (const line of lines) {
    const text = line.slice(CHECKSUM_CHARS + 1);
    last = checksum(`${last} ${text}`);
    if (line !== `${last} ${text}`) return null;
    texts.push(text);
  }
  return { epoch: header.epoch, lines: texts };
}

function headerOf(kind: string, line: string): { readonly epoch: StateName; readonly count: number } | null {
  const text = line.slice(CHECKSUM_CHARS + 1);
  if (line !== `${checksum(text)} ${text}`) return null;
  const header = JSON.parse(text) as { kind: string; layout: number; lines: string } & StateName;
  if (header.kind !== kind || header.layout !== LAYOUT) return null;
  return { epoch: plain(header), count: Number(header.lines) };
}

/** Lines of one file do not fit into another one, nor into that of another start. */
function rootOf(kind: string, epoch: StateName): string {
  return checksum(JSON.stringify({ kind, ...plain(epoch) }));
}

function plain({ id, generation }: StateName): StateName {
  return { id, generation };
}

/** Finds damage, not malice: who can write the folder can write checksums, too. */
export function checksum(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, CHECKSUM_CHARS);
}

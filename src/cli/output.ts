/** What is printed: text of others made harmless, sentences on stderr, results on stdout. */

import { writeSync } from "node:fs";

/** Control, format (bidi among them), separator and lone surrogate characters: what could forge a line or reorder it. */
const UNSAFE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

/** Text from others for a terminal: nothing in it can move the cursor, change its order or begin a line. */
export function visible(text: string): string {
  return text.replace(UNSAFE, (found) => `\\u{${(found.codePointAt(0) as number).toString(16)}}`);
}

/** A key between quotation marks. */
export function quoted(key: string): string {
  return `"${visible(key)}"`;
}

/** Several keys: "a", "b" and "c". */
export function quotedList(keys: readonly string[]): string {
  const all = keys.map(quoted);
  return all.length < 2 ? all.join("") : `${all.slice(0, -1).join(", ")} and ${all.at(-1)}`;
}

/** One line of JSON that reads back as the same value and is as harmless in a terminal as visible() makes text. */
export function jsonLine(value: unknown): string {
  const text = JSON.stringify(value, (_, part) => (typeof part === "bigint" ? part.toString() : part));
  return text.replace(UNSAFE, (found) =>
    [...Array(found.length).keys()].map((at) => `\\u${found.charCodeAt(at).toString(16).padStart(4, "0")}`).join(""),
  );
}

/** Prints a line of results. */
export function print(line: string): void {
  write(1, `${line}\n`);
}

/** Says something to the person: one line on stderr, beginning with our name. */
export function say(sentence: string): void {
  write(2, `holdfast: ${sentence}\n`);
}

/** Prints a line on stderr as it is. */
export function complain(line: string): void {
  write(2, `${line}\n`);
}

/** At once, so that nothing is lost when the process ends; a reader who has gone is no fault of ours. */
function write(descriptor: 1 | 2, text: string): void {
  const bytes = Buffer.from(text);
  let done = 0;
  while (done < bytes.length) {
    try {
      done += writeSync(descriptor, bytes, done);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === "EPIPE" || code === "EIO" || code === "EBADF") return;
      // a full pipe of a non-blocking terminal or parent: it will be read
      if (code !== "EAGAIN") throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
    }
  }
}

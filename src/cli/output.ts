/** What is printed: text of others made harmless, sentences on stderr, results on stdout. */

import { writeSync } from "node:fs";
import { CommandError } from "./failure.ts";

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

/** Prints a line of results; a reader who has gone is no fault of ours. @throws CommandError output */
export function print(line: string): void {
  try {
    write(1, `${line}\n`);
  } catch (error) {
    if (!isGone(error)) throw unwritable(error);
  }
}

/** Prints a line that somebody must get. @throws CommandError output, also when its reader has gone */
export function deliver(line: string): void {
  try {
    write(1, `${line}\n`);
  } catch (error) {
    throw unwritable(error);
  }
}

/** Says something to the person: one line on stderr, beginning with our name. */
export function say(sentence: string): void {
  complain(`holdfast: ${sentence}`);
}

/** Prints a line on stderr as it is. What cannot be said (a log on a full disk) must not stop the work. */
export function complain(line: string): void {
  try {
    write(2, `${line}\n`);
  } catch {
    // there is nobody left to tell
  }
}

function isGone(error: unknown): boolean {
  return ["EPIPE", "EIO", "EBADF"].includes((error as NodeJS.ErrnoException).code ?? "");
}

function unwritable(cause: unknown): CommandError {
  return new CommandError("output", `standard output cannot be written: ${(cause as Error).message}`, { cause });
}

/** At once, so that nothing is lost when the process ends. */
function write(descriptor: 1 | 2, text: string): void {
  const bytes = Buffer.from(text);
  let done = 0;
  while (done < bytes.length) {
    try {
      done += writeSync(descriptor, bytes, done);
    } catch (error) {
      // a full pipe of a non-blocking terminal or parent: it will be read
      if ((error as NodeJS.ErrnoException).code !== "EAGAIN") throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
    }
  }
}

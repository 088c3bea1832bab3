/** What is printed: text of others made harmless, sentences on stderr, results on stdout. */

import { writeSync } from "node:fs";
import { CommandError } from "./errors.ts";

/** Control, format (bidi among them), separator and lone surrogate characters: what could forge a line or reorder it. */
const UNSAFE_CHARACTERS = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

/** Text from others for a terminal: nothing in it can move the cursor, change its order or begin a line. */
export function escapeControl(text: string): string {
  return text.replace(UNSAFE_CHARACTERS, (unsafe) => `\\u{${(unsafe.codePointAt(0) as number).toString(16)}}`);
}

/** A key between quotation marks. */
export function quoteKey(key: string): string {
  return `"${escapeControl(key)}"`;
}

/** Several keys: "a", "b" and "c". */
export function quoteKeys(keys: readonly string[]): string {
  const quotedKeys = keys.map(quoteKey);
  return quotedKeys.length < 2 ? quotedKeys.join("") : `${quotedKeys.slice(0, -1).join(", ")} and ${quotedKeys.at(-1)}`;
}

/** One line of JSON that reads back as the same value and is as harmless in a terminal as escapeControl() makes text. */
export function formatJsonLine(value: unknown): string {
  const text = JSON.stringify(value, (_, part) => (typeof part === "bigint" ? part.toString() : part));
  return text.replace(UNSAFE_CHARACTERS, (unsafe) =>
    [...Array(unsafe.length).keys()]
      .map((index) => `\\u${unsafe.charCodeAt(index).toString(16).padStart(4, "0")}`)
      .join(""),
  );
}

/** Prints a line of results; a reader who has gone is no fault of ours. @throws CommandError output */
export function printLine(line: string): void {
  try {
    writeFully(1, `${line}\n`);
  } catch (error) {
    if (!isReaderGone(error)) throw toOutputError(error);
  }
}

/** Prints a line that somebody must get. @throws CommandError output, also when its reader has gone */
export function printRequired(line: string): void {
  try {
    writeFully(1, `${line}\n`);
  } catch (error) {
    throw toOutputError(error);
  }
}

/** Says something to the person: one line on stderr, beginning with our name. */
export function info(sentence: string): void {
  writeStderr(`holdfast: ${sentence}`);
}

/** Prints a line on stderr as it is. What cannot be said (a log on a full disk) must not stop the work. */
export function writeStderr(line: string): void {
  try {
    writeFully(2, `${line}\n`);
  } catch {
    // there is nobody left to tell
  }
}

function isReaderGone(error: unknown): boolean {
  return ["EPIPE", "EIO", "EBADF"].includes((error as NodeJS.ErrnoException).code ?? "");
}

function toOutputError(cause: unknown): CommandError {
  return new CommandError("output", `standard output cannot be written: ${(cause as Error).message}`, { cause });
}

/** At once, so that nothing is lost when the process ends. */
function writeFully(descriptor: 1 | 2, text: string): void {
  const bytes = Buffer.from(text);
  let written = 0;
  while (written < bytes.length) {
    try {
      written += writeSync(descriptor, bytes, written);
    } catch (error) {
      // a full pipe of a non-blocking terminal or parent: it will be read
      if ((error as NodeJS.ErrnoException).code !== "EAGAIN") throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
    }
  }
}

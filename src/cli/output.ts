/** Output of the commands: results on stdout, messages and warnings on stderr, text from other users escaped. */

import { writeSync } from "node:fs";
import { CommandError } from "./errors.ts";

/** Control, format (also bidi), separator and lone surrogate characters: they could forge a line or reorder it. */
const UNSAFE_CHARACTERS = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

/**
 * Escapes text from other users for a terminal: it cannot move the cursor, change the order of text or begin a line.
 */
export function escapeControl(text: string): string {
  return text.replace(UNSAFE_CHARACTERS, (unsafe) => `\\u{${(unsafe.codePointAt(0) as number).toString(16)}}`);
}

/** A key in quotation marks. */
export function quoteKey(key: string): string {
  return `"${escapeControl(key)}"`;
}

/** Several keys: "a", "b" and "c". */
export function quoteKeys(keys: readonly string[]): string {
  const quotedKeys = keys.map(quoteKey);
  return quotedKeys.length < 2 ? quotedKeys.join("") : `${quotedKeys.slice(0, -1).join(", ")} and ${quotedKeys.at(-1)}`;
}

/**
 * One line of JSON. It parses back to the same value, and is as safe for a terminal as the result of escapeControl().
 */
export function formatJsonLine(value: unknown): string {
  const text = JSON.stringify(value, (_, part) => (typeof part === "bigint" ? part.toString() : part));
  return text.replace(UNSAFE_CHARACTERS, (unsafe) =>
    [...Array(unsafe.length).keys()]
      .map((index) => `\\u${unsafe.charCodeAt(index).toString(16).padStart(4, "0")}`)
      .join(""),
  );
}

/** Prints a line of results. A closed pipe is not an error. @throws CommandError output */
export function printLine(line: string): void {
  try {
    writeFully(1, `${line}\n`);
  } catch (error) {
    if (!isPipeClosed(error)) throw toOutputError(error);
  }
}

/** Prints a line that must not get lost. @throws CommandError output, also if the pipe is closed */
export function printRequired(line: string): void {
  try {
    writeFully(1, `${line}\n`);
  } catch (error) {
    throw toOutputError(error);
  }
}

/** Prints a message for the user: one line on stderr that begins with `holdfast:`. */
export function info(sentence: string): void {
  writeStderr(`holdfast: ${sentence}`);
}

/** Prints a line on stderr. A failure (a log on a full disk) is ignored: it must not stop the work. */
export function writeStderr(line: string): void {
  try {
    writeFully(2, `${line}\n`);
  } catch {
    // there is nowhere else to report it
  }
}

function isPipeClosed(error: unknown): boolean {
  return ["EPIPE", "EIO", "EBADF"].includes((error as NodeJS.ErrnoException).code ?? "");
}

function toOutputError(cause: unknown): CommandError {
  return new CommandError("output", `standard output cannot be written: ${(cause as Error).message}`, { cause });
}

/** Writes synchronously, so that nothing is lost when the process exits. */
function writeFully(descriptor: 1 | 2, text: string): void {
  const bytes = Buffer.from(text);
  let written = 0;
  while (written < bytes.length) {
    try {
      written += writeSync(descriptor, bytes, written);
    } catch (error) {
      // a non-blocking pipe or terminal is full: wait until its reader catches up
      if ((error as NodeJS.ErrnoException).code !== "EAGAIN") throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
    }
  }
}

/** Prints messages as far as --quiet, --verbose and --json allow. */
export interface Reporter {
  /** For the user at the terminal. Not printed with --quiet, nor with --json unless --verbose is given, too. */
  info(sentence: string): void;
  /** Printed only with --verbose. */
  debug(sentence: string): void;
}

/** The reporter for these flags. */
export function createReporter(flags: {
  readonly quiet?: boolean;
  readonly verbose?: boolean;
  readonly json?: boolean;
}): Reporter {
  const ignore = (): void => undefined;
  const isMuted = flags.quiet === true || (flags.json === true && flags.verbose !== true);
  return { info: isMuted ? ignore : info, debug: flags.verbose === true && flags.quiet !== true ? info : ignore };
}

let originalListeners: readonly NodeJS.WarningListener[] | null = null;
let handleOwnWarning: (warning: string) => void = () => undefined;

/** From now on Holdfast's warnings go to `handle` only; all other warnings go to the listeners that had them before. */
export function handleWarnings(handle: (warning: string) => void): void {
  handleOwnWarning = handle;
  if (originalListeners !== null) return;
  originalListeners = process.listeners("warning");
  process.removeAllListeners("warning");
  process.on("warning", (warning) => {
    if (warning.name.startsWith("Holdfast")) handleOwnWarning(warning.message);
    else for (const listener of originalListeners ?? []) listener(warning);
  });
}

/** The rules for keys and labels. Keys are compared by code points: no case folding, Unicode normalisation or trimming. */

import { describeValue } from "./duration.ts";

/** The longest key in bytes of UTF-8, including a client's prefix. */
export const MAX_KEY_BYTES = 512;

/** The longest label in bytes of UTF-8. */
const MAX_LABEL_BYTES = 256;

const PRINTABLE_ASCII = /^[\x20-\x7e]{1,512}$/;
// C0, DEL, C1 and the two line separators, which could forge a line in a log or a terminal
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
const CONTROL_CHARACTERS = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/;

/**
 * Validates a key and returns it.
 * @throws TypeError naming the argument if it is not 1 to 512 bytes of well-formed text without control characters
 */
export function validateKey(key: unknown, name = "key"): string {
  if (typeof key !== "string") throw new TypeError(`${name} must be a string, not ${describeValue(key)}`);
  if (PRINTABLE_ASCII.test(key)) return key;
  const problem = keyProblem(key);
  if (problem !== null) throw new TypeError(`${name} ${problem}`);
  return key;
}

/** Returns what is wrong with a key, or null. */
function keyProblem(key: string): string | null {
  if (key === "") return "must not be empty";
  if (key.length > MAX_KEY_BYTES || Buffer.byteLength(key) > MAX_KEY_BYTES) {
    return `must have at most ${MAX_KEY_BYTES} bytes of UTF-8`;
  }
  if (CONTROL_CHARACTERS.test(key)) return "must not contain control characters or line separators";
  if (!key.isWellFormed()) return "must be well-formed Unicode (it has a lone surrogate)";
  return null;
}

/**
 * Cleans a label for lists: control characters become spaces, and a label that is too long is cut.
 * @throws TypeError if it is not a string
 */
export function cleanLabel(label: unknown, name = "label"): string {
  if (typeof label !== "string") throw new TypeError(`${name} must be a string, not ${describeValue(label)}`);
  const text = label.replace(new RegExp(CONTROL_CHARACTERS.source, "g"), " ").toWellFormed();
  if (Buffer.byteLength(text) <= MAX_LABEL_BYTES) return text;
  // drop a character that was cut in the middle
  return Buffer.from(text)
    .subarray(0, MAX_LABEL_BYTES)
    .toString()
    .replace(/\ufffd$/, "");
}

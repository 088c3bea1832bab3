// A mark in every secret that a test run makes (claim ids, sessions, credentials: all that randomId() gives), new in each
// run, and the search for it in what the suites print. It gets into every process by NODE_OPTIONS, into ours and into
// those that tests start: their own environment variables are taken from some of them.

import { randomBytes } from "node:crypto";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const ALPHABET = "abcdefghijklmnopqrstuvwxyz234567";
/** 70 bits: it stands nowhere by chance. */
const MARK_CHARS = 14;
const PRELOAD = "build/scripts/test/secret-scan-preload.js";

export function createMark(): string {
  return [...randomBytes(MARK_CHARS)].map((byte) => ALPHABET[byte & 31]).join("");
}

/**
 * What a process must be given as NODE_OPTIONS, besides its own, to put the mark into its secrets. The mark is written
 * in hex there, since some tests print their environment.
 */
export function markNodeOptions(mark: string, own: string | undefined = process.env.NODE_OPTIONS): string {
  return `${own ?? ""} --import=${pathToFileURL(resolve(PRELOAD)).href}?mark=${Buffer.from(mark).toString("hex")}`.trim();
}

/** Looks for the mark in what is pushed, as it is and in base64: `found` says whether it was there. */
export function scanFor(mark: string): { push(text: string): void; readonly found: boolean } {
  const forms = encodedForms(mark);
  const longest = Math.max(...forms.map(({ length }) => length));
  let tail = "";
  let found = false;
  return {
    push(text) {
      const whole = tail + text;
      found ||= forms.some((form) => whole.includes(form));
      tail = whole.slice(-longest);
    },
    get found() {
      return found;
    },
  };
}

/** Base64 writes a text in three ways, by where it begins; at its ends the neighbours have a say. */
function encodedForms(mark: string): string[] {
  const coded = [0, 1, 2].map((before) => {
    const text = Buffer.from(`${"-".repeat(before)}${mark}`).toString("base64url");
    return text.slice(before === 0 ? 0 : before + 1, Math.floor(((before + mark.length) * 8) / 6));
  });
  return [mark, ...coded];
}

/** Commands for a POSIX shell that a user copies: each argument reaches the program exactly as it is. */

const PLAIN = /^[\w@%+=:,./-]+$/;

/** What must not reach a terminal as it is: controls but the newline, and what changes the direction or cannot be seen. */
const HIDDEN = /((?!\n)(?:[\p{Cc}\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff])+)/u;

/**
 * One word of a shell command, quoted only if it has to be. Hidden characters are written by printf: pasted as they are they
 * could act on the terminal, or mislead a reader. A newline stays in its quotes, since $() drops newlines at its end.
 */
export function quoteWord(text: string): string {
  if (PLAIN.test(text)) return text;
  const parts = text.split(HIDDEN).map((part, index) => (index % 2 === 1 ? printHidden(part) : quotePart(part)));
  return parts.join("") || "''";
}

function quotePart(text: string): string {
  return text === "" ? "" : `'${text.replaceAll("'", "'\\''")}'`;
}

function printHidden(text: string): string {
  const octal = Array.from(new TextEncoder().encode(text), (byte) => `\\${byte.toString(8).padStart(3, "0")}`);
  return `"$(printf '${octal.join("")}')"`;
}

/** A word that begins with a hyphen would be a flag. */
function placeKey(key: string): string {
  return key.startsWith("-") ? `-- ${quoteWord(key)}` : quoteWord(key);
}

const URL_SCHEME = /^[a-z][a-z+]*:/;
/** In place of a password, which the gateway does not tell. */
const REDACTED = "***";

/** The url of a store by its name in messages; null: it has none, or the name is not all of it. */
export function findUrl(store: string): string | null {
  return URL_SCHEME.test(store) && !store.includes(REDACTED) ? store : null;
}

/** @param url null: the command asks the store of HOLDFAST_URL or HOLDFAST_DRIVER */
function placeUrl(url: string | null): readonly string[] {
  if (url === null) return [];
  return ["--url", PLAIN.test(url) ? quotePart(url) : quoteWord(url)];
}

/** What a user must know of a command without the url. */
export function hintStore(url: string | null): string | null {
  return url === null ? "for the store of HOLDFAST_URL or HOLDFAST_DRIVER" : null;
}

/** Shows the key. */
export function showCommand(key: string, url: string | null): string {
  return ["holdfast show", ...placeUrl(url), placeKey(key)].join(" ");
}

/** What a copied command revokes. */
export interface RevokeCommand {
  /** null: of the store of HOLDFAST_URL or HOLDFAST_DRIVER. */
  readonly url: string | null;
  readonly key: string;
  readonly token: string;
  readonly reason: string;
  readonly now: boolean;
}

/** Revokes the lock with this token. The key is last, so that it may begin with a hyphen. */
export function revokeCommand({ url, key, token, reason, now }: RevokeCommand): string {
  const flags = ["--token", quoteWord(token), ...(now ? ["--now"] : [])];
  // with "=", as a reason may begin with a hyphen, too
  const reasonFlag = reason === "" ? [] : [`--reason=${quoteWord(reason)}`];
  return ["holdfast revoke", ...placeUrl(url), ...flags, ...reasonFlag, placeKey(key)].join(" ");
}

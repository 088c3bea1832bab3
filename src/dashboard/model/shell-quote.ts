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

/** Shows the key. */
export function showCommand(key: string): string {
  return `holdfast show ${placeKey(key)}`;
}

/** What a copied command revokes. */
export interface RevokeCommand {
  readonly key: string;
  readonly token: string;
  readonly reason: string;
  readonly now: boolean;
}

/** Revokes the lock with this token. The key is last, so that it may begin with a hyphen. */
export function revokeCommand({ key, token, reason, now }: RevokeCommand): string {
  const flags = ["--token", quoteWord(token), ...(now ? ["--now"] : [])];
  // with "=", as a reason may begin with a hyphen, too
  const reasonFlag = reason === "" ? [] : [`--reason=${quoteWord(reason)}`];
  return ["holdfast revoke", ...flags, ...reasonFlag, placeKey(key)].join(" ");
}

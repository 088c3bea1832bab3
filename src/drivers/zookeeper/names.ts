/**
 * Names of nodes. They are those of Curator's InterProcessMutex, which orders by what stands behind "lock-", so that its
 * locks and ours keep each other out: `_c_<id>-lock-<number>`; permits other than all stand before it: `_c_<id>-p2.5-lock-`.
 */

import type { Place } from "../../core/line.ts";
import { ALL_PERMITS } from "../../core/line.ts";
import type { Hold } from "../../spi/driver.ts";

/** A node of a line, as its name tells. */
export interface Seat extends Place {
  readonly name: string;
  /** As the server counted it, in 32 bits: it wraps around. */
  readonly number: number;
}

/** How the name of a claim's node begins; the server appends its number. */
export function nameFor(id: string, { permits, limit }: Hold): string {
  return permits === ALL_PERMITS && limit === ALL_PERMITS
    ? `${ofClaim(id)}lock-`
    : `${ofClaim(id)}p${permits}.${limit}-lock-`;
}

/** How the names of all nodes of a claim begin, whichever number they have. */
export function ofClaim(id: string): string {
  return `_c_${id}-`;
}

// the server writes %010d, the sign counting as a digit
const NODE = /^_c_([0-9A-Za-z]+(?:-[0-9A-Fa-f]+)*?)-(?:p(\d{1,10})\.(\d{1,10})-)?lock-(-?\d{9,10})$/;

/** What a node of a line is; null: it is not of our family. */
function seatOf(name: string): Seat | null {
  const found = NODE.exec(name);
  if (found === null) return null;
  const [, id, permits, limit, number] = found as unknown as [string, string, string?, string?, string?];
  const all = permits === undefined;
  return {
    name,
    id,
    number: Number(number),
    permits: all ? ALL_PERMITS : Number(permits),
    limit: all ? ALL_PERMITS : Number(limit),
  };
}

/**
 * The line that these children of a node form, and the first child that is of another family, if there is one. Numbers
 * are compared by their distance, so that order survives their wrap-around.
 */
export function lineOf(children: readonly string[]): {
  readonly line: readonly Seat[];
  readonly stranger: string | null;
} {
  const line: Seat[] = [];
  let stranger: string | null = null;
  for (const name of children) {
    const seat = seatOf(name);
    if (seat !== null) line.push(seat);
    else stranger ??= name;
  }
  line.sort((one, other) => (one.number - other.number) | 0);
  return { line, stranger };
}

// letters, digits and what no tool that lists paths minds
const PLAIN = /^[0-9A-Za-z_~-][0-9A-Za-z._~-]*$/;

/** The node below which a key's line stands: a key that begins with "/" is the node's path itself. */
export function folderOf(key: string, root: string): string {
  return key.startsWith("/") ? key : `${root}/${escaped(key)}`;
}

function escaped(key: string): string {
  if (PLAIN.test(key)) return key;
  let text = "";
  for (const byte of Buffer.from(key)) {
    const char = String.fromCharCode(byte);
    // a dot in front could make "." or ".."
    const plain = /[0-9A-Za-z_~-]/.test(char) || (char === "." && text !== "");
    text += plain ? char : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return text;
}

/** The key whose line stands below this child of the root; null: it is not ours. */
export function keyOf(name: string): string | null {
  let key: string;
  try {
    key = decodeURIComponent(name);
  } catch {
    // somebody else's
    return null;
  }
  return escaped(key) === name ? key : null;
}

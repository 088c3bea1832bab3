/**
 * Names of nodes. They are Curator's, so that its locks and ours keep each other out: those of its InterProcessMutex,
 * which orders by what stands behind "lock-": `_c_<id>-lock-<number>`; or those of its InterProcessReadWriteLock:
 * `_c_<id>-__WRIT__<number>` and `_c_<id>-__READ__<number>`. Permits that neither knows stand before that:
 * `_c_<id>-p2.5-lock-<number>`. A reader of Curator's minds writers only, and so does one of ours beside a semaphore; a
 * mutex and a writer of Curator's mind every node before them.
 */

import type { PermitRequest } from "../../lock-table/admission.ts";
import { ALL_PERMITS } from "../../lock-table/admission.ts";
import type { LockSpec } from "../../spi/driver.ts";
import { redactIds } from "./client/errors.ts";

/** Whose names the nodes of a path bear: of Curator's InterProcessMutex, or of its InterProcessReadWriteLock. */
export type Family = "mutex" | "readWrite";

/** Each of them. */
export const FAMILIES: readonly Family[] = ["mutex", "readWrite"];

/** A node of a line, as its name tells. */
export interface QueueNode extends PermitRequest {
  readonly name: string;
  /** As the server counted it, in 32 bits: it wraps around. */
  readonly sequence: number;
}

/** How the name of a claim's node begins; the server appends its number. */
export function formatNodePrefix(id: string, { permits, limit }: LockSpec, family: Family): string {
  const isExclusive = permits === ALL_PERMITS && limit === ALL_PERMITS;
  if (family === "mutex")
    return isExclusive ? `${formatClaimPrefix(id)}lock-` : `${formatClaimPrefix(id)}p${permits}.${limit}-lock-`;
  if (isExclusive) return `${formatClaimPrefix(id)}__WRIT__`;
  const isReader = permits === 1 && limit === ALL_PERMITS;
  return isReader ? `${formatClaimPrefix(id)}__READ__` : `${formatClaimPrefix(id)}p${permits}.${limit}-__READ__`;
}

/** Did one of our clients make this id (ids.ts)? Others' are UUIDs. */
export function isClaimId(id: string): boolean {
  return /^[a-z2-7]{26}$/.test(id);
}

/** How the names of all nodes of a claim begin, whichever number they have. */
export function formatClaimPrefix(id: string): string {
  return `_c_${id}-`;
}

// the server writes %010d, the sign counting as a digit
const ID_AND_PERMITS = "^_c_([0-9A-Za-z]+(?:-[0-9A-Fa-f]+)*?)-(?:p(\\d{1,10})\\.(\\d{1,10})-)?";
const NODE_PATTERNS: Readonly<Record<Family, RegExp>> = {
  mutex: new RegExp(`${ID_AND_PERMITS}(lock-)(-?\\d{9,10})$`),
  readWrite: new RegExp(`${ID_AND_PERMITS}(__READ__|__WRIT__)(-?\\d{9,10})$`),
};

/** What a node of a line is; null: it is not of this family. */
function parseQueueNode(name: string, family: Family): QueueNode | null {
  const match = NODE_PATTERNS[family].exec(name);
  if (match === null) return null;
  const [, id, permits, limit, kind, sequence] = match as unknown as [
    string,
    string,
    string?,
    string?,
    string?,
    string?,
  ];
  const defaultPermits = kind === "__READ__" ? 1 : ALL_PERMITS;
  return {
    name,
    id,
    sequence: Number(sequence),
    permits: permits === undefined ? defaultPermits : Number(permits),
    limit: limit === undefined ? ALL_PERMITS : Number(limit),
  };
}

/**
 * The line that these children of a node form, and the first child that is of another family, if there is one. Numbers
 * are compared by their distance, so that order survives their wrap-around. Equal ones are a writer of Curator's and its
 * own reader, which it made to keep the place: the writer comes first.
 */
export function parseQueue(
  children: readonly string[],
  family: Family,
): {
  readonly line: readonly QueueNode[];
  readonly stranger: string | null;
} {
  const queue: QueueNode[] = [];
  let foreignNode: string | null = null;
  for (const name of children) {
    const node = parseQueueNode(name, family);
    if (node !== null) queue.push(node);
    else foreignNode ??= name;
  }
  queue.sort((left, right) => (left.sequence - right.sequence) | 0 || right.permits - left.permits);
  return { line: queue, stranger: foreignNode };
}

/** Why nobody may hold a path on which this child stands: recipes that do not know each other admit one each. */
export function explainForeignNode(foreignNode: string, keyPath: string, family: Family): string {
  const [ourRecipe, otherFamily, otherRecipe] = (
    family === "mutex"
      ? ["mutex", "readWrite", "Curator's read-write lock"]
      : ["read-write lock", "mutex", "a mutex, as Curator and Holdfast make it"]
  ) as readonly [string, Family, string];
  const isOther = parseQueueNode(foreignNode, otherFamily) !== null;
  const description = isOther ? `a place of ${otherRecipe}` : `which is no place of a ${ourRecipe}`;
  const advice = isOther ? `; use the driver's option family: "${otherFamily}" for this path` : "";
  return `zookeeper: ${keyPath} holds ${redactIds(foreignNode)}, ${description}: two recipes on one path do not exclude each other${advice}`;
}

// letters, digits and what no tool that lists paths minds
const PLAIN_KEY = /^[0-9A-Za-z_~-][0-9A-Za-z._~-]*$/;

/** The node below which a key's line stands: a key that begins with "/" is the node's path itself. */
export function toKeyPath(key: string, root: string): string {
  return key.startsWith("/") ? key : `${root}/${escapeKey(key)}`;
}

function escapeKey(key: string): string {
  if (PLAIN_KEY.test(key)) return key;
  let text = "";
  for (const byte of Buffer.from(key)) {
    const char = String.fromCharCode(byte);
    // a dot in front could make "." or ".."
    const isPlain = /[0-9A-Za-z_~-]/.test(char) || (char === "." && text !== "");
    text += isPlain ? char : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return text;
}

/** The key whose line stands below this child of the root; null: it is not ours. */
export function parseKey(name: string): string | null {
  let key: string;
  try {
    key = decodeURIComponent(name);
  } catch {
    // somebody else's
    return null;
  }
  return escapeKey(key) === name ? key : null;
}

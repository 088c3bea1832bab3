/**
 * Names of nodes. They have Curator's format, so that its locks and Holdfast's exclude each other: that of its
 * InterProcessMutex, which orders by the number after "lock-": `_c_<id>-lock-<number>`; or that of its
 * InterProcessReadWriteLock: `_c_<id>-__WRIT__<number>` and `_c_<id>-__READ__<number>`. Permits that Curator has no
 * name for come before that: `_c_<id>-p2.5-lock-<number>`. A Curator reader waits for writers only, and so does a
 * Holdfast reader beside a semaphore; Curator's mutex and writer wait for every node before them.
 */

import type { PermitRequest } from "../../lock-table/admission.ts";
import type { LockSpec } from "../../spi/driver.ts";
import { ALL_PERMITS, isExclusive } from "../../spi/driver.ts";
import { redactIds } from "./client/errors.ts";

/** The format of a path's node names: that of Curator's InterProcessMutex, or of its InterProcessReadWriteLock. */
export type Family = "mutex" | "readWrite";

/** All families. */
export const FAMILIES: readonly Family[] = ["mutex", "readWrite"];

/** A node of a queue, parsed from its name. */
export interface QueueNode extends PermitRequest {
  readonly name: string;
  readonly id: string;
  /** The server's counter, in 32 bits: it wraps around. */
  readonly sequence: number;
}

/** The beginning of a claim's node name; the server appends the number. */
export function formatNodePrefix(id: string, spec: LockSpec, family: Family): string {
  const { permits, limit } = spec;
  if (family === "mutex")
    return isExclusive(spec) ? `${formatClaimPrefix(id)}lock-` : `${formatClaimPrefix(id)}p${permits}.${limit}-lock-`;
  if (isExclusive(spec)) return `${formatClaimPrefix(id)}__WRIT__`;
  const isReader = permits === 1 && limit === ALL_PERMITS;
  return isReader ? `${formatClaimPrefix(id)}__READ__` : `${formatClaimPrefix(id)}p${permits}.${limit}-__READ__`;
}

/** Was this id made by a Holdfast client (ids.ts)? Curator's ids are UUIDs. */
export function isClaimId(id: string): boolean {
  return /^[a-z2-7]{26}$/.test(id);
}

/** The beginning of the names of all nodes of a claim. */
export function formatClaimPrefix(id: string): string {
  return `_c_${id}-`;
}

// the server formats the number as %010d, in which the sign counts as a digit
const ID_AND_PERMITS = "^_c_([0-9A-Za-z]+(?:-[0-9A-Fa-f]+)*?)-(?:p(\\d{1,10})\\.(\\d{1,10})-)?";
const NODE_PATTERNS: Readonly<Record<Family, RegExp>> = {
  mutex: new RegExp(`${ID_AND_PERMITS}(lock-)(-?\\d{9,10})$`),
  readWrite: new RegExp(`${ID_AND_PERMITS}(__READ__|__WRIT__)(-?\\d{9,10})$`),
};

/** Parses a node's name; null: it is not of this family. */
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

/** The queue of a key, in order. */
export interface ParsedQueue {
  readonly queue: readonly QueueNode[];
  /** The first child of the key's node that is not of this family; null: there is none. */
  readonly foreignNode: string | null;
}

/**
 * The queue that these children of a node form. Numbers are compared by their distance, so that the order survives a
 * wrap-around. Equal numbers belong to a Curator writer and its own reader, which was made to keep the entry: the
 * writer comes first.
 */
export function parseQueue(children: readonly string[], family: Family): ParsedQueue {
  const queue: QueueNode[] = [];
  let foreignNode: string | null = null;
  for (const name of children) {
    const node = parseQueueNode(name, family);
    if (node !== null) queue.push(node);
    else foreignNode ??= name;
  }
  queue.sort((left, right) => (left.sequence - right.sequence) | 0 || right.permits - left.permits);
  return { queue, foreignNode };
}

/** Explains why a path with this child cannot be locked: each of two different recipes would admit its own claim. */
export function explainForeignNode(foreignNode: string, keyPath: string, family: Family): string {
  const [ourRecipe, otherFamily, otherRecipe] = (
    family === "mutex"
      ? ["mutex", "readWrite", "Curator's read-write lock"]
      : ["read-write lock", "mutex", "a mutex of Curator or Holdfast"]
  ) as readonly [string, Family, string];
  const isOther = parseQueueNode(foreignNode, otherFamily) !== null;
  const description = isOther ? `a node of ${otherRecipe}` : `which is not a ${ourRecipe} node`;
  const advice = isOther ? `; use the driver's option family: "${otherFamily}" for this path` : "";
  return `zookeeper: ${keyPath} contains ${redactIds(foreignNode)}, ${description}: two recipes on one path do not exclude each other${advice}`;
}

// letters, digits and characters that are safe in every tool that lists paths
const PLAIN_KEY = /^[0-9A-Za-z_~-][0-9A-Za-z._~-]*$/;

/** The path of a key's node, the parent of its queue. A key that begins with "/" is itself the path. */
export function toKeyPath(key: string, root: string): string {
  return key.startsWith("/") ? key : `${root}/${escapeKey(key)}`;
}

function escapeKey(key: string): string {
  if (PLAIN_KEY.test(key)) return key;
  let text = "";
  for (const byte of Buffer.from(key)) {
    const char = String.fromCharCode(byte);
    // a leading dot could form "." or ".."
    const isPlain = /[0-9A-Za-z_~-]/.test(char) || (char === "." && text !== "");
    text += isPlain ? char : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return text;
}

/** The key that this child of the root belongs to; null: it is not a Holdfast node. */
export function parseKey(name: string): string | null {
  let key: string;
  try {
    key = decodeURIComponent(name);
  } catch {
    // not escaped by escapeKey()
    return null;
  }
  return escapeKey(key) === name ? key : null;
}

/** What a user of the driver must be allowed, and nothing else: the lines that users are given in the reference. */

import { readFileSync } from "node:fs";

const REFERENCE = readFileSync("docs/reference/api/redis.md", "utf8");

function splitWords(line: RegExp): readonly string[] {
  return String(line.exec(REFERENCE)?.[1]).trim().split(/\s+/);
}

/** On any topology. */
export const LEAST_PERMISSIONS: readonly string[] = splitWords(/^```\n(\+evalsha[^`]*)```/m);
/** Beside them, in a Cluster. */
export const CLUSTER_PERMISSIONS: readonly string[] = splitWords(/^```\n(\+spublish[^`]*)```/m);

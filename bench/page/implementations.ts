/** What an implementation is, and how the page calls it. */

import type { Versions } from "../harness/versions.ts";
import { NPM_PACKAGES } from "../harness/versions.ts";

/** A baseline does less than a lock: it shows what the way alone costs. */
export type ImplementationKind = "holdfast" | "rival" | "baseline";

/** Rivals that are no package: locks of a database called by hand, Java. */
const RIVALS_BY_HAND = ["pg_advisory_lock by hand", "GET_LOCK by hand", "SET NX PX by hand", "RMI"];
/** One store each: a chart is of one, so that the name says it for nothing. */
const STORE = /, (?:Redis|ZooKeeper|etcd|memory|PostgreSQL|MariaDB|SQLite)\b/;

export function kindOf(implementation: string): ImplementationKind {
  if (implementation.startsWith("holdfast")) return "holdfast";
  const isRival = RIVALS_BY_HAND.some((name) => implementation.startsWith(name)) || packageOf(implementation) !== null;
  return isRival ? "rival" : "baseline";
}

/** "holdfast, Redis, strict order" is "Holdfast, strict order"; a rival has its version. */
export function labelOf(implementation: string, versions: Versions): string {
  if (implementation.startsWith("holdfast"))
    return implementation
      .replace(STORE, "")
      .replace("advisory locks of PostgreSQL", "advisory locks")
      .replace(/^h/, "H");
  const name = packageOf(implementation);
  if (name === null) return implementation.replace(STORE, "");
  const rest = implementation.slice(name.length).replace(STORE, "");
  const version = versions[name];
  return version === undefined ? name + rest : `${name.replace(/ (?:4|5 beta)$/, "")} ${version}${rest}`;
}

/** The package, or Curator, with whose name this one begins. */
function packageOf(implementation: string): string | null {
  const names = [...Object.keys(NPM_PACKAGES), "Curator"];
  return names.find((name) => implementation === name || implementation.startsWith(`${name},`)) ?? null;
}

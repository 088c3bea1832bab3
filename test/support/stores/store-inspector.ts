// Invariants of a store's own state. One inspector per driver (redis-inspector.ts and the like) reads the raw store, not the
// driver's answers, into a StoreView; findViolations() judges it: a test expects an empty list.

/** One claim's place on one key, as the store has it. */
export interface StoredEntry {
  /** Names the claim: the same for all places of one claim. */
  readonly claim: string;
  readonly key: string;
  readonly permits: number;
  readonly limit: number;
  /** held: admitted on this key, also while the claim still waits for its other keys. */
  readonly state: "held" | "waiting";
}

export interface StoreView {
  readonly entries: readonly StoredEntry[];
  /** Keys, nodes or records without an end, except for those that are meant to have none. */
  readonly withoutExpiry: readonly string[];
  /** Keys, nodes or records that belong to no claim, except for those that are meant to. */
  readonly orphans: readonly string[];
}

/** Everything that is wrong with a store, in words; empty if nothing is. */
export function findViolations({ entries, withoutExpiry, orphans }: StoreView): string[] {
  const violations = [
    ...withoutExpiry.map((name) => `${name} has no end`),
    ...orphans.map((name) => `${name} belongs to no claim`),
  ];
  for (const [key, all] of groupByKey(entries)) {
    const held = all.filter(({ state }) => state === "held");
    const holders = new Set(held.map(({ claim }) => claim));
    const queued = all.filter(({ state }) => state === "waiting");
    for (const { claim } of queued) {
      if (holders.has(claim)) violations.push(`${claim} holds "${key}" and stands in its queue`);
    }
    for (const [name, group] of [
      ["holds", held],
      ["waits for", queued],
    ] as const) {
      const seen = new Set<string>();
      for (const { claim } of group) {
        if (seen.has(claim)) violations.push(`${claim} ${name} "${key}" twice`);
        seen.add(claim);
      }
    }
    // Limits may differ, and each claim obeys its own when it is admitted. Whatever the order was, admitting in order of
    // rising limits is the one that allows the most: what does not fit even then was never allowed.
    let used = 0;
    for (const { permits, limit } of held.toSorted((a, b) => a.limit - b.limit)) {
      used += permits;
      if (used <= limit) continue;
      const holderList = held.map((entry) => `${entry.claim} (${entry.permits} of ${entry.limit})`).join(", ");
      violations.push(`"${key}" is held beyond its limit: ${holderList}`);
      break;
    }
  }
  return violations;
}

function groupByKey(entries: readonly StoredEntry[]): Map<string, StoredEntry[]> {
  const groups = new Map<string, StoredEntry[]>();
  for (const entry of entries) groups.set(entry.key, [...(groups.get(entry.key) ?? []), entry]);
  return groups;
}

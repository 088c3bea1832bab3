// Invariants of a store's own state. One inspector per driver (inspect-redis.ts and the like) reads the raw store, not the
// driver's answers, into a StoreView; violationsOf() judges it: a test expects an empty list.

/** One claim's place on one key, as the store has it. */
export interface StoredPlace {
  /** Names the claim: the same for all places of one claim. */
  readonly claim: string;
  readonly key: string;
  readonly permits: number;
  readonly limit: number;
  /** held: admitted on this key, also while the claim still waits for its other keys. */
  readonly state: "held" | "waiting";
}

export interface StoreView {
  readonly places: readonly StoredPlace[];
  /** Keys, nodes or records without an end, except for those that are meant to have none. */
  readonly endless: readonly string[];
  /** Keys, nodes or records that belong to no claim, except for those that are meant to. */
  readonly orphans: readonly string[];
}

/** Everything that is wrong with a store, in words; empty if nothing is. */
export function violationsOf({ places, endless, orphans }: StoreView): string[] {
  const found = [
    ...endless.map((name) => `${name} has no end`),
    ...orphans.map((name) => `${name} belongs to no claim`),
  ];
  for (const [key, all] of grouped(places)) {
    const held = all.filter(({ state }) => state === "held");
    const holders = new Set(held.map(({ claim }) => claim));
    const queued = all.filter(({ state }) => state === "waiting");
    for (const { claim } of queued) {
      if (holders.has(claim)) found.push(`${claim} holds "${key}" and stands in its queue`);
    }
    for (const [name, group] of [
      ["holds", held],
      ["waits for", queued],
    ] as const) {
      const seen = new Set<string>();
      for (const { claim } of group) {
        if (seen.has(claim)) found.push(`${claim} ${name} "${key}" twice`);
        seen.add(claim);
      }
    }
    // Limits may differ, and each claim obeys its own when it is admitted. Whatever the order was, admitting in order of
    // rising limits is the one that allows the most: what does not fit even then was never allowed.
    let used = 0;
    for (const { permits, limit } of held.toSorted((a, b) => a.limit - b.limit)) {
      used += permits;
      if (used <= limit) continue;
      const who = held.map((place) => `${place.claim} (${place.permits} of ${place.limit})`).join(", ");
      found.push(`"${key}" is held beyond its limit: ${who}`);
      break;
    }
  }
  return found;
}

function grouped(places: readonly StoredPlace[]): Map<string, StoredPlace[]> {
  const groups = new Map<string, StoredPlace[]>();
  for (const place of places) groups.set(place.key, [...(groups.get(place.key) ?? []), place]);
  return groups;
}

/** What the figures of docs/evidence.md are compared with: goals that were set before the runs. */

/** The document stores, which grant a few times a second. */
const DOCUMENT_STORES: readonly string[] = ["nats", "dynamodb", "s3"];

/** How many grants must have been seen before "no stale write" says much. */
export function grantGoalOf(store: string): number {
  return DOCUMENT_STORES.includes(store) ? 5_000 : 100_000;
}

/** The settings of src/torture/stores/zookeeper.ts. */
const SESSIONS_MS: Readonly<Record<string, number>> = { zookeeper: 2_000, "zookeeper-3": 4_000 };
const TICK_MS = 500;
/** The default of the document driver. */
const POLL_MS = 1_000;

interface CrashGoal {
  readonly words: string;
  readonly ms: number;
}

/** The longest time from the death of a holder to the next grant, for 99 of 100. */
export function crashGoalOf(store: string, leaseMs: number): CrashGoal {
  if (store === "server") return { words: "100 ms", ms: 100 };
  const sessionMs = SESSIONS_MS[store];
  if (sessionMs !== undefined) return { words: "session + tick", ms: sessionMs + TICK_MS };
  if (store.startsWith("etcd")) return { words: "lease + 1.5 s", ms: leaseMs + 1_500 };
  if (DOCUMENT_STORES.includes(store)) return { words: "two leases + poll", ms: 2 * leaseMs + POLL_MS };
  return { words: "lease + 250 ms", ms: leaseMs + 250 };
}

/** A holder counts its lease as over after nine tenths of it: the store's lasts so much longer. */
export function noticeGoalOf(leaseMs: number): number {
  return leaseMs / 10;
}

/** What is compared: one workload on one store each. */

export interface Subject {
  readonly name: string;
  readonly title: string;
  readonly store: "server" | "memory" | "redis" | "postgres" | "mariadb" | "sqlite" | "zookeeper";
  /**
   * Clients of the process, each with connections of its own: with several, a contended lock passes through the store.
   */
  readonly clients: number;
  readonly callers: number;
  /** Callers go round these in turn. */
  readonly keys: number;
  /** Of one window. */
  readonly ms: number;
  /** Pairs of each caller while frames or commands are counted; 0: not counted. */
  readonly countedTimes: number;
  /**
   * Pairs of each caller before anything is measured; 0: each round has processes of its own, which are not even
   * connected.
   */
  readonly warmTimes: number;
  /** Before each window. */
  readonly idleMs: number;
  /**
   * Of build.child.ts: pairs of acquire and release, or two clients that pass a lock to each other, where only the
   * passing is timed.
   */
  readonly call: "perform" | "handOffs";
  /**
   * False where batches form by time, local hand-off may end by time (10 ms) or two clients race, so that one build
   * does not always send the same: see countFaults().
   */
  readonly exact: boolean;
  /** Commands that also a sweep by chance calls, and that are not exact for that. */
  readonly sampled: readonly string[];
}

const MS = 400;
const MEMORY_MS = 300;
const ONE_CLIENT = { clients: 1, keys: 1, ms: MS, idleMs: 0, call: "perform", sampled: [] } as const;
const FREE = { ...ONE_CLIENT, callers: 1, warmTimes: 3_000, exact: true };
const HOT = { ...ONE_CLIENT, callers: 64, warmTimes: 4_000, exact: false };
/** What long code costs is hidden by loops that are warm: the cases `cold-...` have the same against other locks. */
const COLD = { ...FREE, store: "redis", ms: 600, countedTimes: 0 } as const;
/**
 * Each pair waits for the disk: fewer of them warm the code, and more time gives as many. What is sent is not counted.
 */
const SYNCED = { ms: 1_000, countedTimes: 0 } as const;
const SYNCED_FREE = { ...FREE, ...SYNCED, warmTimes: 500 };
const SYNCED_HOT = { ...HOT, ...SYNCED, warmTimes: 200 };

export const SUBJECTS: readonly Subject[] = [
  { ...FREE, name: "server-free", title: "Server, a free lock, one caller", store: "server", countedTimes: 200 },
  { ...HOT, name: "server-hot", title: "Server, 64 callers on one key", store: "server", countedTimes: 100 },
  {
    ...FREE,
    name: "server-wide",
    title: "Server, 64 callers on 10,000 keys",
    store: "server",
    callers: 64,
    keys: 10_000,
    countedTimes: 50,
    warmTimes: 500,
    exact: false,
  },
  {
    ...FREE,
    name: "memory-free",
    title: "In process, a free lock, one caller",
    store: "memory",
    countedTimes: 0,
    warmTimes: 50_000,
    ms: MEMORY_MS,
  },
  {
    ...HOT,
    name: "memory-hot",
    title: "In process, 64 callers on one key",
    store: "memory",
    countedTimes: 0,
    ms: MEMORY_MS,
  },
  {
    ...FREE,
    name: "redis-free",
    title: "Redis, a free lock, one caller",
    store: "redis",
    countedTimes: 200,
    sampled: ["exists", "hrandfield"],
  },
  {
    ...HOT,
    name: "redis-contended",
    title: "Redis, two clients with 8 callers each on one key",
    store: "redis",
    clients: 2,
    callers: 16,
    warmTimes: 500,
    countedTimes: 50,
  },
  { ...COLD, name: "redis-idle", title: "Redis, a free lock now and then, one caller", idleMs: 2_000 },
  { ...COLD, name: "redis-first-use", title: "Redis, a free lock in a new process, one caller", warmTimes: 0 },
  {
    ...COLD,
    name: "redis-hand-off",
    title: "Redis, hand-off between two clients that are mostly idle",
    clients: 2,
    callers: 2,
    warmTimes: 10,
    call: "handOffs",
  },
  { ...SYNCED_FREE, name: "postgres-free", title: "PostgreSQL, a free lock, one caller", store: "postgres" },
  { ...SYNCED_HOT, name: "postgres-hot", title: "PostgreSQL, 64 callers on one key", store: "postgres" },
  { ...SYNCED_FREE, name: "mariadb-free", title: "MariaDB, a free lock, one caller", store: "mariadb" },
  { ...SYNCED_HOT, name: "mariadb-hot", title: "MariaDB, 64 callers on one key", store: "mariadb" },
  { ...SYNCED_FREE, name: "sqlite-free", title: "SQLite, a free lock, one caller", store: "sqlite" },
  { ...SYNCED_FREE, name: "zookeeper-free", title: "ZooKeeper, a free lock, one caller", store: "zookeeper" },
  { ...SYNCED_HOT, name: "zookeeper-hot", title: "ZooKeeper, 64 callers on one key", store: "zookeeper" },
];

/** What is compared: one workload on one store each. */

export interface Subject {
  readonly name: string;
  readonly title: string;
  readonly store: "server" | "memory" | "redis";
  /** Clients of the process, each with connections of its own: with several, a contended lock passes through the store. */
  readonly clients: number;
  readonly callers: number;
  /** Callers go round these in turn. */
  readonly keys: number;
  /** Of one window. */
  readonly ms: number;
  /** Pairs of each caller while frames or commands are counted; 0: nothing leaves the process. */
  readonly countedTimes: number;
  /** Pairs of each caller before anything is measured. */
  readonly warmTimes: number;
  /**
   * False where batches form by time, local hand-off may end by time (10 ms) or two clients race, so that one build does
   * not always send the same: see countFaults().
   */
  readonly exact: boolean;
  /** Commands that also a sweep by chance calls, and that are not exact for that. */
  readonly sampled: readonly string[];
}

const MS = 400;
const MEMORY_MS = 300;
const FREE = { clients: 1, callers: 1, keys: 1, ms: MS, warmTimes: 3_000, exact: true, sampled: [] };
const HOT = { clients: 1, callers: 64, keys: 1, ms: MS, warmTimes: 4_000, exact: false, sampled: [] };

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
    sampled: ["exists", "zrandmember"],
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
];

/** What callers do to a lock for a while, and what came of it. */

/** A lock as the bench uses it. `release` gives undefined where it is done at once. */
export interface LockImplementation<Held = unknown> {
  acquire(key: string): Promise<Held>;
  release(held: Held): Promise<unknown> | undefined;
  /** A whole pair by one call with nothing in between, where that is what is measured. */
  pair?(key: string): Promise<unknown>;
  /** The fencing token, where there is one. */
  tokenOf?(held: Held): bigint;
  close(): Promise<void>;
}

/** Keeps a key until the process ends, prolonging it as the implementation does by itself. Settles when it is held. */
export type HoldKey = (key: string) => Promise<unknown>;

export interface Workload {
  readonly callers: number;
  /** Callers go round these in turn, so that with more keys than callers none meets another. */
  readonly keys: number;
  /** At least; until every caller can have had its share. */
  readonly ms: number;
  /** Take the time of every pair; off where a pair takes little more than reading the clock. */
  readonly latencies: boolean;
  /** Stands before the names of the keys, for processes with keys of their own. */
  readonly prefix?: string;
}

export interface Outcome {
  /** Pairs of acquire and release. */
  readonly pairs: number;
  readonly ms: number;
  /** Of this process, microseconds. */
  readonly cpu: number;
  readonly grantsPerCaller: readonly number[];
  /** Microseconds a pair took. */
  readonly latencies: readonly number[];
}

/** Pairs between two looks at the clock. */
const CLOCK_INTERVAL = 64;
/** However slow the machine is: with fewer, one grant more or less for a caller would look like unfairness. */
const MIN_PAIRS_PER_CALLER = 50;

export async function runWorkload(
  implementation: LockImplementation,
  { callers, keys, ms, latencies, prefix = "" }: Workload,
): Promise<Outcome> {
  const names = Array.from({ length: keys }, (_, index) => `bench:${prefix}${index}`);
  const grants = new Array<number>(callers).fill(0);
  const times: number[] = [];
  const minPairs = callers * MIN_PAIRS_PER_CALLER;
  let pairs = 0;
  let isOver = false;
  const cpuBefore = process.cpuUsage();
  const start = performance.now();

  async function caller(index: number): Promise<void> {
    for (let turn = index; !isOver; turn += callers) {
      const name = names[turn % keys] as string;
      const before = latencies ? performance.now() : 0;
      if (implementation.pair === undefined) {
        const held = await implementation.acquire(name);
        const release = implementation.release(held);
        if (release !== undefined) await release;
      } else await implementation.pair(name);
      grants[index] = (grants[index] as number) + 1;
      const now = latencies ? performance.now() : 0;
      if (latencies) times.push((now - before) * 1_000);
      if (++pairs % CLOCK_INTERVAL === 0 && pairs >= minPairs && performance.now() - start >= ms) isOver = true;
    }
  }

  await Promise.all(Array.from({ length: callers }, (_, index) => caller(index)));
  const elapsed = performance.now() - start;
  const { user, system } = process.cpuUsage(cpuBefore);
  return { pairs, ms: elapsed, cpu: user + system, grantsPerCaller: grants, latencies: times };
}

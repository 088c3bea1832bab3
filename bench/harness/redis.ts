/** A Redis of the bench's own, and what it has done. */

import { Redis } from "ioredis";
import { startRedis } from "../../test/support/stores/redis.ts";

export interface BenchRedis {
  /** For contestants, see harness/address.ts. */
  readonly address: string;
  work(): Promise<RedisWork>;
}

/** Since the server's start. */
export interface RedisWork {
  /** How often each command was performed, in scripts or outside of them. */
  readonly calls: ReadonlyMap<string, number>;
  /** Microseconds of CPU. */
  readonly cpu: number;
}

/** Starts a server on a free port, nothing of it on the disk, gives it to `use`, and ends it. */
export async function withBenchRedis<T>(use: (server: BenchRedis) => Promise<T>): Promise<T> {
  const server = await startRedis();
  const observer = new Redis(server.port, "127.0.0.1");
  try {
    return await use({ address: `tcp:${server.port}`, work: () => readWork(observer) });
  } finally {
    observer.disconnect();
    await server.stop();
  }
}

/** One server each for so many, all at once: what each of them did can be told. */
export async function withBenchRedises<T>(
  count: number,
  use: (servers: readonly BenchRedis[]) => Promise<T>,
): Promise<T> {
  if (count === 0) return use([]);
  return withBenchRedis((server) =>
    withBenchRedises(count - 1, (otherBenchRedises) => use([server, ...otherBenchRedises])),
  );
}

/** How many commands of these names came between the two. */
export function callsBetween(before: RedisWork, after: RedisWork, names: readonly string[]): number {
  const sum = ({ calls }: RedisWork): number => names.reduce((total, name) => total + (calls.get(name) ?? 0), 0);
  return sum(after) - sum(before);
}

async function readWork(observer: Redis): Promise<RedisWork> {
  const info = (await observer.info("commandstats", "cpu")) as string;
  const calls = new Map<string, number>();
  for (const [, name = "", count] of info.matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm)) calls.set(name, Number(count));
  const seconds = (kind: string): number => Number(new RegExp(`^used_cpu_${kind}:([\\d.]+)`, "m").exec(info)?.[1]);
  return { calls, cpu: (seconds("user") + seconds("sys")) * 1_000_000 };
}

/** A Redis of the bench's own, and what it has done. */

import { Redis } from "ioredis";
import { startRedis } from "../../test/support/stores/redis.ts";
import type { BenchStore, StoreWork } from "./bench-store.ts";

/** Starts a server on a free port, nothing of it on the disk, gives it to `use`, and ends it. */
export async function withBenchRedis<T>(use: (server: BenchStore) => Promise<T>): Promise<T> {
  const server = await startRedis();
  const observer = new Redis(server.port, "127.0.0.1");
  try {
    return await use({ address: `tcp:${server.port}`, work: () => readWork(observer) });
  } finally {
    observer.disconnect();
    await server.stop();
  }
}

/** One server each for so many, all at once: what each of them did is counted apart. */
export async function withBenchRedises<T>(
  count: number,
  use: (servers: readonly BenchStore[]) => Promise<T>,
): Promise<T> {
  if (count === 0) return use([]);
  return withBenchRedis((server) =>
    withBenchRedises(count - 1, (otherBenchRedises) => use([server, ...otherBenchRedises])),
  );
}

async function readWork(observer: Redis): Promise<StoreWork> {
  const info = (await observer.info("commandstats", "cpu")) as string;
  const calls = new Map<string, number>();
  for (const [, name = "", count] of info.matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm)) calls.set(name, Number(count));
  const seconds = (kind: string): number => Number(new RegExp(`^used_cpu_${kind}:([\\d.]+)`, "m").exec(info)?.[1]);
  return { calls, cpu: (seconds("user") + seconds("sys")) * 1_000_000 };
}

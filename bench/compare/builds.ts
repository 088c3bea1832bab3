/** The two builds, and the processes of one of them: a store of its own, and a client. */

import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { until } from "../../src/testing/until.ts";
import { parsePort } from "../harness/address.ts";
import type { BenchStore } from "../harness/bench-store.ts";
import { ChildProcessRpc } from "../harness/child-rpc.ts";
import { withBenchMariaDb, withBenchPostgres, withBenchSqlite } from "../harness/database.ts";
import { readCommit } from "../harness/machine.ts";
import { withBenchRedis } from "../harness/redis.ts";
import { withBenchZooKeeper } from "../harness/zookeeper.ts";
import type { Subject } from "./subjects.ts";

export interface Build {
  readonly name: "old" | "new";
  /** Its folder `dist`. */
  readonly dist: string;
  readonly commit: string;
  readonly changed: boolean;
  /** Built before the commit was made: it may be another one's. */
  readonly isOlder: boolean;
}

/** The store that a build is measured on. */
export interface Store {
  /** As connect() takes it. */
  readonly url: string;
  /** The socket of a lock server; null if the store is another one. */
  readonly socket: string | null;
  /** What counts the commands; null if the store is a lock server, or in the client's process. */
  readonly counting: BenchStore | null;
  /** Microseconds of CPU that the store's process has used; 0 if the store is in the client's process. */
  cpu(): Promise<number>;
}

const CLI = "cli/main.js";
const ENTRY = "index.js";
const START_MS = 30_000;
const clientProgram = new URL("./build.child.js", import.meta.url);
const answering = new URL("./answering.child.js", import.meta.url);

/** @param folder a checkout with a `dist`. @throws Error if there is no build in it */
export function buildIn(name: Build["name"], folder: string): Build {
  const dist = resolve(folder, "dist");
  for (const file of [ENTRY, CLI]) {
    if (!existsSync(join(dist, file))) throw new Error(`${dist} is not a build: it has no ${file}`);
  }
  const { stdout } = spawnSync("git", ["-C", folder, "log", "-1", "--format=%ct"], { encoding: "utf8" });
  const isOlder = statSync(join(dist, ENTRY)).mtimeMs < Number(stdout) * 1_000;
  return { name, dist, ...readCommit(folder), isOlder };
}

const BENCH_STORES: Readonly<
  Record<Exclude<Subject["store"], "server" | "memory">, <T>(use: (store: BenchStore) => Promise<T>) => Promise<T>>
> = {
  redis: withBenchRedis,
  postgres: withBenchPostgres,
  mariadb: withBenchMariaDb,
  sqlite: withBenchSqlite,
  zookeeper: withBenchZooKeeper,
};

export function withStore<T>(build: Build, { store }: Subject, use: (store: Store) => Promise<T>): Promise<T> {
  if (store === "memory") return use({ url: "memory:", socket: null, counting: null, cpu: async () => 0 });
  if (store === "server") return withServer(build, use);
  return BENCH_STORES[store]((benchStore) =>
    use({
      url: toUrl(store, benchStore.address),
      socket: null,
      counting: benchStore,
      cpu: async () => {
        const { cpu } = await benchStore.work();
        return Number.isNaN(cpu) ? 0 : cpu;
      },
    }),
  );
}

function toUrl(store: Subject["store"], address: string): string {
  if (store === "redis") return `redis://127.0.0.1:${parsePort(address)}`;
  return store === "zookeeper" ? `zookeeper://${address}` : address;
}

/** The lock server as users start it: from the build's own command line, with state on the disk. */
async function withServer<T>({ dist }: Build, use: (store: Store) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-compare-"));
  const socket = join(folder, "s");
  const args = ["serve", "--quiet", "--listen", `holdfast+unix:${socket}`, "--state", join(folder, "state")];
  const server = new ChildProcessRpc(pathToFileURL(join(dist, CLI)), args, ["--import", answering.href]);
  try {
    await until(() => existsSync(socket), { within: START_MS, what: `holdfast serve of ${dist}` });
    return await use({ url: urlOf(socket), socket, counting: null, cpu: () => server.cpuMicros() });
  } finally {
    await server.end();
    rmSync(folder, { recursive: true, force: true });
  }
}

export function urlOf(socket: string): string {
  return `holdfast+unix:${encodeURI(socket)}`;
}

/** A connected client process of a build. */
export async function withClient<T>(
  { dist }: Build,
  { clients }: Subject,
  url: string,
  use: (client: ChildProcessRpc) => Promise<T>,
): Promise<T> {
  // a Redis that keeps nothing is warned of, and is what is wanted here
  const client = new ChildProcessRpc(clientProgram, [dist, url, String(clients)], ["--no-warnings"]);
  try {
    await client.call("ready");
    return await use(client);
  } finally {
    await client.end();
  }
}

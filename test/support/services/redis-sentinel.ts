/** A real master with a replica that three Sentinels watch, on free ports, ended by their pids. */

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { until } from "../wait-for.ts";
import { ended, freePort, install, isUp, PROGRAM, run } from "./redis.ts";

const SENTINELS = 3;

export interface RedisSentinels {
  /** What the Sentinels call their master. */
  readonly name: string;
  readonly sentinels: readonly { readonly host: string; readonly port: number }[];
  /** The servers: the first is the master to begin with. */
  readonly ports: readonly [number, number];
  readonly admin: readonly [Redis, Redis];
  /** Ends a server as `kill -9` does. */
  kill(server: number): Promise<void>;
  stop(): Promise<void>;
}

export async function startRedisSentinels(downAfterMs: number): Promise<RedisSentinels> {
  install();
  const folder = mkdtempSync(join(tmpdir(), "holdfast-sentinel-"));
  const [master, replica] = [await freePort(), await freePort()];
  const place = (name: string): string => {
    mkdirSync(join(folder, name));
    return join(folder, name);
  };
  const servers = [
    await run(place("0"), master, ["--repl-diskless-sync-delay", "0"]),
    await run(place("1"), replica, ["--replicaof", "127.0.0.1", String(master)]),
  ];
  const admin = [connection(master), connection(replica)] as const;
  await until(async () => /master_link_status:up/.test(await admin[1].info("replication")), {
    within: 10_000,
    what: "the replica",
  });
  const sentinels = await Promise.all(
    Array.from({ length: SENTINELS }, (_, at) => sentinel(place(`s${at}`), master, downAfterMs)),
  );
  const knows = sentinels.map(({ link }) => async (): Promise<boolean> => {
    const said = String(await link.call("SENTINEL", "MASTER", "mymaster"));
    return /num-slaves,1,/.test(said) && /num-other-sentinels,2,/.test(said);
  });
  for (const known of knows) await until(known, { within: 15_000, what: "the Sentinels" });
  return {
    name: "mymaster",
    sentinels: sentinels.map(({ port }) => ({ host: "127.0.0.1", port })),
    ports: [master, replica],
    admin,
    kill: (server) => ended(servers[server] as ChildProcess),
    async stop() {
      for (const one of [...admin, ...sentinels.map(({ link }) => link)]) one.disconnect();
      for (const child of [...sentinels.map((one) => one.child), ...servers]) await ended(child);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function connection(port: number): Redis {
  const made = new Redis(port, "127.0.0.1", { retryStrategy: () => 100 });
  made.on("error", () => undefined);
  return made;
}

async function sentinel(
  folder: string,
  master: number,
  downAfterMs: number,
): Promise<{ readonly port: number; readonly child: ChildProcess; readonly link: Redis }> {
  const port = await freePort();
  const file = join(folder, "sentinel.conf");
  const lines = [
    `port ${port}`,
    "bind 127.0.0.1",
    `dir ${folder}`,
    `sentinel monitor mymaster 127.0.0.1 ${master} 2`,
    `sentinel down-after-milliseconds mymaster ${downAfterMs}`,
    "sentinel failover-timeout mymaster 3000",
  ];
  writeFileSync(file, lines.join("\n"));
  const child = spawn(PROGRAM, [file, "--sentinel"], { stdio: "ignore" });
  await until(() => isUp(port), { within: 10_000, what: "a Sentinel" });
  const link = connection(port);
  const periods = ["info-period", "200", "publish-period", "200", "ping-period", "100", "ask-period", "100"];
  await link.call("SENTINEL", "DEBUG", ...periods);
  return { port, child, link };
}

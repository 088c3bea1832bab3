/** An etcd server of its own. */

import { join } from "node:path";
import { startOnFreePort } from "../processes/database-process.ts";
import { freePort } from "../processes/free-port.ts";
import { versionOf } from "./programs.ts";
import type { StartedStore } from "./started-store.ts";
import { injectInto } from "./store-process.ts";

export async function startEtcd(directory: string): Promise<StartedStore> {
  const version = versionOf("etcd", ["--version"]);
  const peerUrl = `http://127.0.0.1:${await freePort()}`;
  const { port, process: server } = await startOnFreePort((port) => ({
    name: "etcd",
    command: [
      ...(["etcd", "--name", "torture", "--data-dir", join(directory, "etcd")] as const),
      ...["--listen-client-urls", `http://127.0.0.1:${port}`, "--advertise-client-urls", `http://127.0.0.1:${port}`],
      ...["--listen-peer-urls", peerUrl, "--initial-advertise-peer-urls", peerUrl],
      ...["--initial-cluster", `torture=${peerUrl}`, "--heartbeat-interval", "20", "--election-timeout", "200"],
    ],
    log: join(directory, "log"),
    environment: {},
    stopSignal: "SIGTERM",
    faults: /panic:/g,
    isReady: () => hasLeader(port),
  }));
  return {
    name: `etcd ${version}`,
    url: `etcd://127.0.0.1:${port}`,
    inject: injectInto(server),
    close: () => server.crash(),
  };
}

async function hasLeader(port: number): Promise<boolean> {
  try {
    const response = await fetch(`http://127.0.0.1:${port}/metrics`, { signal: AbortSignal.timeout(1_000) });
    return (await response.text()).includes("\netcd_server_has_leader 1\n");
  } catch {
    return false;
  }
}

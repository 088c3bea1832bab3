/** Three members of etcd. A grant goes through their log: so no fault may let two commands in at once. */

import { setTimeout as delay } from "node:timers/promises";
import type { Random } from "../../../src/testing/random.ts";
import { until } from "../../../src/testing/until.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import type { RunningProcess } from "../../support/processes/process-harness.ts";
import type { EtcdServer } from "../../support/stores/etcd.ts";
import { emptyEtcd, fillEtcd, startEtcdCluster } from "../../support/stores/etcd.ts";
import type { FaultName, Target, Victims } from "./faults.ts";
import { FAULTS, shuffle } from "./faults.ts";

const QUOTA_BYTES = 16_000_000;

/** Watches and calls have connections of the same kind. */
export const FAULTS_ON_ETCD: readonly FaultName[] = FAULTS.filter((fault) => fault !== "cut subscribers");

export async function etcdTarget(random: Random): Promise<Target> {
  const cluster = await startEtcdCluster({ quotaBytes: QUOTA_BYTES });
  // clients reach each member through its proxy
  const proxies = await Promise.all(cluster.addresses.map((address) => tcpProxy(address)));
  const stopped = new Set<{ proceed(): void }>();
  const killed = new Set<EtcdServer>();
  let isFull = false;
  let victims: Victims | null = null;

  /** The one that leads; else, between two leaders or without a majority, any that runs. */
  async function pickServer(): Promise<EtcdServer> {
    const running = cluster.servers.filter((server) => !killed.has(server));
    const metrics = await Promise.all(running.map((server) => server.readMetrics()));
    const leading = running.filter((_, index) => metrics[index]?.includes("\netcd_server_is_leader 1\n"));
    return (leading[0] ?? running[random.int(running.length)]) as EtcdServer;
  }

  const wrapper = (): RunningProcess | null => victims?.pickVictim() ?? null;

  async function killServer(): Promise<boolean> {
    const server = await pickServer();
    killed.add(server);
    await server.stop("SIGKILL");
    return true;
  }

  async function restart(): Promise<boolean> {
    const server = await pickServer();
    // one that is stopped does not end by SIGTERM
    const isEnded = server.stop().then(() => true);
    if (!(await Promise.race([isEnded, delay(1_000, false)]))) await server.stop("SIGKILL");
    killed.add(server);
    return true;
  }

  async function stopAndContinue(): Promise<boolean> {
    if (random.chance(0.5)) {
      const run = wrapper();
      if (run === null) return false;
      run.process.kill("SIGSTOP");
      stopped.add({ proceed: () => void run.process.kill("SIGCONT") });
      return true;
    }
    const server = await pickServer();
    server.signal("SIGSTOP");
    stopped.add({ proceed: () => server.signal("SIGCONT") });
    return true;
  }

  const faults: Partial<Record<FaultName, () => boolean | Promise<boolean>>> = {
    "kill wrapper": () => {
      const run = wrapper();
      run?.kill();
      return run !== null;
    },
    "kill server": killServer,
    restart,
    "stop and continue": stopAndContinue,
    cut: () => {
      for (const proxy of proxies) proxy.reset();
      return true;
    },
    "fail over": async () => {
      const leader = await pickServer();
      const other = cluster.servers.find((server) => server !== leader && !killed.has(server)) as EtcdServer;
      // the other fault may have taken either of them, and then a new leader comes by itself
      await Promise.race([cluster.moveLeader(other).catch(() => undefined), delay(1_000)]);
      return true;
    },
    "full disk": async () => {
      isFull = true;
      await fillEtcd(await pickServer());
      return true;
    },
  };

  async function isWhole(): Promise<boolean> {
    const { status } = await (await cluster.leader()).call("/v3/kv/put", { key: "cHJvYmU=" });
    return status === 200;
  }

  return {
    name: "etcd",
    clients: {
      url: `etcd://${proxies
        .map(({ address }) => (address as EtcdServer["address"]).port)
        .map((port) => `127.0.0.1:${port}`)
        .join(",")}`,
      leaseFlags: ["--ttl", "2s", "--grace", "900ms"],
    },
    strike: (workload) => {
      victims = workload;
    },
    inject: async (fault) => (await faults[fault]?.()) ?? false,
    async heal() {
      const repairs: (() => Promise<void>)[] = [
        async () => {
          for (const process of stopped) process.proceed();
          stopped.clear();
        },
        async () => {
          // each waits for a leader, which may need the others
          await Promise.all([...killed].map((server) => server.start()));
          killed.clear();
        },
      ];
      // one repair may need the other
      await Promise.all(
        shuffle(repairs, random).map(async (repair, index) => {
          await delay(index * random.int(100));
          await repair();
        }),
      );
      const leader = await cluster.leader();
      if (isFull) await emptyEtcd(leader, ...cluster.servers.filter((server) => server !== leader));
      isFull = false;
      await until(isWhole, { within: 40_000, what: "a cluster that takes writes after the repair" });
    },
    async close() {
      await Promise.all(proxies.map((proxy) => proxy.close()));
      await cluster[Symbol.asyncDispose]();
    },
  };
}

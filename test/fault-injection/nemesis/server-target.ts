/** The Holdfast server, on a Unix socket or on TCP behind a proxy, its state on a small disk. */

import { setTimeout as delay } from "node:timers/promises";
import type { Random } from "../../../src/testing/random.ts";
import { until } from "../../../src/testing/until.ts";
import { freePort } from "../../../src/torture/processes/free-port.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { PROGRAM } from "../../support/cli-sandbox.ts";
import type { ProcessHarness, RunningProcess } from "../../support/processes/process-harness.ts";
import { mountSmallDisk } from "../../support/processes/small-disk.ts";
import type { FaultName, Target, Victims } from "./faults.ts";
import { shuffle } from "./faults.ts";

export const FAULTS_ON_SOCKET: readonly FaultName[] = [
  "kill wrapper",
  "kill server",
  "restart",
  "stop and continue",
  "full disk",
];
export const FAULTS_ON_TCP: readonly FaultName[] = [...FAULTS_ON_SOCKET, "cut"];

export async function serverTarget(
  harness: ProcessHarness,
  random: Random,
  transport: "socket" | "TCP",
): Promise<Target> {
  const disk = await mountSmallDisk(harness, "disk", 4);
  const port = await freePort();
  const proxy = await tcpProxy({ host: "127.0.0.1", port });
  const listen = transport === "TCP" ? `holdfast://127.0.0.1:${port}` : `holdfast+unix:${harness.path("socket")}`;
  const stopped = new Set<RunningProcess>();
  let server: RunningProcess | null = null;
  let victims: Victims | null = null;
  /** Servers that were asked to end and are still running. */
  const ending = new Set<RunningProcess>();

  /** Starts the server unless it runs. False: it ended at once, as on a full disk. */
  async function start(): Promise<boolean> {
    if (server !== null && !server.hasEnded()) return true;
    const command = [process.execPath, PROGRAM, "serve", "--listen", listen, "--state", `${disk.path}/state`];
    const [program = "", ...args] = [...disk.commandPrefix, ...command];
    const started = harness.startProgram([program, ...args]);
    server = started;
    const listens = (): boolean => started.out().includes("listening on");
    await until(() => started.hasEnded() || listens(), { within: 30_000, what: "the server to listen or to end" });
    return !started.hasEnded();
  }

  const wrapper = (): RunningProcess | null => victims?.pickVictim() ?? null;

  function stop(run: RunningProcess | null): boolean {
    if (run === null || run.hasEnded()) return false;
    run.process.kill("SIGSTOP");
    stopped.add(run);
    return true;
  }

  const faults: Partial<Record<FaultName, () => boolean | Promise<boolean>>> = {
    "kill wrapper": () => {
      const run = wrapper();
      run?.kill();
      return run !== null;
    },
    "kill server": async () => {
      server?.process.kill("SIGKILL");
      await server?.ended;
      // otherwise it waits until everything is repaired
      if (random.chance(0.5)) await start();
      return true;
    },
    restart: async () => {
      if (server === null || server.hasEnded()) return start();
      const old = server;
      old.process.kill("SIGTERM");
      // a server that is stopped, or whose disk is full, may take until the repair
      const hasEnded = await Promise.race([old.ended.then(() => true), delay(1_000, false)]);
      if (hasEnded) await start();
      else ending.add(old);
      return true;
    },
    "stop and continue": () => stop(random.chance(0.5) ? wrapper() : server),
    cut: () => {
      if (random.chance(0.5)) {
        proxy.reset();
      } else {
        proxy.toTarget.pause();
        proxy.toClient.pause();
      }
      return true;
    },
    "full disk": () => {
      disk.fill();
      return true;
    },
  };

  const repairs: readonly (() => void)[] = [
    () => {
      for (const run of stopped) run.process.kill("SIGCONT");
      stopped.clear();
    },
    () => {
      proxy.toTarget.resume();
      proxy.toClient.resume();
    },
    () => disk.clear(),
  ];

  if (!(await start())) throw new Error(`the server ended: ${server === null ? "" : (server as RunningProcess).err()}`);
  return {
    name: `our server on ${transport}`,
    clients:
      transport === "TCP"
        ? {
            url: `holdfast://127.0.0.1:${(proxy.address as { port: number }).port}`,
            leaseFlags: ["--ttl", "2s", "--grace", "900ms"],
          }
        : { url: listen, leaseFlags: ["--grace", "2s"], commandPrefix: disk.commandPrefix },
    strike: (workload) => {
      victims = workload;
    },
    inject: async (fault) => (await faults[fault]?.()) ?? false,
    async heal() {
      for (const repair of shuffle(repairs, random)) {
        repair();
        await delay(random.int(100));
      }
      for (const run of ending) await run.ended;
      ending.clear();
      await until(start, { within: 30_000, what: "the server after the repair" });
    },
    close: () => proxy.close(),
  };
}

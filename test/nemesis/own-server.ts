/** Our own server, on a Unix socket or on TCP behind a proxy, its state on a small disk. */

import { setTimeout as delay } from "node:timers/promises";
import type { Random } from "../../src/conformance/random.ts";
import type { Running, Scene } from "../crash/scene.ts";
import { PROGRAM } from "../crash/scene.ts";
import { freePort } from "../support/services/free-port.ts";
import { tcpProxy } from "../support/tcp-proxy.ts";
import { until } from "../support/wait-for.ts";
import type { FaultName, Target } from "./faults.ts";
import { shuffled } from "./faults.ts";
import { smallDisk } from "./small-disk.ts";
import type { Works } from "./works.ts";

export const FAULTS_ON_SOCKET: readonly FaultName[] = [
  "kill wrapper",
  "kill server",
  "restart",
  "stop and continue",
  "full disk",
];
export const FAULTS_ON_TCP: readonly FaultName[] = [...FAULTS_ON_SOCKET, "cut"];

export async function ownServer(here: Scene, random: Random, transport: "socket" | "TCP"): Promise<Target> {
  const disk = await smallDisk(here, "disk", 4);
  const port = await freePort();
  const proxy = await tcpProxy({ host: "127.0.0.1", port });
  const listen = transport === "TCP" ? `tcp://127.0.0.1:${port}` : `unix:${here.path("socket")}`;
  const stopped = new Set<Running>();
  let server: Running | null = null;
  let victims: Works | null = null;
  /** Servers that were asked to end and have not yet. */
  const ending = new Set<Running>();

  /** Starts the server unless it runs. False: it ended at once, as on a full disk. */
  async function start(): Promise<boolean> {
    if (server !== null && !server.hasEnded()) return true;
    const command = [process.execPath, PROGRAM, "serve", "--listen", listen, "--state", `${disk.path}/state`];
    const [program = "", ...args] = [...disk.before, ...command];
    const started = here.program([program, ...args]);
    server = started;
    const listens = (): boolean => started.out().includes("listening on");
    await until(() => started.hasEnded() || listens(), { within: 30_000, what: "the server to listen or to end" });
    return !started.hasEnded();
  }

  const wrapper = (): Running | null => victims?.victim() ?? null;

  function stop(one: Running | null): boolean {
    if (one === null || one.hasEnded()) return false;
    one.process.kill("SIGSTOP");
    stopped.add(one);
    return true;
  }

  const faults: Partial<Record<FaultName, () => boolean | Promise<boolean>>> = {
    "kill wrapper": () => {
      const one = wrapper();
      one?.kill();
      return one !== null;
    },
    "kill server": async () => {
      server?.process.kill("SIGKILL");
      await server?.ended;
      // else it waits until everything is repaired
      if (random.chance(0.5)) await start();
      return true;
    },
    restart: async () => {
      if (server === null || server.hasEnded()) return start();
      const old = server;
      old.process.kill("SIGTERM");
      // one that is stopped, or whose disk is full, may take until the repair
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
        proxy.up.pause();
        proxy.down.pause();
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
      for (const one of stopped) one.process.kill("SIGCONT");
      stopped.clear();
    },
    () => {
      proxy.up.resume();
      proxy.down.resume();
    },
    () => disk.clear(),
  ];

  if (!(await start())) throw new Error(`the server ended: ${server === null ? "" : (server as Running).err()}`);
  return {
    name: `our server on ${transport}`,
    clients:
      transport === "TCP"
        ? {
            url: `holdfast://127.0.0.1:${(proxy.address as { port: number }).port}`,
            lease: ["--ttl", "2s", "--grace", "900ms"],
          }
        : { url: `holdfast+${listen}`, lease: ["--grace", "2s"], before: disk.before },
    strike: (works) => {
      victims = works;
    },
    inject: async (fault) => (await faults[fault]?.()) ?? false,
    async heal() {
      for (const repair of shuffled(repairs, random)) {
        repair();
        await delay(random.int(100));
      }
      for (const one of ending) await one.ended;
      ending.clear();
      await until(start, { within: 30_000, what: "the server after the repair" });
    },
    close: () => proxy.close(),
  };
}

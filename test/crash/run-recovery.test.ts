import { readdirSync } from "node:fs";
import { expect } from "vitest";
import { until } from "../support/wait-for.ts";
import { judge } from "./judged.ts";
import type { Seen } from "./processes.ts";
import { below, commandOf, isLiving, signal } from "./processes.ts";
import type { Running, Scene, Served } from "./scene.ts";
import { asSeen, PROGRAM, test } from "./scene.ts";

/** The command of a run whose wrapper is dead has so long. */
const GRACE = ["--grace", "2s"];

test.concurrent.for(["at once", "a moment later"] as const)(
  "on demand: wrapper killed, server killed %s: nobody enters beside the command, other keys are free",
  async (when, { here }) => {
    const judged = judge(here.folder);
    const run = here.start(["run", "k", ...GRACE, "--", ...judged.works("k", "stubborn")]);
    const command = asSeen(await judged.atWork("k"));
    const [server] = here.servers();
    run.kill();
    if (when === "a moment later") await until(() => run.hasEnded(), { within: 5_000, what: "the end of the wrapper" });
    signal(server!, "SIGKILL");
    await entersAfter(here, judged, command, []);
  },
);

test.concurrent("all processes of Node killed at once, wrappers of four keys and the server on demand: none enters beside a command", async ({
  here,
}) => {
  const judged = judge(here.folder);
  const keys = ["a", "b", "c", "d"];
  const runs = keys.map((key) => here.start(["run", key, ...GRACE, "--", ...judged.works(key, "slow")]));
  for (const key of keys) await judged.atWork(key);
  const [server] = here.servers();
  for (const run of runs) run.kill();
  signal(server!, "SIGKILL");
  const next = keys.map((key) => here.start(["run", key, "--", ...judged.enters(key)]));
  for (const one of next) expect(await one.ended, one.err()).toEqual({ code: 0, signal: null });
  expect(judged.faults(keys)).toEqual([]);
});

test.concurrent.for([
  ["SIGKILL", "wrapper first"],
  ["SIGTERM", "wrapper first"],
  ["SIGTERM", "server first"],
] as const)(
  "own server ended by %s and started again, %s: nobody enters beside the command, other keys are free",
  async ([name, order], { here }) => {
    const judged = judge(here.folder);
    const server = await here.serve();
    const url = ["--url", server.url];
    const run = here.start(["run", "k", ...url, ...GRACE, "--", ...judged.works("k", "stubborn")]);
    const command = asSeen(await judged.atWork("k"));
    if (order === "wrapper first") run.kill();
    await ended(server, name);
    if (order === "server first") run.kill();
    await here.serve();
    await entersAfter(here, judged, command, url);
  },
);

test.concurrent("wrapper stopped, server killed and started again: the command keeps its key and no other, and both go on when resumed", async ({
  here,
}) => {
  const judged = judge(here.folder);
  const before = await here.serve();
  const url = ["--url", before.url];
  const run = here.start(["run", "k", ...url, "--", ...judged.works("k", "obedient")]);
  await judged.atWork("k");
  run.process.kill("SIGSTOP");
  await ended(before, "SIGKILL");
  await here.serve();
  // nothing has to be waited for: what this run holds is known
  expect(await enters(here, "other", [...url, "--wait", "8s"])).toBe(0);
  expect(await enters(here, "k", [...url, "--wait", "1s"])).toBe(124);
  run.process.kill("SIGCONT");
  judged.openGate("k");
  expect(await run.ended, run.err()).toEqual({ code: 0, signal: null });
  expect(await enters(here, "k", [...url, "--wait", "8s"])).toBe(0);
  expect(judged.faults(["k"])).toEqual([]);

  function enters(scene: Scene, key: string, args: readonly string[]): Promise<number | null> {
    return scene.start(["run", key, ...args, "--", ...judged.enters(key)]).ended.then(({ code }) => code);
  }
});

test.concurrent.for(["server goes on", "server killed and started again"] as const)(
  "a command that closed what it inherited, wrapper and guard killed, %s: it keeps the lock until its own end",
  async (then, { here }) => {
    const judged = judge(here.folder);
    const server = await here.serve();
    const url = ["--url", server.url];
    const run = here.start(["run", "k", ...url, "--", ...judged.worksClosed("k", "stubborn")]);
    const command = asSeen(await judged.atWork("k"));
    killWithGuard(run);
    if (then !== "server goes on") {
      await ended(server, "SIGKILL");
      await here.serve();
    }
    const early = here.start(["run", "k", ...url, "--wait", "1s", "--", ...judged.enters("k")]);
    expect((await early.ended).code, early.err()).toBe(124);
    signal(command, "SIGKILL");
    const next = here.start(["run", "k", ...url, "--wait", "10s", "--", ...judged.enters("k")]);
    expect(await next.ended, next.err()).toEqual({ code: 0, signal: null });
    expect(judged.faults(["k"])).toEqual([]);
  },
);

test.concurrent.for([
  ["released", "SIGTERM", "obedient"],
  ["released", "SIGKILL", "stubborn"],
  ["held", "SIGTERM", "stubborn"],
  ["held", "SIGKILL", "obedient"],
] as const)(
  "wrapper stopped until its lease has ended, its key %s by another run, server ended by %s and started again: the lease stays ended",
  async ([then, name, manner], { here }) => {
    const judged = judge(here.folder);
    const before = await here.serve();
    const url = ["--url", before.url];
    const run = here.start(["run", "k", ...url, "--ttl", "2s", "--", ...judged.works("k", manner)]);
    const command = asSeen(await judged.atWork("k"));
    run.process.kill("SIGSTOP");
    const other = here.start(["run", "k", ...url, "--", ...judged.works("k", "obedient")]);
    await until(() => judged.workers("k").length === 2, { within: 15_000, what: "the other at work" });
    expect(isLiving(command)).toBe(false);
    const leaves = async (): Promise<void> => {
      judged.openGate("k");
      expect(await other.ended, other.err()).toEqual({ code: 0, signal: null });
    };
    if (then === "released") await leaves();
    await ended(before, name);
    await here.serve();
    if (then === "held") {
      const early = here.start(["run", "k", ...url, "--wait", "1s", "--", ...judged.enters("k")]);
      expect((await early.ended).code, early.err()).toBe(124);
      expect(await here.list(before.url)).toHaveLength(1);
      await leaves();
    }
    const next = here.start(["run", "k", ...url, "--wait", "8s", "--", ...judged.enters("k")]);
    expect(await next.ended, next.err()).toEqual({ code: 0, signal: null });
    run.process.kill("SIGCONT");
    expect((await run.ended).code, run.err()).toBe(123);
    expect(judged.faults(["k"])).toEqual([]);
    expect(readdirSync(here.path("state/runs"))).toEqual([]);
  },
);

test.concurrent("a run inside a run, several keys: the outer wrapper stopped until its lease has ended, server killed and started again: all are free", async ({
  here,
}) => {
  const judged = judge(here.folder);
  const before = await here.serve();
  const url = ["--url", before.url];
  const inner = [process.execPath, PROGRAM, "run", "k", "l", ...url, "--", ...judged.works("k", "stubborn")];
  const outer = here.start(["run", "j", "k", ...url, "--ttl", "4s", "--", ...inner]);
  const command = asSeen(await judged.atWork("k"));
  outer.process.kill("SIGSTOP");
  await until(() => !isLiving(command), { within: 15_000, what: "the end of the command" });
  const entered = async (): Promise<void> => {
    for (const key of ["j", "k", "l"]) {
      const next = here.start(["run", key, ...url, "--wait", "8s", "--", ...judged.enters(key)]);
      expect(await next.ended, next.err()).toEqual({ code: 0, signal: null });
    }
  };
  await entered();
  await ended(before, "SIGKILL");
  await here.serve();
  await entered();
  outer.process.kill("SIGCONT");
  expect((await outer.ended).code, outer.err()).toBe(123);
  expect(judged.faults(["k"])).toEqual([]);
  expect(readdirSync(here.path("state/runs"))).toEqual([]);
});

/** A guard that was killed is replaced, if the wrapper still has the time: it has none. */
function killWithGuard(run: Running): void {
  const guards = below(run.pid).filter(({ pid }) => commandOf(pid).includes("holdfast-guard"));
  expect(guards).toHaveLength(1);
  run.process.kill("SIGSTOP");
  for (const guard of guards) signal(guard, "SIGKILL");
  run.kill();
}

async function ended(server: Served, name: NodeJS.Signals): Promise<void> {
  server.process.kill(name);
  await server.ended;
}

/** Another key is free while the command works; its own key is once it has ended. */
async function entersAfter(
  here: Scene,
  judged: ReturnType<typeof judge>,
  command: Seen,
  url: readonly string[],
): Promise<void> {
  const other = here.start(["run", "other", ...url, "--wait", "10s", "--", "true"]);
  const next = here.start(["run", "k", ...url, "--", ...judged.enters("k")]);
  expect(await next.ended, next.err()).toEqual({ code: 0, signal: null });
  expect(isLiving(command)).toBe(false);
  expect(await other.ended, other.err()).toEqual({ code: 0, signal: null });
  expect(judged.faults(["k"])).toEqual([]);
}

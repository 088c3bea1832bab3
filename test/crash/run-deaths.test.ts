// The table of docs/guide/cli.md: who dies, what becomes of the command, when the lock is free. Each row on a server on
// demand; two rows with each kind of claim.

import { expect } from "vitest";
import { until } from "../support/wait-for.ts";
import type { Judge } from "./judged.ts";
import { judge } from "./judged.ts";
import type { Seen } from "./processes.ts";
import { below, commandOf, isLiving, signal } from "./processes.ts";
import type { Running, Scene } from "./scene.ts";
import { asSeen, PROGRAM, test } from "./scene.ts";

type Mortal = "wrapper" | "watchdog" | "command" | "server";

/** What becomes of the command. orphan: it goes on, and nobody is left to end it. */
type Then = "ended by the watchdog" | "goes on" | "over" | "orphan";

const ROWS: readonly (readonly [killed: readonly Mortal[], then: Then])[] = [
  [["wrapper"], "ended by the watchdog"],
  [["watchdog"], "goes on"],
  [["command"], "over"],
  [["server"], "goes on"],
  [["wrapper", "watchdog"], "orphan"],
  [["wrapper", "command"], "over"],
  [["wrapper", "server"], "ended by the watchdog"],
  [["watchdog", "command"], "over"],
  [["watchdog", "server"], "goes on"],
  [["command", "server"], "over"],
  [["wrapper", "watchdog", "server"], "orphan"],
];

test.concurrent.for(ROWS)("killed: %s; its command: %s", async ([killed, then], { here }) => {
  const judged = judge(here.folder);
  const run = here.start(["run", "k", "--grace", "1s", "--", ...judged.works("k", "stubborn")]);
  const command = asSeen(await judged.atWork("k"));
  kill(here, run, command, killed);
  await becomes(here, judged, command, then);
  if (killed.includes("wrapper")) return;
  const code = killed.includes("command") ? 137 : 0;
  expect(await run.ended, run.err()).toEqual({ code, signal: null });
});

test.concurrent("wrapper killed, with a long lease: the lock is free when the command is gone, since nobody believes in the lease", async ({
  here,
}) => {
  const judged = judge(here.folder);
  const run = here.start(["run", "k", "--ttl", "10m", "--grace", "1s", "--", ...judged.works("k", "stubborn")]);
  const command = asSeen(await judged.atWork("k"));
  kill(here, run, command, ["wrapper"]);
  await becomes(here, judged, command, "ended by the watchdog");
});

const KINDS: readonly (readonly [name: string, flags: readonly string[], next: readonly string[]])[] = [
  ["a lease of 2 s", ["k", "--ttl", "2s"], ["k"]],
  ["several keys", ["k", "l"], ["l"]],
  ["shared", ["k", "--shared"], ["k"]],
  ["permits", ["k", "--permits", "2/3"], ["k", "--permits", "2/3"]],
];

test.concurrent.for(KINDS)(
  "wrapper, watchdog and server killed, %s: the command keeps what it holds",
  async ([, flags, next], { here }) => {
    const judged = judge(here.folder);
    const run = here.start(["run", ...flags, "--", ...judged.works("k", "stubborn")]);
    const command = asSeen(await judged.atWork("k"));
    kill(here, run, command, ["wrapper", "watchdog", "server"]);
    // longer than the lease
    const early = here.start(["run", ...next, "--wait", "3s", "--", ...judged.enters("k")]);
    expect((await early.ended).code, early.err()).toBe(124);
    await becomes(here, judged, command, "orphan", next);
  },
);

test.concurrent("two shared runs, wrappers and server killed: a third goes in beside them, an exclusive one after both", async ({
  here,
}) => {
  const judged = judge(here.folder);
  const both = ["slow", "stubborn"] as const;
  const runs = both.map((manner) =>
    here.start(["run", "k", "--shared", "--grace", "2s", "--", ...judged.worksBeside("k", manner)]),
  );
  await until(() => judged.workers("k").length === 2, { within: 15_000, what: "both at work" });
  const commands = judged.workers("k").map(asSeen);
  const [server] = here.servers();
  for (const run of runs) run.kill();
  signal(server!, "SIGKILL");
  const third = here.start(["run", "k", "--shared", "--no-wait", "--", "true"]);
  expect((await third.ended).code, third.err()).toBe(0);
  const next = here.start(["run", "k", "--", ...judged.enters("k")]);
  expect(await next.ended, next.err()).toEqual({ code: 0, signal: null });
  expect(commands.some(isLiving)).toBe(false);
  expect(judged.overlaps()).toEqual([]);
});

test.concurrent("a run inside a run, of the same key and one more: all of Node killed, both keys stay until the command is gone", async ({
  here,
}) => {
  const judged = judge(here.folder);
  const inner = [process.execPath, PROGRAM, "run", "k", "l", "--grace", "2s", "--", ...judged.works("k", "stubborn")];
  const outer = here.start(["run", "k", "--", ...inner]);
  const command = asSeen(await judged.atWork("k"));
  const ofNode = below(outer.pid).filter(({ pid }) => commandOf(pid).includes(PROGRAM));
  const [server] = here.servers();
  for (const one of ofNode) signal(one, "SIGSTOP");
  outer.kill();
  for (const one of [...ofNode, server!]) signal(one, "SIGKILL");
  const next = ["k", "l"].map((key) => here.start(["run", key, "--", ...judged.enters(key)]));
  for (const one of next) {
    expect(await one.ended, one.err()).toEqual({ code: 0, signal: null });
    expect(isLiving(command)).toBe(false);
  }
  expect(judged.faults(["k"])).toEqual([]);
});

/** All at one moment: whoever could react is stopped first. */
function kill(here: Scene, run: Running, command: Seen, killed: readonly Mortal[]): void {
  // where there is a lease a watchdog has a second process, which waits for its end, and is replaced again and again
  const watchdogs = (): Seen[] => below(run.pid).filter(({ pid }) => commandOf(pid).includes("holdfast-guard"));
  const [server] = here.servers();
  run.process.kill("SIGSTOP");
  for (const one of watchdogs()) signal(one, "SIGSTOP");
  const stopped = watchdogs();
  expect([stopped.length > 0, server === undefined]).toEqual([true, false]);
  if (killed.includes("server")) signal(server!, "SIGKILL");
  for (const one of stopped) signal(one, killed.includes("watchdog") ? "SIGKILL" : "SIGCONT");
  if (killed.includes("command")) signal(command, "SIGKILL");
  if (killed.includes("wrapper")) run.kill();
  else run.process.kill("SIGCONT");
}

async function becomes(
  here: Scene,
  judged: Judge,
  command: Seen,
  then: Then,
  wanted: readonly string[] = ["k"],
): Promise<void> {
  const goesOn = then === "goes on" || then === "orphan";
  if (goesOn) {
    const early = here.start(["run", ...wanted, "--wait", "500ms", "--", ...judged.enters("k")]);
    expect((await early.ended).code, early.err()).toBe(124);
    expect(isLiving(command)).toBe(true);
  }
  const next = here.start(["run", ...wanted, "--", ...judged.enters("k")]);
  if (goesOn) await here.waiting(1);
  if (then === "goes on") judged.openGate("k");
  if (then === "orphan") signal(command, "SIGKILL");
  expect(await next.ended, next.err()).toEqual({ code: 0, signal: null });
  expect(isLiving(command)).toBe(false);
  expect(judged.faults(["k"])).toEqual([]);
}

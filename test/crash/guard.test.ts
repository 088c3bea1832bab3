import { expect } from "vitest";
import { until } from "../support/wait-for.ts";
import { children } from "./children.ts";
import type { Seen } from "./processes.ts";
import { below, commandOf, isLiving, seen, signal } from "./processes.ts";
import { asSeen, PROGRAM, test } from "./scene.ts";
import { inTerminal } from "./terminal.ts";

test.concurrent.for(["family", "stubborn"] as const)(
  "wrapper killed, %s children: they and what is below them are gone before anyone else enters",
  async (kind, { here }) => {
    const them = children(here.folder);
    const run = here.start(["run", "k", "--grace", "300ms", "--", ...them[kind]]);
    const pids = await them.atWork();
    const next = here.start(["run", "k", "--", ...them.looker]);
    await here.waiting(1);
    const killed = performance.now();
    run.kill();
    expect(await next.ended, next.out()).toEqual({ code: 0, signal: null });
    expect(pids.some((pid) => seen(pid) !== null)).toBe(false);
    console.log(
      `figure: wrapper of ${kind} children killed (grace 300 ms), next run over after ${(performance.now() - killed).toFixed(0)} ms`,
    );
  },
);

test.concurrent("wrapper killed on TCP: stubborn children and what is below them are gone before the lease can end", async ({
  here,
}) => {
  const { url } = await here.serve(["--listen", "tcp://127.0.0.1:0"]);
  const them = children(here.folder);
  const run = here.start(["run", "k", "--url", url, "--ttl", "5s", "--grace", "2s", "--", ...them.stubborn]);
  const pids = await them.atWork();
  const family = pids.map(asSeen);
  const next = here.start(["run", "k", "--url", url, "--", ...them.looker]);
  await here.waiting(1, url);
  run.kill();
  const killed = performance.now();
  await until(() => !family.some(isLiving), { within: 10_000, what: "the end of the family" });
  const goneAfter = performance.now() - killed;
  expect(await next.ended, next.out()).toEqual({ code: 0, signal: null });
  console.log(
    `figure: wrapper killed on TCP (lease 5 s, grace 2 s): children gone after ${goneAfter.toFixed(0)} ms, next run over after ${(performance.now() - killed).toFixed(0)} ms`,
  );
});

test.concurrent("wrapper killed in a terminal, where its children share its group: they are gone before anyone else enters", async ({
  here,
}) => {
  const them = children(here.folder);
  const command = [process.execPath, PROGRAM, "run", "k", "--grace", "300ms", "--", ...them.stubborn].join(" ");
  const terminal = inTerminal(here, `${command}; sleep 60`);
  const pids = await them.atWork();
  const wrapper = below(terminal.pid).find(({ pid }) => commandOf(pid) === command);
  expect(wrapper).toBeDefined();
  const next = here.start(["run", "k", "--", ...them.looker]);
  await here.waiting(1);
  signal(wrapper!, "SIGKILL");
  expect(await next.ended, next.out()).toEqual({ code: 0, signal: null });
  expect(pids.some((pid) => seen(pid) !== null)).toBe(false);
});

test.concurrent("wrapper and guard killed: on the socket the child that nobody ends keeps the lock by its tether, until its own end", async ({
  here,
}) => {
  const them = children(here.folder);
  const run = here.start(["run", "k", "--", ...them.stubborn]);
  const family = (await them.atWork()).map(asSeen);
  const guard = below(run.pid).find(({ pid }) => commandOf(pid).includes("holdfast-guard"));
  // a guard that was killed is replaced, if the wrapper still has the time: it has none
  run.process.kill("SIGSTOP");
  signal(guard!, "SIGKILL");
  run.kill();
  const early = here.start(["run", "k", "--wait", "1s", "--", ...them.looker]);
  expect((await early.ended).code, early.out()).toBe(124);
  for (const one of family) signal(one, "SIGKILL");
  const next = here.start(["run", "k", "--", ...them.looker]);
  expect(await next.ended, next.out()).toEqual({ code: 0, signal: null });
});

test.concurrent.for(["SIGKILL", "SIGTERM"] as const)(
  "server ended by %s and started again, then the wrapper killed: stubborn children are gone before anyone else enters",
  async (name, { here }) => {
    const them = children(here.folder);
    const run = here.start(["run", "k", "--grace", "1s", "--", ...them.stubborn]);
    await them.atWork();
    const [before] = guardsOf(run.pid);
    const [server] = here.servers();
    signal(server!, name);
    // a new guard holds a tether to the new server; that of the children went with the old one
    await until(() => guardsOf(run.pid).length === 1 && guardsOf(run.pid)[0]?.pid !== before?.pid, {
      within: 10_000,
      what: "the relief of the guard",
    });
    const next = here.start(["run", "k", "--", ...them.looker]);
    await here.waiting(1);
    run.kill();
    expect(await next.ended, next.out()).toEqual({ code: 0, signal: null });
  },
);

test.concurrent("a child that closes what it inherits, the tether too, is gone before anyone else enters when its wrapper is killed", async ({
  here,
}) => {
  const them = children(here.folder);
  const closing = `exec 19>&-; exec "$@"`;
  const run = here.start(["run", "k", "--grace", "1s", "--", "bash", "-c", closing, "bash", ...them.stubborn]);
  await them.atWork();
  const next = here.start(["run", "k", "--", ...them.looker]);
  await here.waiting(1);
  run.kill();
  expect(await next.ended, next.out()).toEqual({ code: 0, signal: null });
});

function guardsOf(pid: number): Seen[] {
  return below(pid).filter((one) => commandOf(one.pid).includes("holdfast-guard"));
}

import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import { until } from "../support/wait-for.ts";
import { GATED, openGate } from "./children.ts";
import { overtaken } from "./overtaken.ts";
import type { Seen } from "./processes.ts";
import { below, signal } from "./processes.ts";
import { asSeen, LONG, test } from "./scene.ts";
import { worker } from "./worker.ts";

/** A session's length is 30 s: where silence ended one, a stop of 40 s would show it. */
const STOPPED_MS = LONG ? 40_000 : 2_000;

test.concurrent("a holder stopped past its lease on TCP and resumed is told lost before it can write, and a fenced register refuses its token", async ({
  here,
}) => {
  const { url } = await here.serve(["--listen", "tcp://127.0.0.1:0"]);
  await overtaken(here, url);
});

test.concurrent("a session holder stopped on the Unix socket keeps its lock, and goes on with it when resumed", {
  timeout: STOPPED_MS + 30_000,
}, async ({ here }) => {
  const holder = await worker(here);
  const next = await worker(here);
  holder.acquire("it", "k", { ttl: "session" });
  await holder.told("it", "held");
  holder.stop();
  next.acquire("next", "k");
  await next.told("next", "asked");
  await delay(STOPPED_MS);
  expect(next.reports().some(({ event }) => event === "held")).toBe(false);
  holder.resume();
  holder.tell({ do: "release", of: "it" });
  expect(await holder.told("it", "released")).toMatchObject({ kept: true });
  await next.told("next", "held");
});

test.concurrent("a run that is stopped with its command (Ctrl-Z) keeps its lock, and both go on when resumed", {
  timeout: STOPPED_MS + 30_000,
}, async ({ here }) => {
  const run = here.start(["run", "k", "--", ...GATED]);
  await until(() => run.out() !== "", { within: 10_000, what: "the command" });
  const job: Seen[] = [asSeen(run.pid), ...below(run.pid)];
  for (const one of job) signal(one, "SIGSTOP");
  const other = here.start(["run", "k", "--wait", `${STOPPED_MS}ms`, "--", "true"]);
  expect((await other.ended).code).toBe(124);
  for (const one of job) signal(one, "SIGCONT");
  openGate(here);
  expect(await run.ended).toEqual({ code: 0, signal: null });
  expect(run.err()).toBe("");
});

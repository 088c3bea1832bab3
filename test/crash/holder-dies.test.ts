import { expect } from "vitest";
import { until } from "../support/wait-for.ts";
import { below, signal } from "./processes.ts";
import { test } from "./scene.ts";
import { msBetween, worker } from "./worker.ts";

/** "At once", on a machine that is busy with other things: the lease that it does not wait for has 30 s. */
const AT_ONCE_MS = 10_000;
const LEASE_MS = 2_000;

const now = (): { readonly at: string } => ({ at: String(process.hrtime.bigint()) });

test.concurrent("wrapper and child killed: the next grant follows at once", async ({ here }) => {
  const run = here.start(["run", "k", "--", "sh", "-c", "echo works; sleep 60; true"]);
  await until(() => run.out() !== "", { within: 10_000, what: "the command" });
  const next = await worker(here);
  next.acquire("next", "k");
  await next.told("next", "asked");
  // by the sleep that is below it alone
  const child = await until(() => below(run.pid).find(({ pid }) => below(pid).length === 1), {
    within: 5_000,
    what: "the command at sleep",
  });
  const killed = now();
  run.kill();
  signal(child, "SIGKILL");
  const ms = msBetween(killed, await next.told("next", "held"));
  expect(ms).toBeLessThan(AT_ONCE_MS);
  console.log(`figure: wrapper and child killed, next grant after ${ms.toFixed(0)} ms`);
});

test.concurrent("a library holder killed on the Unix socket: the next grant follows at once", async ({ here }) => {
  const holder = await worker(here);
  const next = await worker(here);
  holder.acquire("it", "k");
  await holder.told("it", "held");
  next.acquire("next", "k");
  await next.told("next", "asked");
  const killed = now();
  holder.kill();
  const ms = msBetween(killed, await next.told("next", "held"));
  expect(ms).toBeLessThan(AT_ONCE_MS);
  console.log(`figure: library holder killed on the Unix socket, next grant after ${ms.toFixed(1)} ms`);
});

test.concurrent("a library holder killed on TCP: the next grant comes when the lease has ended, not before", async ({
  here,
}) => {
  const { url } = await here.serve(["--listen", "tcp://127.0.0.1:0"]);
  const holder = await worker(here, url);
  const next = await worker(here, url);
  holder.acquire("it", "k", { ttl: "2s" });
  await holder.told("it", "held");
  next.acquire("next", "k");
  await next.told("next", "asked");
  const killed = now();
  holder.kill();
  const asked = await holder.told("it", "asked");
  const granted = await next.told("next", "held");
  expect(msBetween(asked, granted)).toBeGreaterThanOrEqual(LEASE_MS);
  expect(msBetween(killed, granted)).toBeLessThan(LEASE_MS + AT_ONCE_MS);
  console.log(
    `figure: library holder killed on TCP (lease 2 s), next grant after ${msBetween(killed, granted).toFixed(0)} ms`,
  );
});

test.concurrent.for(["unix", "tcp"])(
  "a waiter killed over %s leaves no place: the one behind it is granted at once",
  async (kind, { here }) => {
    const url = kind === "unix" ? "" : (await here.serve(["--listen", "tcp://127.0.0.1:0"])).url;
    const [holder, waiter, behind] = [await worker(here, url), await worker(here, url), await worker(here, url)];
    for (const [one, of] of [
      [holder, "holder"],
      [waiter, "waiter"],
      [behind, "behind"],
    ] as const) {
      one.acquire(of, "k");
      if (of === "holder") await one.told(of, "held");
      else await here.waiting(of === "waiter" ? 1 : 2, url === "" ? undefined : url);
    }
    waiter.kill();
    await waiter.ended;
    holder.tell({ do: "release", of: "holder" });
    const released = await holder.told("holder", "released");
    const ms = msBetween(released, await behind.told("behind", "held"));
    expect(ms).toBeLessThan(AT_ONCE_MS);
  },
);

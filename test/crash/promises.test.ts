/**
 * The four ways in which a party can die, and what Holdfast promises in each of them: no two hold, tokens rise, a holder
 * is told of a loss before the next one enters, who waits is served, nothing is left behind.
 */

import { expect } from "vitest";
import { tcpProxy } from "../support/tcp-proxy.ts";
import { until } from "../support/wait-for.ts";
import { children } from "./children.ts";
import { signal } from "./processes.ts";
import { openRegister } from "./register.ts";
import type { Scene } from "./scene.ts";
import { test } from "./scene.ts";
import type { Report, Worker } from "./worker.ts";
import { worker } from "./worker.ts";

const PROMISES =
  "no two hold, the token rises, a loss is told before the next one enters, who waits is served, nothing is left";

/** Two who wait for "k", the second behind the first, and so many before them. */
async function waiters(here: Scene, url?: string, before = 0): Promise<readonly [Worker, Worker]> {
  const [first, second] = [await worker(here, url), await worker(here, url)];
  first.acquire("it", "k");
  await here.waiting(before + 1, url);
  second.acquire("it", "k");
  await here.waiting(before + 2, url);
  return [first, second];
}

/** Both are served one after the other, with tokens that rise above that one, and nothing is left at the store. */
async function allServed(
  here: Scene,
  [first, second]: readonly [Worker, Worker],
  above: string,
  url?: string,
): Promise<Report> {
  const one = await first.told("it", "held");
  expect(BigInt(one.token!)).toBeGreaterThan(BigInt(above));
  expect(second.reports().some(({ event }) => event === "held")).toBe(false);
  first.tell({ do: "release", of: "it" });
  const released = await first.told("it", "released");
  expect(released.kept).toBe(true);
  const two = await second.told("it", "held");
  expect(BigInt(two.token!)).toBeGreaterThan(BigInt(one.token!));
  second.tell({ do: "release", of: "it" });
  expect(await second.told("it", "released")).toMatchObject({ kept: true });
  expect(await here.list(url)).toEqual([]);
  return one;
}

test.concurrent(`the wrapper dies: ${PROMISES}`, async ({ here }) => {
  const them = children(here.folder);
  const run = here.start(["run", "k", "--grace", "300ms", "--", ...them.stubborn]);
  await them.atWork();
  const token = (await here.list())[0]?.token as string;
  // the next one looks, as the first thing it does under the lock, whether one of them is alive
  const looker = here.start(["run", "k", "--", ...them.looker]);
  await here.waiting(1);
  const both = await waiters(here, undefined, 1);
  run.kill();
  expect(await looker.ended, looker.out()).toEqual({ code: 0, signal: null });
  await allServed(here, both, token);
});

test.concurrent(`the client dies: ${PROMISES}`, async ({ here }) => {
  const holder = await worker(here);
  holder.acquire("it", "k");
  const { token } = await holder.told("it", "held");
  const both = await waiters(here);
  holder.kill();
  await allServed(here, both, token!);
});

test.concurrent(`the store dies: ${PROMISES}`, async ({ here }) => {
  const register = await openRegister(here);
  const holder = await worker(here, "", register.path);
  holder.acquire("it", "k");
  const { token } = await holder.told("it", "held");
  holder.tell({ do: "use", of: "it" });
  const both = await waiters(here);
  const [server] = here.servers();
  signal(server!, "SIGKILL");
  await until(() => here.everListened().length === 2, { within: 10_000, what: "the next server" });
  await here.waiting(2);
  // the lock outlives the server, so nobody is told of a loss and nobody enters
  expect(holder.reports().map(({ event }) => event)).not.toContain("lost");
  expect(both.flatMap((one) => one.reports()).some(({ event }) => event === "held")).toBe(false);
  const written = register.log.length;
  await until(() => register.log.length > written, { within: 5_000, what: "the holder to go on" });
  holder.tell({ do: "release", of: "it" });
  expect(await holder.told("it", "released")).toMatchObject({ kept: true });
  await allServed(here, both, token!);
});

test.concurrent(`the network dies: ${PROMISES}`, async ({ here }) => {
  const { url } = await here.serve(["--listen", "tcp://127.0.0.1:0"]);
  await using proxy = await tcpProxy({ host: "127.0.0.1", port: Number(new URL(url).port) });
  const { address } = proxy;
  const register = await openRegister(here);
  const through = "port" in address ? `holdfast://127.0.0.1:${address.port}` : "";
  const holder = await worker(here, through, register.path);
  holder.acquire("it", "k", { ttl: "3s" });
  const { token } = await holder.told("it", "held");
  holder.tell({ do: "use", of: "it" });
  const both = await waiters(here, url);
  proxy.up.pause();
  proxy.down.pause();
  const next = await allServed(here, both, token!, url);
  const lost = await holder.told("it", "lost");
  const stopped = await holder.told("it", "stopped");
  // in the first round of its event loop that the machine let it have
  expect(BigInt(lost.roundAt!)).toBeLessThan(BigInt(next.at));
  expect(BigInt(stopped.believedAt!)).toBeLessThan(BigInt(next.at));
});

// Moving locks to ZooKeeper: what `holdfast doctor --from` says is what tokens need so as not to go backwards.

import { expect, test } from "vitest";
import { memory } from "../../src/drivers/memory.ts";
import { zookeeper } from "../../src/drivers/zookeeper/driver.ts";
import { createLocks } from "../../src/index.ts";
import { place } from "../cli/command.ts";
import { zookeeperScene } from "../support/zookeeper-scene.ts";

const here = place();
const scene = zookeeperScene();

type Report = { readonly ok: boolean; readonly tokenBase?: string | null; readonly findings: readonly Finding[] };
type Finding = { readonly level: string; readonly what: string; readonly says: string; readonly advice?: string };

async function report(url: string, from: string): Promise<Report> {
  const { code, out, err } = await here.run(["doctor", "--url", url, "--from", from, "--json"]);
  expect({ code, err }).toEqual({ code: 0, err: "" });
  return JSON.parse(out) as Report;
}

const urlOf = (query = ""): string => `zookeeper://${scene.server.address.host}:${scene.server.address.port}${query}`;
const tokens = ({ findings }: Report): Finding | undefined => findings.find(({ what }) => what === "tokens");

test("from a store whose tokens follow a clock: with the tokenBase that doctor prints tokens rise", async () => {
  const first = await report(urlOf(), "memory:");
  expect(tokens(first)).toMatchObject({ level: "doubtful", advice: expect.stringContaining(`=${first.tokenBase}`) });
  const tokenBase = BigInt(first.tokenBase ?? 0);

  await using old = createLocks(memory());
  const last = await old.using("moved", async ({ token }) => token);
  const driver = zookeeper({ servers: [scene.server.address], tokenBase });
  await using locks = createLocks(driver, { ttl: "session" });
  expect(await locks.using("moved", async ({ token }) => token)).toBeGreaterThan(last);

  const second = await report(urlOf(`?tokenBase=${tokenBase}`), "memory:");
  expect([tokens(second)?.level, second.tokenBase]).toEqual(["good", null]);
});

test("from an ensemble to another: its own tokenBase counts", async () => {
  const there = 5_000_000_000_000_000n;
  const { tokenBase } = await report(urlOf(), urlOf(`?tokenBase=${there}`));
  expect(BigInt(tokenBase ?? 0)).toBeGreaterThan(there + 2n ** 44n);
});

test("an old store that cannot be reached is named; without --from nothing is said of tokens", async () => {
  const { out } = await here.run(["doctor", "--url", urlOf()]);
  expect(out).not.toContain("tokens");
  const unreached = await here.run(["doctor", "--url", urlOf(), "--from", "redis://127.0.0.1:1"]);
  expect(unreached.code).toBe(69);
  expect(unreached.out).toContain("redis://127.0.0.1:1");
});

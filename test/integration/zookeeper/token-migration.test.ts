// Moving locks to ZooKeeper: with the tokenBase that `holdfast doctor --from` prints, tokens do not fall.

import { expect, test } from "vitest";
import { memory } from "../../../src/drivers/memory.ts";
import { zookeeper } from "../../../src/drivers/zookeeper/driver.ts";
import { createLocks } from "../../../src/index.ts";
import { cliSandbox } from "../../support/cli-sandbox.ts";
import { zookeeperFixture } from "../../support/stores/zookeeper-fixture.ts";

const sandbox = cliSandbox();
const fixture = zookeeperFixture();

type DoctorReport = {
  readonly ok: boolean;
  readonly tokenBase?: string | null;
  readonly checks: readonly DoctorCheck[];
};
type DoctorCheck = {
  readonly status: string;
  readonly name: string;
  readonly message: string;
  readonly hint?: string;
};

async function runDoctor(url: string, from: string): Promise<DoctorReport> {
  const { code, out, err } = await sandbox.run(["doctor", "--url", url, "--from", from, "--json"]);
  expect({ code, err }).toEqual({ code: 0, err: "" });
  return JSON.parse(out) as DoctorReport;
}

const zookeeperUrl = (query = ""): string =>
  `zookeeper://${fixture.server.address.host}:${fixture.server.address.port}${query}`;
const tokenCheck = ({ checks }: DoctorReport): DoctorCheck | undefined => checks.find(({ name }) => name === "tokens");

test("from a store whose tokens follow a clock: with the tokenBase that doctor prints tokens rise", async () => {
  const first = await runDoctor(zookeeperUrl(), "memory:");
  expect(tokenCheck(first)).toMatchObject({
    status: "warn",
    hint: expect.stringContaining(`=${first.tokenBase}`),
  });
  const tokenBase = BigInt(first.tokenBase ?? 0);

  await using old = createLocks(memory());
  const last = await old.using("moved", async ({ token }) => token);
  const driver = zookeeper({ servers: [fixture.server.address], tokenBase });
  await using locks = createLocks(driver, { ttl: "session" });
  expect(await locks.using("moved", async ({ token }) => token)).toBeGreaterThan(last);

  const second = await runDoctor(zookeeperUrl(`?tokenBase=${tokenBase}`), "memory:");
  expect([tokenCheck(second)?.status, second.tokenBase]).toEqual(["ok", null]);
});

test("from an ensemble to another: its own tokenBase counts", async () => {
  const savedBase = 5_000_000_000_000_000n;
  const { tokenBase } = await runDoctor(zookeeperUrl(), zookeeperUrl(`?tokenBase=${savedBase}`));
  expect(BigInt(tokenBase ?? 0)).toBeGreaterThan(savedBase + 2n ** 44n);
});

test("an unreachable old store is named; without --from tokens are not mentioned", async () => {
  const { out } = await sandbox.run(["doctor", "--url", zookeeperUrl()]);
  expect(out).not.toContain("tokens");
  const unreached = await sandbox.run(["doctor", "--url", zookeeperUrl(), "--from", "redis://127.0.0.1:1"]);
  expect(unreached.code).toBe(69);
  expect(unreached.out).toContain("redis://127.0.0.1:1");
});

// The code of the page about etcd runs as its reader would run it.

import { afterAll, beforeAll, expect, test } from "vitest";
import { etcd } from "../../../src/drivers/etcd/driver.ts";
import { createLocks } from "../../../src/index.ts";
import { runSnippet } from "../../support/page-snippet.ts";
import type { EtcdServer } from "../../support/stores/etcd.ts";
import { enableEtcdAuth, startEtcd } from "../../support/stores/etcd.ts";

/** Positions among the blocks of code of the page. */
const [FIRST, WITH_ETCDCTL, FENCED] = [0, 3, 4];

let server: EtcdServer;

beforeAll(async () => {
  server = await startEtcd();
}, 60_000);
afterAll(() => server[Symbol.asyncDispose]());

test("the first block of the page runs", async () => {
  const { host, port } = server.address;
  const result = await runSnippet({
    page: "etcd",
    block: FIRST,
    replaced: { "etcd://etcd1:2379,etcd2:2379,etcd3:2379": `etcd://${host}:${port}` },
  });
  expect(result).toMatchObject({ code: 0, err: "" });
  expect(result.out).toMatch(/^mine, with token \d+\n$/);
});

test("the block with the names of etcdctl runs", async () => {
  const { host, port } = server.address;
  const result = await runSnippet({
    page: "etcd",
    block: WITH_ETCDCTL,
    given: "export const after = () => process.exit();",
    replaced: { '"etcd1", port: 2379': `"${host}", port: ${port}` },
  });
  expect(result).toEqual({ code: 0, out: "", err: "" });
});

test("the block with data in etcd writes them while the lock is held, and says so if it is lost", async () => {
  const { host, port } = server.address;
  const run = (use: string): ReturnType<typeof runSnippet> =>
    runSnippet({
      page: "etcd",
      block: FENCED,
      given: `
        import { connect } from "holdfast";
        const locks = await connect("etcd://${host}:${port}");
        export const lock = await locks.acquire("report");
        ${use}
        export const after = () => locks.close();`,
      replaced: { "http://etcd1:2379": server.url },
    });
  expect(await run("")).toEqual({ code: 0, out: "", err: "" });
  expect(await server.runCommand(["get", "--print-value-only", "report"])).toBe("new\n");
  const late = await run(`lock.throwIfLost = () => undefined; await lock.release();`);
  expect(late.code).not.toBe(0);
  expect(late.err).toContain("the lock was lost: nothing was written");
});

// the last: the server asks for a user from then on
test("a user with the rights of the page can lock, and run the checks of doctor", async () => {
  await enableEtcdAuth(server, "password", "holdfast/");
  const driver = etcd({ servers: [server.address], user: "app", password: "password" });
  await using locks = createLocks(driver);
  await (await locks.acquire("key")).release();
  const checks = (await driver.diagnose?.()) ?? [];
  expect(checks.filter(({ status }) => status === "fail")).toEqual([]);
  expect(checks.map(({ name }) => name)).toContain("trip");
});

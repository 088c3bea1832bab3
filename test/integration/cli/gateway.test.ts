// `holdfast gateway`: its settings, what it prints, its exit codes and its signals.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { createCredential } from "../../../src/auth/accounts-file.ts";
import { until } from "../../../src/testing/until.ts";
import { freePort } from "../../../src/torture/processes/free-port.ts";
import type { RunningCommand } from "../../support/cli-sandbox.ts";
import { cliSandbox } from "../../support/cli-sandbox.ts";
import { post, request } from "../../support/http-fixture.ts";

const sandbox = cliSandbox();

/** The address that a gateway prints. */
async function addressOf(running: RunningCommand): Promise<string> {
  const ended = running.ended.then(({ err }) => Promise.reject(new Error(`the gateway ended: ${err}`)));
  const found = until(() => /^HTTP on (.+)$/m.exec(running.out()), { within: 20_000, what: "the gateway" });
  const [, address] = await Promise.race([found, ended]);
  ended.catch(() => undefined);
  return address as string;
}

function writeAccounts(name: string): { readonly path: string; readonly credential: string } {
  const folder = join(sandbox.folder, name);
  mkdirSync(folder);
  const { credential, hash } = createCredential();
  const path = join(folder, "accounts.json");
  const account = { name: "ana", hashes: [hash], rules: [{ prefix: "", rights: ["acquire", "inspect"] }] };
  writeFileSync(path, JSON.stringify({ version: 1, accounts: [account] }), { mode: 0o600 });
  return { path, credential };
}

test.concurrent("locks of a store over HTTP, and on the command line, by the same references", async () => {
  const store = `sqlite:${join(sandbox.folder, "locks.db")}`;
  const gateway = sandbox.start(["gateway", "--url", store, "--http", "127.0.0.1:0"]);
  const url = await addressOf(gateway);
  const held = await post(url, "/v1/claims", { key: "k", label: "ana" });
  const env = { HOLDFAST_REFERENCE: held.json.reference, HOLDFAST_URL: store };
  for (const verb of ["check", "renew", "release"]) expect((await sandbox.run([verb], { env })).code).toBe(0);
  const acquired = await sandbox.run(["acquire", "k"], { env: { HOLDFAST_URL: store } });
  expect((await post(url, "/v1/claims/release", { reference: acquired.out.trim() })).status).toBe(200);
  // bundlers remove calls whose result is not used, and with them their errors
  for (const query of ["prefix=%zz", "prefix=%ff", "key=a%"])
    expect((await request(url, `/v1/locks?${query}`)).status).toBe(400);
  const again = await post(url, "/v1/claims", { key: "k" });
  const waiting = post(url, "/v1/claims", { key: "k" });
  await until(async () => (await request(url, "/v1/locks")).json.locks.length === 2, {
    within: 5_000,
    what: "the waiter",
  });
  gateway.process.kill("SIGTERM");
  expect((await waiting).status).toBe(202);
  const { code, err } = await gateway.ended;
  expect([code, err]).toEqual([0, "holdfast: stopping: received SIGTERM\n"]);
  const list = await sandbox.run(["ls", "--json"], { env: { HOLDFAST_URL: store } });
  expect(
    list.out
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line).tag),
  ).toEqual([again.json.tag]);
}, 40_000);

test.concurrent("the user's own lock server is the default, and is started", async () => {
  const gateway = sandbox.start(["gateway", "--http", "127.0.0.1:0"]);
  const url = await addressOf(gateway);
  expect((await post(url, "/v1/claims", { key: "own", wait: 0 })).status).toBe(201);
  gateway.process.kill("SIGINT");
  expect((await gateway.ended).code).toBe(0);
}, 40_000);

test.concurrent("credentials are read again on HUP; without one nothing is answered", async () => {
  const { path, credential } = writeAccounts("accounts");
  const store = `sqlite:${join(sandbox.folder, "accounts.db")}`;
  const gateway = sandbox.start(["gateway", "--http", "127.0.0.1:0", "--credentials", path], {
    env: { HOLDFAST_URL: store },
  });
  const url = await addressOf(gateway);
  expect((await post(url, "/v1/claims", { key: "k" })).status).toBe(401);
  const held = await post(url, "/v1/claims", { key: "k" }, { credential });
  expect(held.status).toBe(201);
  const next = createCredential();
  const account = { name: "ana", hashes: [next.hash], rules: [{ prefix: "", rights: ["acquire"] }] };
  writeFileSync(path, JSON.stringify({ version: 1, accounts: [account] }), { mode: 0o600 });
  gateway.process.kill("SIGHUP");
  await until(() => gateway.err().includes("reloaded: credentials of 1 accounts"), {
    within: 5_000,
    what: "the reload",
  });
  expect((await post(url, "/v1/claims/renew", held.json, { credential })).status).toBe(401);
  const { reference } = held.json;
  expect((await post(url, "/v1/claims/release", { reference }, { credential: next.credential })).status).toBe(200);
  gateway.process.kill("SIGTERM");
  expect((await gateway.ended).code).toBe(0);
}, 40_000);

test.concurrent("what is wrong is reported at once, each with its setting; --check opens nothing", async () => {
  const key = join(sandbox.folder, "short-key");
  writeFileSync(key, "short");
  const wrong = await sandbox.run(
    ["gateway", "--url", "nonsense://x", "--http", "0.0.0.0:7421", "--limit", "claims=many"],
    { env: { HOLDFAST_REFERENCE_KEY: key } },
  );
  expect([wrong.code, wrong.out]).toEqual([78, ""]);
  for (const line of [
    "holdfast: --url: url must begin with one of",
    "holdfast: --http: 0.0.0.0:7421 is reachable from other machines and does not use TLS and requires no credentials",
    'holdfast: --limit: "claims=many" is not of the form NAME=INTEGER',
    `holdfast: HOLDFAST_REFERENCE_KEY: ${key} must have at least 32 random bytes`,
  ])
    expect(wrong.err).toContain(line);
  const memory = await sandbox.run(["gateway", "--url", "memory:"]);
  expect([memory.code, memory.err]).toEqual([64, expect.stringContaining("--url: memory: would be empty")]);
  const checked = await sandbox.run(["gateway", "--url", "redis://127.0.0.1:1", "--check"]);
  expect(checked).toMatchObject({ code: 0, out: "configuration is valid\n" });
});

test.concurrent("a store that cannot be reached, and an address that is in use, end it with 69", async () => {
  const port = await freePort();
  const unreachable = await sandbox.run(["gateway", "--url", `redis://127.0.0.1:${port}`, "--http", "127.0.0.1:0"]);
  expect(unreachable.code).toBe(69);
  expect(unreachable.err).toContain(`127.0.0.1:${port}`);
  const store = `sqlite:${join(sandbox.folder, "used.db")}`;
  const first = sandbox.start(["gateway", "--url", store, "--http", "127.0.0.1:0"]);
  const address = (await addressOf(first)).replace("http://", "");
  const second = await sandbox.run(["gateway", "--url", store, "--http", address]);
  expect(second.code).toBe(69);
  expect(second.err).toContain(`cannot listen on ${address} for HTTP`);
  first.process.kill("SIGTERM");
  await first.ended;
}, 40_000);

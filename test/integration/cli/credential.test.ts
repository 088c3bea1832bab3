import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { cliSandbox } from "../../support/cli-sandbox.ts";

const sandbox = cliSandbox();

test("a new credential is printed once, with the account that has only its hash", async () => {
  const commandResult = await sandbox.run(["credential", "new", "--name", "ci", "--prefix", "ci/", "--max-hold", "1h"]);
  expect(commandResult).toMatchObject({ code: 0, signal: null });
  const [credential, line, ...rest] = commandResult.out.split("\n") as [string, string, ...string[]];
  expect(credential).toMatch(/^hf1_[a-z2-7]{52}$/);
  expect(rest).toEqual([""]);
  expect(JSON.parse(line)).toEqual({
    name: "ci",
    hashes: [expect.stringMatching(/^[0-9a-f]{64}$/)],
    rules: [{ prefix: "ci/", rights: ["acquire", "inspect"], maxHold: "1h" }],
  });
  expect(line + commandResult.err).not.toContain(credential);
});

test.each([
  [["--prefix", "team-a"], "holdfast: --prefix must end with a separator"],
  [["--rights", "acquire,fly"], "holdfast: --rights must be one of acquire, inspect, revoke, admin"],
  [["--name", "a b"], "holdfast: --name must be"],
  [["--max-hold", "soon"], 'holdfast: --max-hold must be a duration above 0, such as "10m"\n'],
])("%j is refused as an account name: no accounts file could have it", async (flags, message) => {
  const commandResult = await sandbox.run(["credential", "new", ...flags]);
  expect(commandResult).toMatchObject({ code: 64, out: "" });
  expect(commandResult.err).toContain(message);
});

test("a server admits the new credential, refuses another one with 77, and check reports what is wrong", async () => {
  const { credential, account } = JSON.parse(
    (await sandbox.run(["credential", "new", "--name", "ci", "--prefix", "ci/", "--rights", "acquire", "--json"])).out,
  ) as { credential: string; account: object };
  const file = join(sandbox.folder, "accounts.json");
  writeFileSync(file, JSON.stringify({ version: 1, accounts: [account] }), { mode: 0o600 });
  expect(await sandbox.run(["credential", "check", file])).toMatchObject({
    code: 0,
    out: `${file}: 1 account, 1 credential\n`,
  });
  const socket = join(sandbox.folder, "guarded");
  const state = join(sandbox.folder, "guarded-state");
  const server = sandbox.start([
    "serve",
    "--listen",
    `holdfast+unix:${socket}`,
    "--state",
    state,
    "--credentials",
    file,
  ]);
  await until(() => server.out().includes("listening"), { within: 20_000, what: "the server" });
  const url = `holdfast+unix:${socket}`;
  const run = (env: Record<string, string>, key = "ci/1") =>
    sandbox.run(["run", key, "--url", url, "--no-wait", "--", "sh", "-c", "env; true"], { env });
  const allowedRun = await run({ HOLDFAST_CREDENTIAL: credential });
  expect(allowedRun.code, allowedRun.err).toBe(0);
  // the child cannot use the credential
  expect(allowedRun.out).not.toContain(credential);
  const other = (await sandbox.run(["credential", "new"])).out.split("\n")[0] as string;
  expect(await run({ HOLDFAST_CREDENTIAL: other })).toMatchObject({ code: 77 });
  expect(await run({})).toMatchObject({ code: 77 });
  const deniedRun = await run({ HOLDFAST_CREDENTIAL: credential }, "other/1");
  expect(deniedRun).toMatchObject({ code: 77 });
  expect(deniedRun.err).toContain("may not acquire");
  // without the right to inspect, the state of a key is not revealed
  const showResult = await sandbox.run(["show", "ci/1", "--url", url], { env: { HOLDFAST_CREDENTIAL: credential } });
  expect(showResult).toMatchObject({ code: 77, out: "", err: expect.stringContaining("may not inspect these keys") });
  writeFileSync(file, "{}");
  expect(await sandbox.run(["credential", "check", file])).toMatchObject({ code: 64 });
  server.process.kill("SIGTERM");
  await server.ended;
  expect(server.err()).not.toContain(credential);
  expect(server.err()).not.toContain(other);
});

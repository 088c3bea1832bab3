import { existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { cliSandbox, isProcessAlive, PROGRAM } from "../../support/cli-sandbox.ts";

const sandbox = cliSandbox();

async function startServer(...args: string[]) {
  const server = sandbox.start(["serve", ...args]);
  await until(() => server.out().includes("\n"), { within: 20_000, what: "the server" });
  return server;
}

test("serve listens on every --listen, prints the addresses, and stops cleanly on SIGTERM", async () => {
  const socket = join(sandbox.folder, "s");
  const server = await startServer(
    "--listen",
    `holdfast+unix:${socket}`,
    "--listen",
    "holdfast://127.0.0.1:0",
    "--state",
    join(sandbox.folder, "s1"),
  );
  await until(() => server.out().split("\n").length === 3, { within: 20_000, what: "two addresses" });
  const [first, second] = server.out().split("\n");
  expect(first).toBe(`listening on holdfast+unix:${socket}`);
  expect(second).toMatch(/^listening on holdfast:\/\/127\.0\.0\.1:\d+$/);
  const urls = [`holdfast+unix:${socket}`, `holdfast://${second?.replace(/.*\/\//, "")}`];
  for (const url of urls) expect((await sandbox.run(["run", "k", "--url", url, "--", "true"])).code).toBe(0);
  expect((await sandbox.run(["run", "k", "--", "true"], { env: { HOLDFAST_URL: urls[0] } })).code).toBe(0);
  server.process.kill("SIGTERM");
  expect((await server.ended).code).toBe(0);
  expect(existsSync(socket)).toBe(false);
  // none of this needed the user's own server
  expect(sandbox.autostartedServerPids()).toEqual([]);
});

test("serve --json prints its addresses as one object", async () => {
  const server = await startServer("--listen", "holdfast://127.0.0.1:0", "--state", "none", "--json", "--quiet");
  expect(JSON.parse(server.out())).toMatchObject({
    listening: [expect.stringMatching(/^holdfast:/)],
    recoveryRemainingMs: expect.any(Number),
  });
  server.process.kill("SIGINT");
  expect((await server.ended).code).toBe(0);
});

test("without --listen it serves the user's own socket, and a second server reports that it is in use", async () => {
  const server = await startServer();
  expect(server.out()).toBe(`listening on holdfast+unix:${join(sandbox.directory, "socket")}\n`);
  expect((await sandbox.run(["run", "k", "--", "true"])).code).toBe(0);
  const { code, err } = await sandbox.run(["serve"]);
  expect(code).toBe(69);
  expect(err).toMatch(/your lock server is already running/);
  server.process.kill("SIGTERM");
  expect((await server.ended).code).toBe(0);
  expect(sandbox.autostartedServerPids()).toEqual([]);
});

test("a second server on one state directory or one address is refused", async () => {
  const state = join(sandbox.folder, "s2");
  const server = await startServer("--listen", "holdfast://127.0.0.1:0", "--state", state);
  const address = server.out().trim().replace("listening on ", "");
  const onState = await sandbox.run(["serve", "--listen", "holdfast://127.0.0.1:0", "--state", state]);
  expect(onState.code).toBe(69);
  const onAddress = await sandbox.run(["serve", "--listen", address, "--state", join(sandbox.folder, "s3")]);
  expect(onAddress.code).toBe(69);
  expect(onAddress.err).toMatch(/another program already listens on/);
  expect(isProcessAlive(server.pid)).toBe(true);
  server.process.kill("SIGTERM");
  await server.ended;
});

test("invalid addresses are wrong usage", async () => {
  for (const listen of [
    "7420",
    "holdfast+unix:relative",
    "http://x",
    "holdfast://host",
    "holdfasts://127.0.0.1:70000",
  ]) {
    const { code, err } = await sandbox.run(["serve", "--listen", listen, "--state", "none"]);
    expect(code).toBe(64);
    expect(err).toMatch(/^holdfast: --listen: /);
  }
});

test("--idle stops a server that has been idle", async () => {
  const server = await startServer("--listen", "holdfast://127.0.0.1:0", "--state", "none", "--idle", "200ms");
  const { code, err } = await server.ended;
  expect(code).toBe(0);
  expect(err).toMatch(/stopping: idle timeout reached/);
});

test.skipIf(!existsSync("/usr/bin/script"))(
  "a server in a terminal stops cleanly when the terminal closes",
  async () => {
    const state = join(sandbox.folder, "terminal");
    const command = `echo pid $$; exec ${process.execPath} ${PROGRAM} serve --listen holdfast://127.0.0.1:0 --state ${state}`;
    const terminal = sandbox.startProgram(["script", "-qec", command, "/dev/null"], { env: { SHELL: "/bin/sh" } });
    await until(() => terminal.out().includes("listening"), { within: 20_000, what: "the server" });
    const pid = Number(/pid (\d+)/.exec(terminal.out())?.[1]);
    terminal.process.kill("SIGKILL");
    await until(() => !isProcessAlive(pid), { within: 10_000, what: "the server's end" });
    expect(readFileSync(join(state, "state"), "utf8")).toContain('"clean":{');
  },
);

test("serve ends with 74 if its state could not be saved, and with 69 if the lock of its state was taken over", async () => {
  const state = join(sandbox.folder, "spoiled");
  const args = ["--listen", `holdfast+unix:${join(sandbox.folder, "spoiled.socket")}`, "--state", state];
  const full = await startServer(...args);
  // a directory in its place: even root cannot replace the file
  mkdirSync(join(state, "state.new"));
  full.process.kill("SIGTERM");
  expect((await full.ended).code).toBe(74);
  expect(full.err()).toMatch(/the state could not be saved: the next start will begin with a recovery/);
  rmSync(join(state, "state.new"), { recursive: true });
  const secondServer = await startServer(...args);
  rmSync(join(state, "lock"));
  expect((await secondServer.ended).code).toBe(69);
  expect(secondServer.err()).toMatch(/the server is ending: .*lock was removed or replaced/);
});

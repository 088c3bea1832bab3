// A requested wait includes the connection to the server: to one that is not running yet, or is restarting.

import { createServer } from "node:net";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { freePort } from "../../../src/torture/processes/free-port.ts";
import type { RunningCommand } from "../../support/cli-sandbox.ts";
import { cliSandbox, readServerPids } from "../../support/cli-sandbox.ts";
import { Relay } from "../../support/relay.ts";

// most of their time these tests wait: they run side by side, each with servers of its own
vi.setConfig({ maxConcurrency: 5 });

const sandbox = cliSandbox();
let serverCount = 0;

async function startServer(listen: string, ...args: readonly string[]): Promise<RunningCommand> {
  const state = join(sandbox.folder, `state-${listen.replace(/\W/g, "-")}`);
  const command = sandbox.start(["serve", "--listen", listen, "--state", state, "--quiet", ...args]);
  await until(() => command.out().includes("listening"), { within: 20_000, what: "the server" });
  return command;
}

/** How a run reaches a server. */
type Reach = {
  readonly name: string;
  readonly pid: number;
  start(...args: readonly string[]): RunningCommand;
  stop(): Promise<void>;
};

async function startReachableServer(kind: string): Promise<Reach> {
  if (kind === "on demand") {
    const directory = join(sandbox.folder, `on-demand-${++serverCount}`);
    const start = (...args: readonly string[]): RunningCommand =>
      sandbox.start(["run", ...args], { env: { HOLDFAST_DIR: directory } });
    expect((await start("k", "--", "true").ended).code).toBe(0);
    const [pid] = readServerPids(join(directory, "server.log")) as [number];
    return { name: "your lock server", pid, start, stop: async () => void process.kill(pid, "SIGTERM") };
  }
  const listen =
    kind === "unix"
      ? `holdfast+unix:${join(sandbox.folder, `reachable-${++serverCount}`)}`
      : `holdfast://127.0.0.1:${await freePort()}`;
  const url = listen;
  const server = await startServer(listen);
  return {
    name: url,
    pid: server.pid,
    start: (...args) => sandbox.start(["run", "--url", url, ...args]),
    stop: () => stopServer(server),
  };
}

async function stopServer(command: RunningCommand, signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
  command.process.kill(signal);
  await command.ended;
}

test.concurrent.each(["unix", "tcp"])(
  "%s: run and acquire with --wait wait for a server that is not running yet, and say so",
  async (kind) => {
    const listen =
      kind === "unix" ? `holdfast+unix:${join(sandbox.folder, "late")}` : `holdfast://127.0.0.1:${await freePort()}`;
    const url = listen;
    const waits = [
      sandbox.start(["run", "k", "--wait", "50s", "--url", url, "--", "echo", "ran"]),
      sandbox.start(["acquire", "j", "--wait", "50s", "--url", url]),
    ];
    for (const command of waits) {
      await until(() => command.err() !== "", { within: 20_000, what: "what it says of it" });
      expect(command.err()).toMatch(
        /^holdfast: \S+ (refused the connection|does not exist: .*): trying again for up to \d+ s\n$/,
      );
    }
    const server = await startServer(listen);
    const [runResult, acquired] = await Promise.all(waits.map(({ ended }) => ended));
    expect(runResult).toMatchObject({ code: 0, out: "ran\n" });
    expect(acquired?.code).toBe(0);
    await stopServer(server);
  },
);

test.concurrent("without --wait or with --no-wait no command waits for a server; and a wait is measured from its start", async () => {
  const url = `holdfast://127.0.0.1:${await freePort()}`;
  for (const flags of [[], ["--no-wait"], ["--wait", "0"]]) {
    const { code, err } = await sandbox.run(["run", "k", ...flags, "--url", url, "--", "true"]);
    expect([code, err]).toEqual([69, `holdfast: ${url} refused the connection; nothing was run\n`]);
  }
  const startedAt = performance.now();
  const result = await sandbox.run(["run", "k", "--wait", "2s", "--url", url, "--", "true"]);
  expect(performance.now() - startedAt).toBeGreaterThan(1_990);
  expect(result.code).toBe(69);
  expect(result.err).toMatch(/: waited 2 s: \S+ refused the connection; nothing was run\n$/);
  // a wrong address is reported at once
  const wrongHost = await sandbox.run([
    "run",
    "k",
    "--wait",
    "50s",
    "--url",
    "holdfast://nobody.invalid:1",
    "--",
    "true",
  ]);
  expect(wrongHost.code).toBe(69);
});

test.concurrent("a server that accepts and never answers is given up when the wait is over, and a signal ends the wait at once", async () => {
  const silentServer = createServer(() => undefined);
  await new Promise<void>((resolve) => {
    silentServer.listen(0, "127.0.0.1", resolve);
  });
  const url = `holdfast://127.0.0.1:${(silentServer.address() as { readonly port: number }).port}`;
  const result = await sandbox.run(["run", "k", "--wait", "1s", "--url", url, "--", "true"]);
  expect(result).toMatchObject({ code: 69 });
  expect(result.err).toBe(`holdfast: waited 1 s: ${url} did not answer; nothing was run\n`);
  // other stores have a time of their own for one attempt
  const others = ["redis://127.0.0.1", "postgres://127.0.0.1", "mysql://127.0.0.1", "zookeeper://127.0.0.1"];
  const { port } = silentServer.address() as { readonly port: number };
  const startedAt = performance.now();
  const ends = others.map(async (other) => {
    const { code, err } = await sandbox.run(["run", "k", "--wait", "7s", "--url", `${other}:${port}`, "--", "true"]);
    expect([code, err]).toEqual([
      69,
      expect.stringMatching(/trying again[\s\S]*: waited 7 s: [\s\S]*; nothing was run\n$/),
    ]);
    expect(performance.now() - startedAt).toBeGreaterThan(6_990);
  });
  await Promise.all(ends);
  silentServer.close();
  const closedUrl = `holdfast://127.0.0.1:${await freePort()}`;
  for (const command of [
    ["run", "k", "--wait", "50s", "--url", closedUrl, "--", "true"],
    ["acquire", "k", "--wait", "50s", "--url", closedUrl],
  ]) {
    const waits = sandbox.start(command);
    await until(() => waits.err() !== "", { within: 20_000, what: "it to wait" });
    waits.process.kill("SIGTERM");
    expect(await waits.ended).toMatchObject({ signal: "SIGTERM" });
  }
});

test.concurrent.each(["SIGTERM", "SIGKILL"] as const)(
  "a wait survives a restart of its server (%s), in the queue and while connecting",
  async (signal) => {
    const listen = `holdfast+unix:${join(sandbox.folder, `again-${signal}`)}`;
    const url = listen;
    const first = await startServer(listen);
    const holder = sandbox.start(["run", "k", "--url", url, "--", "sh", "-c", "echo held; exec sleep 60"]);
    await until(() => holder.out() !== "", { within: 20_000, what: "the holder" });
    const waitingRun = sandbox.start(["run", "k", "--wait", "50s", "--url", url, "--", "echo", "in line"]);
    await until(() => waitingRun.err() !== "", { within: 20_000, what: "it to wait in line" });
    await stopServer(first, signal);
    const earlyRun = sandbox.start(["run", "j", "--wait", "50s", "--url", url, "--", "echo", "early"]);
    await until(() => earlyRun.err() !== "", { within: 20_000, what: "it to wait for the server" });
    const second = await startServer(listen);
    expect(await earlyRun.ended).toMatchObject({ code: 0, out: "early\n" });
    expect(waitingRun.out()).toBe("");
    holder.process.kill("SIGTERM");
    expect(await waitingRun.ended).toMatchObject({ code: 0, out: "in line\n" });
    await holder.ended;
    await stopServer(second);
  },
);

test.concurrent("a command waits for a full server too; without --wait it reports which limit is reached", async () => {
  const listen = `holdfast+unix:${join(sandbox.folder, "full")}`;
  const url = listen;
  const server = await startServer(listen, "--limit", "connections=2");
  // a run has its own connection and the keep-session connection that its command inherits
  const holdingRun = sandbox.start(["run", "k", "--url", url, "--", "sh", "-c", "echo held; exec sleep 60"]);
  await until(() => holdingRun.out() !== "", { within: 20_000, what: "the run inside" });
  const { err } = await sandbox.run(["run", "j", "--url", url, "--", "true"]);
  expect(err).toContain("at most 2 connections");
  const waits = sandbox.start(["run", "j", "--wait", "50s", "--url", url, "--", "echo", "in"]);
  await until(() => waits.err().includes("at most 2 connections"), { within: 20_000, what: "it to wait for room" });
  holdingRun.process.kill("SIGTERM");
  expect(await waits.ended).toMatchObject({ code: 0, out: "in\n" });
  await holdingRun.ended;
  await stopServer(server);
});

describe.concurrent.each(["unix", "tcp", "on demand"])("%s: a frozen server", (kind) => {
  test("run waits for it before it is connected, with a limit and without one; a shorter wait ends with the cause", async () => {
    const server = await startReachableServer(kind);
    process.kill(server.pid, "SIGSTOP");
    const startedAt = performance.now();
    const short = server.start("k", "--wait", "2s", "--", "true");
    const waits = [["--wait", "50s"], []].map((limit) => server.start("k", ...limit, "--", "echo", "ran"));
    expect(await short.ended).toMatchObject({
      code: 69,
      err: `holdfast: waited 2 s: ${server.name} did not answer; nothing was run\n`,
    });
    expect(performance.now() - startedAt).toBeGreaterThan(1_990);
    // the first attempt is over
    for (const wait of waits)
      await until(() => wait.err().includes("did not answer: trying again"), {
        within: 20_000,
        what: "another attempt",
      });
    process.kill(server.pid, "SIGCONT");
    for (const wait of waits) expect(await wait.ended).toMatchObject({ code: 0, out: "ran\n" });
    await server.stop();
  });

  test("run waits for it in the queue as well; at the end of the wait it says that the server does not answer", async () => {
    const server = await startReachableServer(kind);
    const holder = server.start("k", "--", "sh", "-c", "echo held; exec sleep 60");
    await until(() => holder.out() !== "", { within: 20_000, what: "the holder" });
    const waits = ["6s", "50s"].map((wait) => server.start("k", "--wait", wait, "--", "echo", "ran"));
    const startedAt = performance.now();
    for (const wait of waits) await until(() => wait.err() !== "", { within: 20_000, what: "it to wait in line" });
    process.kill(server.pid, "SIGSTOP");
    const [short, long] = waits as [RunningCommand, RunningCommand];
    const { code, err } = await short.ended;
    expect(code).toBe(69);
    expect(err).toContain(`holdfast: waited 6 s for "k": ${server.name} did not answer; nothing was run\n`);
    expect(performance.now() - startedAt).toBeLessThan(12_000);
    process.kill(server.pid, "SIGCONT");
    holder.process.kill("SIGTERM");
    expect(await long.ended).toMatchObject({ code: 0, out: "ran\n" });
    await holder.ended;
    await server.stop();
  });
});

test.concurrent.each(["unix", "tcp"])(
  "%s: run waits for a relay that accepts and closes until it reaches its server",
  async (kind) => {
    const path = join(sandbox.folder, `relay-${kind}`);
    const port = await freePort();
    const relay = await Relay.listen(kind === "unix" ? { path } : { port, host: "127.0.0.1" });
    const url = kind === "unix" ? `holdfast+unix:${path}` : `holdfast://127.0.0.1:${port}`;
    const once = await sandbox.run(["run", "k", "--no-wait", "--url", url, "--", "true"]);
    expect(once).toMatchObject({ code: 69, err: `holdfast: ${url} closed the connection; nothing was run\n` });
    const short = await sandbox.run(["run", "k", "--wait", "1s", "--url", url, "--", "true"]);
    expect(short).toMatchObject({
      code: 69,
      err: `holdfast: waited 1 s: ${url} closed the connection; nothing was run\n`,
    });
    const waits = [["--wait", "50s"], []].map((limit) =>
      sandbox.start(["run", "k", ...limit, "--url", url, "--", "echo", "ran"]),
    );
    for (const wait of waits)
      await until(() => wait.err().includes("closed the connection: trying again"), {
        within: 20_000,
        what: "another attempt",
      });
    const serverPath = join(sandbox.folder, `behind-${kind}`);
    const server = await startServer(`holdfast+unix:${serverPath}`);
    relay.forwardTo({ path: serverPath });
    for (const wait of waits) expect(await wait.ended).toMatchObject({ code: 0, out: "ran\n" });
    relay.close();
    await stopServer(server);
  },
);

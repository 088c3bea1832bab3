// --driver: the store of examples/driver, and drivers of other shapes, with the commands that use a store.

import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { builtFile } from "../../support/built-file.ts";
import { cliSandbox, PROGRAM } from "../../support/cli-sandbox.ts";
import { post, request } from "../../support/http-fixture.ts";

const sandbox = cliSandbox();
const holdfast = `${process.execPath} ${PROGRAM}`;

/** A folder with the store of the example, which keeps its locks beside itself. */
function createProject(name: string) {
  const cwd = join(sandbox.folder, name);
  mkdirSync(cwd);
  copyFileSync("examples/driver/file-store.mjs", join(cwd, "locks.mjs"));
  const run = (args: readonly string[], env = {}) => sandbox.run([...args, "--driver", "./locks.mjs"], { cwd, env });
  /** Of `run`, whose own flags end at "--". */
  const withDriver = (args: readonly string[]) => [args[0] as string, "--driver", "./locks.mjs", ...args.slice(1)];
  return {
    cwd,
    run,
    runUnder: (args: readonly string[], env = {}) => sandbox.run(withDriver(args), { cwd, env }),
    startUnder: (args: readonly string[]) => sandbox.start(withDriver(args), { cwd }),
    waitForList: (lines: RegExp) =>
      until(async () => lines.test((await run(["ls"])).out), { within: 30_000, what: `${lines} in the list` }),
  };
}

/** A folder with a module of this text. */
function createModule(name: string, text: string) {
  const cwd = join(sandbox.folder, name);
  mkdirSync(cwd);
  writeFileSync(join(cwd, "own.mjs"), text);
  return (args: readonly string[]) => sandbox.run([...args, "--driver", "./own.mjs"], { cwd });
}

test.concurrent("two runs exclude each other; the list and the waiter name the holder", async () => {
  const project = createProject("exclusion");
  const holder = project.startUnder([
    "run",
    "job",
    "--label",
    "first",
    "--",
    "sh",
    "-c",
    "echo $HOLDFAST_TOKEN; sleep 60",
  ]);
  await project.waitForList(/^job +held .* first$/m);
  expect(await project.runUnder(["run", "job", "--no-wait", "--", "true"])).toMatchObject({ code: 124 });
  const waiter = project.startUnder(["run", "job", "--label", "second", "--", "sh", "-c", "echo $HOLDFAST_TOKEN"]);
  await until(() => waiter.err().includes('waiting for "job": held by first'), { within: 30_000, what: "the message" });
  await project.waitForList(/^job +waiting .* second$/m);
  expect(waiter.out()).toBe("");
  holder.process.kill("SIGTERM");
  const [first, second] = [await holder.ended, await waiter.ended];
  expect([first.code, second.code]).toEqual([143, 0]);
  expect(Number(second.out)).toBeGreaterThan(Number(first.out));
  expect((await project.run(["ls"])).out).toBe("");
});

test.concurrent("INT ends a wait, and then the holder: neither leaves anything", async () => {
  const project = createProject("interrupted");
  const holder = project.startUnder(["run", "job", "--", "sleep", "60"]);
  await project.waitForList(/^job +held/m);
  const waiter = project.startUnder(["run", "job", "--", "echo", "ran"]);
  await project.waitForList(/^job +waiting/m);
  waiter.process.kill("SIGINT");
  expect(await waiter.ended).toMatchObject({ signal: "SIGINT", out: "" });
  expect((await project.run(["ls"])).out).not.toContain("waiting");
  holder.process.kill("SIGINT");
  expect(await holder.ended).toMatchObject({ code: 130 });
  expect((await project.run(["ls"])).out).toBe("");
});

test.concurrent("a nested run uses the same driver from any directory, whatever url the environment had", async () => {
  const project = createProject("nested");
  const nested = `${holdfast} run job -- sh -c 'echo $HOLDFAST_TOKEN'; ${holdfast} run other -- ${holdfast} ls`;
  const script = `echo $HOLDFAST_TOKEN; echo $HOLDFAST_DRIVER \${HOLDFAST_URL-none}; cd /; ${nested}`;
  const result = await project.runUnder(["run", "job", "--", "sh", "-c", script], {
    HOLDFAST_URL: "redis://127.0.0.1:1",
  });
  const [token, store, joined, , ...list] = result.out.trim().split("\n");
  expect({ code: result.code, err: result.err }).toEqual({ code: 0, err: "" });
  expect(store).toBe(`${join(project.cwd, "locks.mjs")} none`);
  expect(joined).toBe(token);
  expect(list.map((line) => line.split(" ")[0])).toEqual(["job", "other"]);
});

test.concurrent("a run with --url inside one with --driver uses the url", async () => {
  const project = createProject("other-store");
  const inner = `${holdfast} run job --no-wait --url memory: -- sh -c 'echo $HOLDFAST_URL \${HOLDFAST_DRIVER-none}'`;
  const result = await project.runUnder(["run", "job", "--", "sh", "-c", inner]);
  expect(result).toMatchObject({ code: 0, out: "memory: none\n" });
});

test.concurrent("a reference passes from command to command", async () => {
  const project = createProject("references");
  const acquired = JSON.parse((await project.run(["acquire", "step", "--ttl", "1m", "--json"])).out);
  const env = { HOLDFAST_REFERENCE: acquired.reference as string };
  for (const command of ["check", "renew"]) expect((await project.run([command], env)).code).toBe(0);
  expect((await project.run(["release"], env)).code).toBe(0);
  expect((await project.run(["ls"])).out).toBe("");
});

test.concurrent("the views show the locks of a driver, and revoke takes one from its holder", async () => {
  const project = createProject("views");
  const acquired = JSON.parse((await project.run(["acquire", "step", "--ttl", "1m", "--json"])).out);
  expect((await project.run(["show", "step"])).out).toContain("held");
  expect((await project.run(["top", "--once"])).out).toContain("the driver ./locks.mjs");
  expect((await project.run(["revoke", "step", "--token", acquired.token as string, "--now"])).code).toBe(0);
  expect(await project.run(["check"], { HOLDFAST_REFERENCE: acquired.reference as string })).toMatchObject({
    code: 123,
  });
  expect(await project.run(["watch"])).toMatchObject({
    code: 64,
    err: "holdfast: watch needs a Holdfast server, and the driver ./locks.mjs is not one\n",
  });
});

test.concurrent("doctor has the checks of the driver, and measures it", async () => {
  const { code, out } = await createProject("doctor").run(["doctor"]);
  expect(code).toBe(0);
  expect(out).toMatch(/^ok {4}reachable +the driver \.\/locks\.mjs, in /m);
  expect(out).toMatch(/^ok {4}documents +16 documents/m);
  expect(out).toMatch(/^\S+ +latency +acquire and release take /m);
});

test.concurrent("a gateway serves the locks of a driver, and a dashboard diagnoses the one that it has opened", async () => {
  const project = createProject("gateway");
  const gateway = project.startUnder(["gateway", "--http", "127.0.0.1:0"]);
  const address = await until(() => /^HTTP on (.+)$/m.exec(gateway.out())?.[1], {
    within: 30_000,
    what: "the gateway",
  });
  const { json } = await post(String(address), "/v1/claims", { key: "k", label: "over HTTP" });
  expect((await project.run(["ls"])).out).toMatch(/^k +held .* over HTTP/m);
  expect((await project.run(["release"], { HOLDFAST_REFERENCE: json.reference })).code).toBe(0);
  gateway.process.kill("SIGTERM");
  expect(await gateway.ended).toMatchObject({ code: 0 });

  const dashboard = project.startUnder(["dashboard", "--http", "127.0.0.1:0", "--json"]);
  await until(() => dashboard.out().endsWith("\n"), { within: 30_000, what: "the link" });
  const { http, link } = JSON.parse(dashboard.out()) as { http: string; link: string };
  const session = await post(http, "/ui/session", { start: link.split("=")[1] }, { headers: { origin: http } });
  const cookie = String(session.headers["set-cookie"]).replace(/;.*$/, "");
  const headers = { cookie, "holdfast-ui": session.json.secret as string };
  for (let times = 0; times < 2; times++) {
    const { checks } = (await request(http, "/ui/api/store", { headers })).json;
    expect(checks).toContainEqual({
      status: "ok",
      name: "documents",
      message: expect.stringContaining("16 documents"),
    });
  }
  // the driver is still open
  expect((await request(http, "/ui/api/claims?prefix=", { headers })).status).toBe(200);
  dashboard.process.kill("SIGTERM");
  expect(await dashboard.ended).toMatchObject({ code: 0 });
});

test.concurrent("a gateway reports what is wrong with a module as any other setting", async () => {
  const run = createModule("broken-gateway", "export const driver = 7");
  const cases = [
    [["gateway"], "holdfast: --driver: ./own.mjs has no default export, only driver\n"],
    [["gateway", "--url", "redis://a"], "holdfast: --driver: cannot be combined with --url: each names the store\n"],
  ] as const;
  for (const [args, message] of cases) {
    const { code, err } = await run(args);
    expect([code, err.includes(message)], err).toEqual([64, true]);
  }
  const env = { HOLDFAST_DRIVER: "./missing.mjs" };
  const { code, err } = await sandbox.run(["gateway"], { env });
  expect([code, err]).toEqual([78, "holdfast: HOLDFAST_DRIVER: ./missing.mjs does not exist\n"]);
  // a flag overrides a variable
  expect(await sandbox.run(["gateway", "--check", "--url", "sqlite:x.db"], { env })).toMatchObject({ code: 0 });
});

test.concurrent("a module without a driver is wrong usage, in one sentence, and nothing is run", async () => {
  const run = createModule("broken", `throw new Error("no config")`);
  const problem = "--driver: ./own.mjs cannot be loaded: no config";
  expect(await run(["ls"])).toMatchObject({ code: 64, err: `holdfast: ${problem}\n` });
  expect(await run(["acquire", "k"])).toMatchObject({ code: 64, err: `holdfast: ${problem}; nothing was changed\n` });
  const { code, err } = await run(["acquire", "k", "--json"]);
  expect([code, JSON.parse(err).error]).toEqual([64, "usage"]);
  const args = ["run", "k", "--driver", "./none.mjs", "--", "true"];
  const message = "holdfast: --driver: ./none.mjs does not exist; nothing was run\n";
  expect(await sandbox.run(args)).toMatchObject({ code: 64, err: message });
  const both = await sandbox.run(["ls"], { env: { HOLDFAST_DRIVER: "a", HOLDFAST_URL: "b" } });
  expect([both.code, both.err.includes("HOLDFAST_DRIVER and HOLDFAST_URL are both set")]).toEqual([64, true]);
});

test.concurrent("doctor reports a module without a driver as a store that cannot be reached", async () => {
  const { code, out } = await createModule("undiagnosed", "")(["doctor"]);
  expect([code, out]).toEqual([64, "FAIL  reachable   --driver: ./own.mjs has no default export\n"]);
});

const EMPTY_STORE = `name: "own", read: async () => null, write: async () => "conflict"`;

test.concurrent("a store that cannot be opened is unreachable, also for want of a file", async () => {
  const fails = (error: string) => `export default { ${EMPTY_STORE}, open: async () => { throw ${error}; } }`;
  const refused = await createModule(
    "refused",
    fails(`Object.assign(new Error("x"), { code: "ECONNREFUSED" })`),
  )(["ls"]);
  expect(refused).toMatchObject({ code: 69, err: "holdfast: the driver ./own.mjs refused the connection\n" });
  const reading = `import { readFileSync } from "node:fs"; export default { ${EMPTY_STORE}, open: async () => void readFileSync("/no/file") }`;
  const missing = await createModule("no-file", reading)(["ls"]);
  expect(missing.code).toBe(69);
  expect(missing.err).toContain(
    "the driver ./own.mjs cannot be used: ENOENT: no such file or directory, open '/no/file'",
  );
});

test.concurrent("neither an open connection nor a close() that fails or never ends delays or changes the end", async () => {
  const memory = `import { memory } from ${JSON.stringify(builtFile("dist/drivers/memory.js"))};`;
  const withClose = (close: string) =>
    `${memory} setInterval(() => undefined, 1_000); export default () => Object.assign(memory(), { close: ${close} });`;
  for (const [name, close] of [
    ["fails", `async () => { throw new Error("closed before"); }`],
    ["hangs", "() => new Promise(() => undefined)"],
  ] as const) {
    const run = createModule(name, withClose(close));
    expect(await run(["ls"])).toMatchObject({ code: 0, out: "", err: "" });
    const args = ["run", "k", "--driver", join(sandbox.folder, name, "own.mjs"), "--", "sh", "-c", "exit 7"];
    expect(await sandbox.run(args)).toMatchObject({ code: 7, err: "" });
  }
  const gateway = sandbox.start([
    "gateway",
    "--http",
    "127.0.0.1:0",
    "--driver",
    join(sandbox.folder, "fails", "own.mjs"),
  ]);
  await until(() => gateway.out().startsWith("HTTP on"), { within: 30_000, what: "the gateway" });
  gateway.process.kill("SIGTERM");
  const { code, err } = await gateway.ended;
  expect(code).toBe(0);
  expect(err.split("\n").slice(1)).toEqual(["holdfast: error: the store could not be closed: closed before", ""]);
});

test.concurrent("a driver whose locks end with its process is refused where the lock shall outlive it", async () => {
  const memory = `export { memory as default } from ${JSON.stringify(builtFile("dist/drivers/memory.js"))};`;
  const { code, err } = await createModule("memory", memory)(["acquire", "k"]);
  expect(code).toBe(64);
  expect(err).toContain("the driver ./own.mjs ends with `holdfast acquire`, and so would the lock");
});

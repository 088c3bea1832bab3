import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { ServeOptions } from "../../../src/server/server.ts";
import { checkOptions, serve } from "../../../src/server/server.ts";
import { until } from "../../../src/testing/until.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import {
  cleanUpAfterEach,
  createTemporaryDirectory,
  expectHeld,
  makeClaim,
  onCleanup,
  openClient,
  startServer,
} from "../../support/server-fixture.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

test("a server is ready unless it is recovering, stopping, or unable to write", async () => {
  const it = await startServer();
  expect(it.ready()).toEqual({ ok: true });
  await it.close();
  expect(it.ready()).toEqual({ ok: false, reason: "the server is stopping" });
  const newServer = await startServer({ state: "none" });
  expect(newServer.ready()).toMatchObject({
    ok: false,
    reason: expect.stringMatching(/^recovering after a restart; .* in at most \d+ s$/),
  });
});

test("a server is not ready after a failed write of its state, until a write succeeds", async () => {
  const it = await startServer();
  const { driver } = await openClient(it.addresses[0] as string);
  const state = join(it.dir, "state");
  // a directory in its place: even root cannot replace the file
  const blocked = join(state, "journal.new");
  const journal = join(state, "journal");
  rmSync(journal, { force: true });
  mkdirSync(journal);
  mkdirSync(blocked);
  for (let attempt = 0; attempt < 3; attempt++) {
    await expect(driver.claim(makeClaim("k", { ttlMs: 120_000 }))).rejects.toThrow();
  }
  expect(it.ready()).toMatchObject({ ok: false, reason: expect.stringMatching(/state directory is not writable/) });
  expectHeld(await driver.claim(makeClaim("short")));
  rmSync(blocked, { recursive: true });
  rmSync(journal, { recursive: true });
  writeFileSync(journal, "", { mode: 0o600 });
  expectHeld(await driver.claim(makeClaim("other", { ttlMs: 120_000 })));
  expect(it.ready()).toEqual({ ok: true });
  // however many writes failed, the log has one line for the failure and one for its end
  const stateLines = it.logged.filter((line) => line.startsWith("the state directory is"));
  expect(stateLines).toEqual([
    expect.stringMatching(/^the state directory is not writable: /),
    "the state directory is writable again",
  ]);
});

test("a server whose disk has room again becomes ready without a call that needs a write", async () => {
  const it = await startServer();
  const { driver } = await openClient(it.addresses[0] as string);
  const journal = join(it.dir, "state", "journal");
  // a directory in its place: even root cannot write it
  rmSync(journal);
  mkdirSync(join(journal, "in the way"), { recursive: true });
  await expect(driver.claim(makeClaim("k", { ttlMs: 120_000 }))).rejects.toThrow();
  expect(it.ready()).toMatchObject({ ok: false });
  rmSync(journal, { recursive: true });
  await until(() => it.ready().ok, { within: 10_000, what: "the server to be ready" });
});

test.runIf(process.platform === "linux")("a server whose disk hangs is not ready, until the disk answers", async () => {
  const clock = new FakeClock(0);
  const it = await startServer({ clock });
  const { driver } = await openClient(it.addresses[0] as string);
  const journal = join(it.dir, "state", "journal");
  rmSync(journal);
  // opening it for writing blocks until another process reads
  execFileSync("mkfifo", [journal]);
  const claim = driver.claim(makeClaim("k", { ttlMs: 120_000 })).catch(() => "refused");
  await until(async () => (await driver.list({ prefix: "k" }, { max: 1 })).items.length === 1, {
    within: 10_000,
    what: "the claim",
  });
  expect(it.ready()).toEqual({ ok: true });
  await clock.advance(5_000);
  expect(it.ready()).toMatchObject({
    ok: false,
    reason: expect.stringMatching(/a write to the state directory has stalled/),
  });
  const reader = await open(journal, "r");
  // nothing is durable in a pipe
  expect(await claim).toBe("refused");
  await reader.close();
  rmSync(journal);
  await clock.advance(2_000);
  await until(() => it.ready().ok, { within: 10_000, what: "the server to be ready" });
});

test("all errors in the options are thrown at once, each as a problem of its own", async () => {
  const options: ServeOptions = { listen: ["holdfast://0.0.0.0:0", "x"], http: "y", limits: { claims: 0 }, state: "" };
  const failed = await serve(options).catch((error: unknown) => error);
  expect(failed).toBeInstanceOf(TypeError);
  const { problems } = failed as { problems: { option: string }[] };
  expect(problems.map(({ option }) => option).sort()).toEqual(["http", "limits", "listen", "listen", "state"]);
  const files: ServeOptions = {
    listen: "holdfasts://127.0.0.1:0",
    tls: { cert: "/none", key: "/none" },
    state: "none",
  };
  await expect(serve(files)).rejects.not.toBeInstanceOf(TypeError);
  await expect(serve(files)).rejects.toThrow("tls: the certificate /none cannot be read (ENOENT)");
});

test.each<[string, string, unknown]>([
  ["acess", "unknown option of serve", { file: "accounts.json" }],
  ["access", "it must be { file }", "hf1_secret"],
  ["access", "it must be { file }", { fil: "accounts.json" }],
  ["access", "it must be { file }", null],
  ["tls", "it must be an object, not 5", 5],
  ["httpNames", 'it must be an array of strings, not "locks.example"', "locks.example"],
  ["limits", "it must be an object, not 5", 5],
  ["insecure", 'it must be true or false, not "no"', "no"],
  ["clock", "it must be a clock, not an object", {}],
  ["log", 'it must be a function, not "debug"', "debug"],
])("the option %s: %s", async (option, message, value) => {
  const options = { listen: "holdfast://127.0.0.1:0", state: "none", [option]: value } as ServeOptions;
  const failed = await serve(options).then(
    (server) => server.close(),
    (error: unknown) => error,
  );
  expect(failed).toBeInstanceOf(TypeError);
  expect(failed).toMatchObject({
    message: `${option}: ${message}`,
    problems: [{ option, message, isEnvironmental: false }],
  });
});

test("options of a wrong type are refused with Holdfast's own TypeError", async () => {
  const noOptions = null as unknown as ServeOptions;
  for (const validate of [serve, checkOptions])
    await expect(validate(noOptions)).rejects.toThrow(new TypeError("options must be an object, not null"));
});

test("checkOptions() opens and creates nothing", async () => {
  const dir = createTemporaryDirectory();
  const options: ServeOptions = { listen: `holdfast+unix:${join(dir, "socket")}`, state: join(dir, "deep", "state") };
  expect(await checkOptions(options)).toEqual({ problems: [], warnings: [] });
  const server = await serve({ ...options, log: () => undefined });
  onCleanup(() => server.close());
  expect(await checkOptions(options)).toEqual({ problems: [], warnings: [] });
  chmodSync(join(dir, "deep", "state"), 0o770);
  expect((await checkOptions(options)).problems).toMatchObject([{ option: "state", isEnvironmental: true }]);
  chmodSync(join(dir, "deep", "state"), 0o700);
});

test("checkOptions() reports a socket that cannot be created at its path, as a start would", async () => {
  const dir = createTemporaryDirectory();
  const [file, deep] = [join(dir, "file"), join(dir, "deep", "socket")];
  writeFileSync(file, "kept");
  const listen = [`holdfast+unix:${file}`, `holdfast+unix:${deep}`, `holdfast+unix:${file}/below`];
  const { problems } = await checkOptions({ listen, state: "none" });
  expect(problems.map(({ message }) => message)).toEqual([
    `${file} is not a socket: move it away`,
    `cannot create a socket in ${join(dir, "deep")} (ENOENT)`,
    `cannot create a socket in ${file} (ENOTDIR)`,
  ]);
  expect(problems).toMatchObject(Array(3).fill({ option: "listen", isEnvironmental: true }));
  for (const address of listen) {
    const started = serve({ listen: address, state: "none", log: () => undefined });
    await expect(started).rejects.toThrow(/move it away|the directory of .* does not exist/);
  }
});

test("a name that no Host header can have is an error: every request with it would be refused", async () => {
  const options: ServeOptions = { listen: "holdfast://127.0.0.1:0", state: "none", http: "127.0.0.1:0" };
  const validNames = ["locks.example", "LOCKS", "under_score.", "10.0.0.1", "fd00::1"];
  expect((await checkOptions({ ...options, httpNames: validNames })).problems).toEqual([]);
  const invalidNames = [
    "https://locks.example",
    "locks.example:443",
    "*.example",
    "[fd00::1]",
    "",
    "a b",
    "locks.example/x",
  ];
  const { problems } = await checkOptions({ ...options, httpNames: invalidNames });
  expect(problems.map(({ option, message }) => [option, message.split(" is not ")[0]])).toEqual(
    invalidNames.map((name) => ["httpNames", JSON.stringify(name)]),
  );
});

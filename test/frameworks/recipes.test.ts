/** The program of each recipe runs as a user would run it: compiled together, each with a store of its own. */

import { readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { afterAll, beforeAll, expect, vi } from "vitest";
import { until } from "../../src/testing/until.ts";
import { PROGRAM } from "../support/cli-sandbox.ts";
import { loadInterop } from "../support/interop.ts";
import type { ProcessHarness, RunningProcess } from "../support/processes/process-harness.ts";
import { test } from "../support/processes/process-harness.ts";
import { startRedis } from "../support/stores/redis.ts";
import { compilePrograms, createProgramFolder } from "../support/typescript-programs.ts";

const SOURCES = "examples/recipes";

vi.setConfig({ maxConcurrency: 3, testTimeout: 60_000 });

let folder = "";
const programs = new Map<string, string>();

beforeAll(async () => {
  folder = createProgramFolder();
  const sources = readdirSync(SOURCES).filter((name) => name.endsWith(".ts"));
  const compiled = await compilePrograms(
    folder,
    "typescript7",
    sources.map((name) => join(SOURCES, name)),
    // for NestJS
    { experimentalDecorators: true, emitDecoratorMetadata: true },
  );
  for (const path of compiled) programs.set(basename(path, ".js"), path);
}, 60_000);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

type Env = Readonly<Record<string, string>>;

function start(harness: ProcessHarness, name: string, env: Env, args: readonly string[] = []): RunningProcess {
  return harness.startProgram([process.execPath, programs.get(name) as string, ...args], { env });
}

/** A file of SQLite of the test's own. */
function storeOf(harness: ProcessHarness): Env {
  return { HOLDFAST_URL: `sqlite:${harness.path("locks.db")}` };
}

/** Waits for the output of a program that must not fail meanwhile. */
function waitFor(running: RunningProcess, text: string, count = 1): Promise<unknown> {
  return until(
    () => {
      if (running.hasEnded() || running.err() !== "")
        throw new Error(`ended, or failed: ${running.out()}${running.err()}`);
      return running.out().split(text).length > count;
    },
    { within: 30_000, what: `${count} times ${text}` },
  );
}

/** Ends a program in an orderly way. */
async function terminate(running: RunningProcess): Promise<void> {
  running.process.kill("SIGTERM");
  expect([await running.ended, running.err()]).toEqual([{ code: 0, signal: null }, ""]);
}

test("every program is shown by a page", () => {
  const pages = readdirSync("docs/guide/recipes").map((name) => readFileSync(join("docs/guide/recipes", name), "utf8"));
  const shown = pages.flatMap((page) => [...page.matchAll(/^<!-- program (\S+) -->$/gm)].map(([, path]) => path));
  for (const name of readdirSync(SOURCES)) expect(shown).toContain(`${SOURCES}/${name}`);
});

test.concurrent.for(["cron", "node-cron", "nest-cron"])(
  "%s: two processes run and skip the same ticks",
  async (name, { harness }) => {
    // the package is a link: its import of @nestjs/schedule must find the one of the program
    const env = { ...storeOf(harness), NODE_OPTIONS: "--preserve-symlinks" };
    const processes = [start(harness, name, env), start(harness, name, env)];
    for (const running of processes) await waitFor(running, "Z");
    for (const running of processes) {
      if (name !== "nest-cron") await terminate(running);
      else {
        // NestJS sends the signal again when its hooks have run
        running.process.kill("SIGTERM");
        expect([await running.ended, running.err()]).toEqual([{ code: null, signal: "SIGTERM" }, ""]);
      }
    }
    const lines = processes.flatMap((running) => running.out().trimEnd().split("\n"));
    const ran = lines.filter((line) => line.startsWith("report for "));
    expect(ran.length).toBeGreaterThan(0);
    expect(new Set(ran).size).toBe(ran.length);
    for (const line of lines) expect(line).toMatch(/^(report for \S+Z|skipped \S+Z: (taken|not-elected))$/);
  },
);

/** Where a program that listens on a free port can be reached. */
function originOf(running: RunningProcess): string {
  const { port } = JSON.parse(/^\{.*\}$/m.exec(running.out())?.[0] ?? "{}") as { readonly port: number };
  return `http://127.0.0.1:${port}`;
}

const post = (running: RunningProcess, path: string): Promise<Response> =>
  fetch(`${originOf(running)}${path}`, { method: "POST", headers: { connection: "close" } });

test.concurrent("order-handler: a second request for an order gets 409 in another process, other orders do not", async ({
  harness,
}) => {
  const env = storeOf(harness);
  const [first, second] = [start(harness, "order-handler", env), start(harness, "order-handler", env)];
  await Promise.all([waitFor(first, '"port"'), waitFor(second, '"port"')]);
  const answers = await Promise.all([post(first, "/orders/42/pay"), post(second, "/orders/42/pay")]);
  expect(answers.map(({ status }) => status).sort()).toEqual([200, 409]);
  expect((await post(second, "/orders/43/pay")).status).toBe(200);
  expect((await post(second, "/orders/42/pay")).status).toBe(200);
  expect((await post(second, "/orders")).status).toBe(404);
  await Promise.all([terminate(first), terminate(second)]);
});

test.concurrent("shared-file: no increment of three processes is lost", async ({ harness }) => {
  const file = harness.path("counter.json");
  const processes = [1, 2, 3].map(() => start(harness, "shared-file", storeOf(harness), [file]));
  for (const running of processes)
    expect([await running.ended, running.err()]).toEqual([{ code: 0, signal: null }, ""]);
  expect(readFileSync(file, "utf8")).toBe('{"count":30}');
});

test.concurrent("batching: no entry is lost, although a batch begins inside the lock that it waits for", async ({
  harness,
}) => {
  const running = start(harness, "batching", storeOf(harness), [harness.path("journal.txt")]);
  expect([await running.ended, running.err()]).toEqual([{ code: 0, signal: null }, ""]);
  expect(running.out()).toBe("compacted, paid 41, paid 42, paid 43\n");
});

test.concurrent("migrations: of three instances one applies each", async ({ harness }) => {
  const args = [harness.path("applied.json")];
  const processes = [1, 2, 3].map(() => start(harness, "migrations", storeOf(harness), args));
  for (const running of processes)
    expect([await running.ended, running.err()]).toEqual([{ code: 0, signal: null }, ""]);
  const lines = processes.flatMap((running) => running.out().trimEnd().split("\n"));
  expect(lines.filter((line) => line.startsWith("applying")).sort()).toEqual([
    "applying 001-orders",
    "applying 002-invoices",
    "applying 003-index",
  ]);
  expect(lines.filter((line) => line === "up to date")).toHaveLength(3);
});

test.concurrent("deploy.sh: two deployments of one environment run one after the other", async ({ harness }) => {
  symlinkSync(PROGRAM, harness.path("holdfast"));
  const env = { ...storeOf(harness), PATH: `${harness.folder}:${process.env.PATH}` };
  const deploy = (): RunningProcess =>
    harness.startProgram(["sh", resolve(SOURCES, "deploy.sh"), "production"], { env });
  const processes = [deploy(), deploy()];
  for (const running of processes) expect(await running.ended).toEqual({ code: 0, signal: null });
  const tokens = processes.map((running) => /^deploying to production with token (\d+)$/m.exec(running.out())?.[1]);
  expect(new Set(tokens).size).toBe(2);
});

test.concurrent.for(["express", "fastify", "nest"])(
  "shutdown-%s: the running request ends under its lock, which is free afterwards",
  async (framework, { harness }) => {
    const env = storeOf(harness);
    const running = start(harness, `shutdown-${framework}`, env);
    await waitFor(running, '"port"');
    const answer = post(running, "/orders/42/pay");
    await waitFor(running, "paying");
    running.process.kill("SIGTERM");
    expect(await (await answer).json()).toEqual({ paid: "42" });
    expect([(await running.ended).code ?? 0, running.err()]).toEqual([0, ""]);
    expect(await harness.list(env.HOLDFAST_URL)).toEqual([]);
  },
);

test.concurrent("bullmq: the jobs of a customer run one after the other in two workers", async ({ harness }) => {
  const redis = await startRedis();
  const connection = { host: "127.0.0.1", port: redis.port };
  const { Queue } = loadInterop("bullmq", "frameworks");
  const queue = new Queue("charges", { connection });
  try {
    const env = { HOLDFAST_URL: `${redis.url}?silenceWarnings=appendonly`, REDIS_URL: redis.url };
    const workers = [start(harness, "bullmq", env), start(harness, "bullmq", env)];
    for (const worker of workers) await waitFor(worker, "ready");
    const done = (): number => workers.reduce((sum, worker) => sum + worker.out().split("charged ").length - 1, 0);
    await queue.addBulk(["a", "a", "a", "b"].map((customer) => ({ name: "charge", data: { customer } })));
    await until(() => done() === 4, { within: 20_000, what: "four jobs" });
    for (const worker of workers) {
      await terminate(worker);
      // within one worker the jobs of a customer never overlap
      const own = worker
        .out()
        .split("\n")
        .filter((line) => line.endsWith(" a"));
      for (const [index, line] of own.entries()) expect(line).toBe(index % 2 === 0 ? "charging a" : "charged a");
    }
  } finally {
    await queue.close();
    await redis.stop();
  }
});

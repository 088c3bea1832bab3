// The package under a real Jest, which has a loader of its own for CommonJS. Its fake timers, as Vitest has them, are in
// test/unit/testing/fake-timers.test.ts.

import { copyFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { readPackageEntries } from "../../scripts/check/package-entries.ts";
import { resolveInterop } from "../support/interop.ts";
import type { UserProject } from "../support/user-project.ts";
import { createUserProject } from "../support/user-project.ts";

const TIMEOUT_MS = 60_000;
const JEST = "test/interop/jest/node_modules";
const PASSED = /Tests: +\d+ passed, \d+ total/;

const COMMONJS_TEST = `
const { connect, createLocks, LockError } = require("holdfast");
const { memory, memoryStore } = require("holdfast/memory");
const { createTestLocks } = require("holdfast/testing");

test("a lock", async () => {
  const locks = await connect("memory:");
  expect(await locks.using("k", async ({ keys }) => keys)).toEqual(["k"]);
  await locks.close();
  const others = createLocks(memory({ store: memoryStore() }));
  expect(await others.using("k", async ({ keys }) => keys)).toEqual(["k"]);
  await others.close();
});

test("errors of all entries are of the same classes", async () => {
  const locks = createTestLocks();
  locks.busy("k");
  const refusal = await locks.acquire("k", { wait: 0 }).catch((error) => error);
  expect(refusal.constructor).toBe(require("holdfast").LockTimeoutError);
  await locks.close();
});

test("what is not installed is named", async () => {
  await expect(connect("postgres://u@127.0.0.1:1/d")).rejects.toThrow('need the package "pg" or "postgres"');
  await expect(connect("mysql://u@127.0.0.1:1/d")).rejects.toThrow('need the package "mysql2" or "mariadb"');
  await expect(connect("redis://127.0.0.1:1")).rejects.toThrow('need the package "ioredis"');
});

test.each(ENTRIES)("%s can be loaded", (entry) => void require(entry));
`;

const TYPESCRIPT_TEST = `
import { connect, type Lock } from "holdfast";
import { createTestLocks } from "holdfast/testing";

test("a lock", async () => {
  const locks = await connect("memory:");
  const keys: readonly string[] = await locks.using("k", async (lock: Lock) => lock.keys);
  expect(keys).toEqual(["k"]);
  await locks.close();
  await createTestLocks().close();
});
`;

function createJestProject(): UserProject {
  const project = createUserProject([`${JEST}/@types/jest`, "node_modules/@opentelemetry/api"]);
  onTestFinished(() => project[Symbol.dispose]());
  return project;
}

function runJest(project: UserProject, ...options: readonly string[]): Promise<string> {
  const program = join(resolveInterop("jest/package.json", "jest"), "../bin/jest.js");
  return project.run(...options, program, "--ci");
}

test("tests in CommonJS", { timeout: TIMEOUT_MS }, async () => {
  const project = createJestProject();
  // what has no file of CommonJS runs only as an ES module
  const entries = readPackageEntries()
    .filter(({ name, hasCommonJs }) => hasCommonJs && name.startsWith("."))
    .map(({ name }) => name.replace(".", "holdfast"));
  expect(entries).toHaveLength(22);
  project.write({
    "package.json": '{"jest":{"testMatch":["<rootDir>/*.test.js"]}}',
    "locks.test.js": COMMONJS_TEST.replace("ENTRIES", JSON.stringify(entries)),
  });
  expect(await runJest(project)).toMatch(PASSED);
});

test("tests in TypeScript, by ts-jest, with moduleResolution node10", { timeout: TIMEOUT_MS }, async () => {
  const project = createJestProject();
  const compilerOptions = { module: "commonjs", moduleResolution: "node10", target: "es2022", strict: true };
  const transform = { "^.+\\.ts$": resolve(JEST, "ts-jest") };
  project.write({
    "package.json": JSON.stringify({ jest: { testMatch: ["<rootDir>/*.test.ts"], transform } }),
    "tsconfig.json": JSON.stringify({ compilerOptions: { ...compilerOptions, types: ["jest"] } }),
    "locks.test.ts": TYPESCRIPT_TEST,
  });
  expect(await runJest(project)).toMatch(PASSED);
});

test("test locks in ES modules, with the fake timers of Jest", { timeout: TIMEOUT_MS }, async () => {
  const project = createJestProject();
  project.write({ "package.json": '{"jest":{"testMatch":["<rootDir>/*.spec.mjs"]}}' });
  copyFileSync("test/interop/jest/test-locks.spec.mjs", join(project.folder, "test-locks.spec.mjs"));
  expect(await runJest(project, "--experimental-vm-modules")).toMatch(PASSED);
});

/** connect("memory:") in a child: its locks exclude no other process, and it says so once. */

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { builtFile } from "../support/built-file.ts";
import { checkLeaksAfterEach } from "../support/leak-check.ts";

checkLeaksAfterEach();

const CHILD = `
  const { connect } = await import(${JSON.stringify(builtFile("dist/index.js"))});
  for (let time = 0; time < 2; time++) await (await connect("memory:")).close();
  process.disconnect?.();
`;
const IN_PROCESS = `await (async () => {${CHILD}})();`;
// as fork() starts a file
const IN_FORK = `
  import { spawn } from "node:child_process";
  const args = ["--input-type=module", "--eval", ${JSON.stringify(CHILD)}];
  spawn(process.execPath, args, { stdio: ["ignore", "inherit", "inherit", "ipc"] });
`;
const IN_THREAD = `
  import { Worker } from "node:worker_threads";
  new Worker("(async () => {" + ${JSON.stringify(CHILD)} + "})()", { eval: true });
`;

async function warningsOf(program: string, env: Readonly<Record<string, string>> = {}): Promise<string[]> {
  const { VITEST_WORKER_ID: _vitest, JEST_WORKER_ID: _jest, ...own } = process.env;
  const args = ["--input-type=module", "--eval", program];
  const { stderr } = await promisify(execFile)(process.execPath, args, { env: { ...own, ...env } });
  return stderr.split("\n").filter((line) => line.includes("HoldfastWarning"));
}

test.concurrent.each([
  ["a forked process", IN_FORK, "this is a child process"],
  ["a worker thread", IN_THREAD, "this is a worker thread"],
])("%s is warned once", async (_where, program, reason) => {
  const warnings = await warningsOf(program);
  expect(warnings).toHaveLength(1);
  expect(warnings[0]).toContain(reason);
});

test.concurrent.each([
  ["a process that has no parent of its program", IN_PROCESS, {}],
  ["a child of a test runner", IN_THREAD, { VITEST_WORKER_ID: "1" }],
])("%s is not warned", async (_where, program, env: Readonly<Record<string, string>>) => {
  expect(await warningsOf(program, env)).toEqual([]);
});

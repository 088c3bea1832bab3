/** A limit on open files that is too low for the command line: it says so, wherever it meets the limit. */

import { join } from "node:path";
import { expect, test } from "vitest";
import { cliSandbox, PROGRAM } from "../../support/cli-sandbox.ts";

const sandbox = cliSandbox();

/** With fewer Node itself does not start; with more the command runs. */
const LIMITS = [19, 20, 21, 22, 23, 24, 25, 26, 27, 28];
const MESSAGE = "holdfast: this process may not open more files: raise its limit (ulimit -n)";

async function runWithLimit(
  limit: number,
  args: readonly string[],
): Promise<{ readonly code: number | null; readonly err: string }> {
  const script = 'ulimit -n "$1"; shift; exec "$@"';
  const command = [
    "sh",
    "-c",
    script,
    "sh",
    String(limit),
    process.execPath,
    PROGRAM,
    "run",
    "k",
    ...args,
    "--",
    "true",
  ] as const;
  return sandbox.startProgram(command).ended;
}

test.each([
  ["a running server", []],
  ["a file of SQLite", ["--url", "sqlite"]],
])("%s: the message is plain and the code is that of a store that cannot be used", async (name, flags) => {
  if (name === "a running server") expect((await sandbox.run(["run", "k", "--", "true"])).code).toBe(0);
  const args = flags.map((flag) => (flag === "sqlite" ? `sqlite:${join(sandbox.folder, "locks.db")}` : flag));
  const results = await Promise.all(LIMITS.map(async (limit) => ({ limit, ...(await runWithLimit(limit, args)) })));
  const messages: string[] = [];
  for (const { limit, code, err } of results) {
    // a library of SQLite in Rust ends the process if it cannot open its own pipes
    if (code === null && err.includes("panicked")) continue;
    // 74: the record of the run; 77: SQLite's own error; 126: the command itself
    expect([0, 69, 74, 77, 126], `${limit}: ${err}`).toContain(code);
    expect(err).not.toMatch(/internal error|Cannot read/);
    messages.push(err);
  }
  expect(messages.some((message) => message.startsWith(MESSAGE))).toBe(true);
});

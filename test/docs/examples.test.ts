// Every example, and the code of README.md, runs as a user would run it, against a lock server of its own.

import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { basename, resolve } from "node:path";
import { describe, expect, test } from "vitest";
import { parsePage } from "../../scripts/check/markdown.ts";
import { until } from "../../src/testing/until.ts";
import { builtFile } from "../support/built-file.ts";
import type { CommandResult, RunningCommand } from "../support/cli-sandbox.ts";
import { cliSandbox } from "../support/cli-sandbox.ts";

const sandbox = cliSandbox();

/** The output of each example. Lines of one group may come in any order. */
const EXPECTED_OUTPUT: Readonly<Record<string, readonly (readonly string[])[]>> = {
  "fenced-register": [
    ["the second token is higher: true"],
    ["the late write was refused: LOCK_STALE"],
    ["the register says: second"],
    ["the first holder still held it: false, the second: true"],
  ],
  "paused-holder": [
    ["the next holder writes 50, without a token: accepted"],
    ["the next holder writes 50, with its token: accepted"],
    ["the stopped holder writes 70, without a token: accepted"],
    ["the stopped holder writes 70, with its token: refused (LOCK_STALE)"],
    ['what the stopped holder is told: lost the lock on "account": its lease ended before a renewal succeeded'],
    ["100 - 30 - 50 without tokens: 70, one withdrawal is lost"],
    ["with tokens: 50, the late one was refused and can be repeated"],
  ],
  "read-write": [
    ["one reads version 1", "two reads version 1", "three reads version 1"],
    ["writing, with 0 readers beside"],
    ["four reads version 2"],
    ["most readers at once: 3"],
  ],
  semaphore: [["large done", "a done", "b done", "c done", "d done", "e done"], ["most permits out at once: 4"]],
  "several-keys": [["ana 95, ben 105, eva 100"]],
  "detach-attach": [
    ["free meanwhile: false"],
    ["the same token in the second process: true"],
    ["released there: true"],
    ["attached once more: LOCK_LOST, released"],
  ],
};

test("every example has its output here", () => {
  const sources = readdirSync("examples").filter((name) => name.endsWith(".ts"));
  expect(sources.map((name) => basename(name, ".ts")).sort()).toEqual(Object.keys(EXPECTED_OUTPUT).sort());
});

describe("an example prints its documented output and ends", () => {
  test.each(Object.entries(EXPECTED_OUTPUT))("%s", async (name, groups) => {
    const result = await runExample(compiledPath(name));
    expect(result).toMatchObject({ code: 0, err: "" });
    const lines = result.out.trimEnd().split("\n");
    const grouped = groups.map((group) => lines.splice(0, group.length).sort());
    expect(grouped).toEqual(groups.map((group) => [...group].sort()));
    expect(lines).toEqual([]);
  });
});

test("the first code block of README.md runs unchanged", async () => {
  const block = parsePage({ path: "README.md", text: readFileSync("README.md", "utf8") }).blocks.find(
    ({ language }) => language === "ts",
  );
  // within the package, so that it resolves "holdfast" as for users
  const program = resolve("build/readme-example.mjs");
  writeFileSync(program, block?.code ?? "throw new Error('README.md has no ts block')");
  expect(await runExample(program)).toMatchObject({ code: 0, err: "" });
});

test("the program of the leader election page leads in one process at a time, and ends with SIGTERM", async () => {
  const path = "docs/guide/leader-election.md";
  const [block] = parsePage({ path, text: readFileSync(path, "utf8") }).blocks;
  const program = resolve("build/leader-example.mjs");
  writeFileSync(program, block?.code ?? "throw new Error('the page has no block')");
  const start = (): RunningCommand => sandbox.startProgram([process.execPath, program], { cwd: sandbox.folder });
  const leads = (command: RunningCommand): Promise<unknown> =>
    until(() => command.out().startsWith("leading with token "), { within: 10_000, what: "a leader" });
  const leader = start();
  await leads(leader);
  const next = start();
  await sandbox.waitForQueue("scheduler");
  expect(next.out()).toBe("");
  for (const command of [leader, next]) {
    await leads(command);
    command.process.kill("SIGTERM");
    const { code, out, err } = await command.ended;
    expect([code, err, out.split("\n").slice(1)]).toEqual([0, "", ["no longer leading", ""]]);
  }
});

test("README.md gives its two commands, each on a line of its own in a block of its own", () => {
  const blocks = parsePage({ path: "README.md", text: readFileSync("README.md", "utf8") }).blocks;
  const commands = blocks.filter(({ language }) => language === "sh").map(({ code }) => code);
  expect(commands).toContain("npm ci && npx holdfast run nightly-report -- echo hello");
  expect(commands).toContain("npm ci && npm test");
});

function runExample(program: string): Promise<CommandResult> {
  return sandbox.startProgram([process.execPath, program], { cwd: sandbox.folder }).ended;
}

function compiledPath(name: string): string {
  const [source, program] = [`examples/${name}.ts`, builtFile(`build/examples/${name}.js`)];
  if (!existsSync(program) || statSync(program).mtimeMs < statSync(source).mtimeMs) {
    throw new Error(`${program} is older than its source: npm run compile`);
  }
  return program;
}

// One file, many readers and writers, as a user would run it.

import { expect, test } from "vitest";
import { builtFile } from "../support/built-file.ts";
import { cliSandbox } from "../support/cli-sandbox.ts";

const sandbox = cliSandbox();
const PROGRAM = builtFile("build/examples/shared-file/main.js");

const runExample = async (...args: readonly string[]): Promise<readonly string[]> => {
  const { code, out, err } = await sandbox.startProgram([process.execPath, PROGRAM, ...args], { cwd: sandbox.folder })
    .ended;
  expect({ code, err }).toEqual({ code: 0, err: "" });
  return out.trimEnd().split("\n");
};

test("3 writers and 5 readers of one file: no version is lost, no reader sees a partial write, readers overlap", async () => {
  expect(await runExample()).toEqual([
    "30 writes by 3 processes: the file has version 30",
    "50 reads by 5 processes: 0 of them saw half a write",
    "most readers at once: several",
  ]);
});

test("without the lock versions are lost and readers see partial writes: the program would notice", async () => {
  const [writes = "", reads = ""] = await runExample("--unlocked");
  expect(writes).not.toContain("has version 30");
  expect(reads).not.toContain(": 0 of them");
});

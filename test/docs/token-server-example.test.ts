// The test program of the token lock server example, as a user would run it: a server and its clients in processes.

import { existsSync, statSync } from "node:fs";
import { expect, test } from "vitest";
import { builtFile } from "../support/built-file.ts";
import { cliSandbox } from "../support/cli-sandbox.ts";

const sandbox = cliSandbox();

const PROGRAM = builtFile("build/examples/token-server/main.js");
const SOURCES = ["main", "lock-loop", "lock-loop.child", "semantics", "detach.child"];

/** Every line but the first two, which contain times. */
const SEMANTICS_OUTPUT = [
  "locked by a process that has ended: true",
  "an altered reference: reference is damaged: it was cut or altered",
  "a reference of another server: LOCK_LOST, unknown",
  "still locked: true",
  "taken up with its token: true, released: true",
  "released once more: true, nothing happens",
  "taken up once more: LOCK_LOST, released",
  "a lease of 2 s has lasted 2 s: true, the next token is higher: true",
  "the stale reference: LOCK_LOST, expired",
  "the next holder holds on: true",
  "waited 200 ms and no longer: LOCK_TIMEOUT in time",
];

test("8 processes lock and unlock one lock 1,000 times each: 8,000 different rising tokens; every other reference is refused with its reason", {
  // its pairs take seconds, and longer on a busy machine
  timeout: 120_000,
}, async () => {
  for (const name of SOURCES) {
    const [source, program] = [`examples/token-server/${name}.ts`, builtFile(`build/examples/token-server/${name}.js`)];
    const isBuilt = existsSync(program) && statSync(program).mtimeMs >= statSync(source).mtimeMs;
    if (!isBuilt) throw new Error(`${program} is older than its source: npm run compile`);
  }
  const { code, out, err } = await sandbox.startProgram([process.execPath, PROGRAM], { cwd: sandbox.folder }).ended;
  expect({ code, err }).toEqual({ code: 0, err: "" });
  const [time = "", tokens, ...rules] = out.trimEnd().split("\n");
  expect(time).toMatch(/^8 processes, 1000 times each: \d+ ms \(\d+ pairs\/s\)$/);
  expect(tokens).toBe("8000 grants, 8000 different tokens, always rising: true");
  expect(rules).toEqual(SEMANTICS_OUTPUT);
  console.log(`figure: token server on TCP: ${time}`);
});

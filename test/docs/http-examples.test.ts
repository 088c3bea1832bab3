// Runs the commands of docs/reference/http.md, with a small interpreter, and with the real shell and curl if they are installed.

import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { cliSandbox } from "../support/cli-sandbox.ts";
import { cleanUpAfterEach, createTemporaryDirectory, startHttpServer } from "../support/http-fixture.ts";
import { checkLeaksAfterEach } from "../support/leak-check.ts";
import { runCurl, splitWords } from "./doc-shell.ts";

checkLeaksAfterEach();
const sandbox = cliSandbox();

cleanUpAfterEach();

const PAGE = readFileSync("docs/reference/http.md", "utf8");
/** Which member of an answer a variable of the page is taken from. */
const CAPTURED_VARIABLES: Readonly<Record<string, string>> = {
  REFERENCE: "reference",
  WAITING: "reference",
  SECOND: "reference",
  TOKEN: "token",
};
/** These differ from run to run. */
const VARYING_FIELDS: ReadonlySet<string> = new Set([
  "tag",
  "reference",
  "token",
  "remainingMs",
  "ageMs",
  "heldMs",
  "retryMs",
]);

interface TranscriptStep {
  readonly command: string;
  /** The output given on the page. */
  readonly output: string;
}

const steps: TranscriptStep[] = [...PAGE.matchAll(/```transcript\n([^`]*)```/g)]
  .flatMap(([, text]) => (text as string).split(/^\$ /m).slice(1))
  .map((text) => {
    const [command = "", ...output] = text.trimEnd().split("\n");
    return { command, output: output.join("\n") };
  });

/** Runs the page; `run` performs a command other than an assignment. */
async function expectDocumentedOutput(
  url: string,
  run: (command: string, variables: Map<string, string>) => Promise<string>,
) {
  const variables = new Map([["URL", url]]);
  let last = "";
  for (const { command, output } of steps) {
    const assignment = /^([A-Z]+)=/.exec(command)?.[1];
    if (assignment === undefined) {
      last = await run(command, variables);
      expect([command, valueShape(JSON.parse(last))]).toEqual([command, valueShape(JSON.parse(output))]);
    } else if (assignment !== "URL") {
      // the page continues with its own values; the test continues with the received ones
      variables.set(assignment, JSON.parse(last)[CAPTURED_VARIABLES[assignment] as string]);
    }
  }
}

/** A value with its variable parts replaced by their form. */
function valueShape(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(valueShape);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => [
      name,
      VARYING_FIELDS.has(name) ? normalizeOutput(member) : valueShape(member),
    ]),
  );
}

function normalizeOutput(value: unknown): string {
  if (typeof value !== "string") return value === null ? "null" : typeof value;
  return value.replace(/[\w-]{3,}(?![\w.]*hf1)/g, (part) => (part === "hf1" || part === "wait" ? part : "x"));
}

test("the page shows the complete path from no lock to a lock, and back", () => {
  const script = steps.map(({ command }) => command).join("\n");
  for (const path of ["claims\n", "claims/wait", "claims/renew", "claims/release", "locks?", "locks/revoke"]) {
    expect(`${script}\n`).toContain(path);
  }
  expect(steps.length).toBeGreaterThan(15);
});

test("the commands print the documented output, in the interpreter over node:http", async () => {
  const { url } = await startHttpServer();
  await expectDocumentedOutput(url, (command, variables) => runCurl(splitWords(command, variables)));
});

const hasCurl = spawnSync("curl", ["--version"]).status === 0;

test.skipIf(!hasCurl)("the commands print the documented output, in the real shell with the real curl", async () => {
  const { url } = await startHttpServer();
  await expectDocumentedOutput(url, async (command, variables) => {
    const { execFile } = await import("node:child_process");
    return new Promise((resolve, reject) => {
      const env = { PATH: process.env.PATH, ...Object.fromEntries(variables) };
      execFile("sh", ["-c", command], { env }, (error, out) => (error === null ? resolve(out) : reject(error)));
    });
  });
});

test("the first command starts a server", async () => {
  const line = /```sh\n(holdfast serve .*)\n```/.exec(PAGE)?.[1] as string;
  const args = line.split(" ").slice(1);
  const { code, out } = await sandbox.run([...args, "--check"], { cwd: createTemporaryDirectory() });
  expect({ code, out }).toEqual({ code: 0, out: "configuration is valid\n" });
});

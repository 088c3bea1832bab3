// Runs the commands of docs/reference/http.md and docs/guide/gateway.md, with a small interpreter, and with the real shell
// and curl if they are installed.

import { execFile, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { memory, memoryStore } from "../../src/drivers/memory.ts";
import { cliSandbox } from "../support/cli-sandbox.ts";
import type { TestGateway } from "../support/gateway-fixture.ts";
import { startGateway } from "../support/gateway-fixture.ts";
import { cleanUpAfterEach, createTemporaryDirectory, startHttpServer } from "../support/http-fixture.ts";
import { checkLeaksAfterEach } from "../support/leak-check.ts";
import { runCurl, splitWords } from "./doc-shell.ts";

checkLeaksAfterEach();
const sandbox = cliSandbox();

cleanUpAfterEach();

const PAGE = readFileSync("docs/reference/http.md", "utf8");
const GATEWAY_PAGE = readFileSync("docs/guide/gateway.md", "utf8");
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

const readSteps = (page: string): TranscriptStep[] =>
  [...page.matchAll(/```transcript\n([^`]*)```/g)]
    .flatMap(([, text]) => (text as string).split(/^\$ /m).slice(1))
    .map((text) => {
      const [command = "", ...output] = text.trimEnd().split("\n");
      return { command, output: output.join("\n") };
    });
const steps = readSteps(PAGE);
const gatewaySteps = readSteps(GATEWAY_PAGE);

type Run = (command: string, variables: Map<string, string>) => Promise<string>;

/** Runs a page with these addresses; `run` performs a command other than an assignment. */
async function expectDocumentedOutput(
  page: readonly TranscriptStep[],
  addresses: Readonly<Record<string, string>>,
  run: Run,
) {
  const variables = new Map(Object.entries(addresses));
  let last = "";
  for (const { command, output } of page) {
    const assignment = /^([A-Z]+)=/.exec(command)?.[1];
    if (assignment === undefined) {
      last = await run(command, variables);
      expect([command, valueShape(JSON.parse(last))]).toEqual([command, valueShape(JSON.parse(output))]);
    } else if (!Object.hasOwn(addresses, assignment)) {
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

const interpret: Run = (command, variables) => runCurl(splitWords(command, variables));

test("the commands print the documented output, in the interpreter over node:http", async () => {
  const { url } = await startHttpServer();
  await expectDocumentedOutput(steps, { URL: url }, interpret);
});

const hasCurl = spawnSync("curl", ["--version"]).status === 0;
const runInShell: Run = (command, variables) =>
  new Promise((resolve, reject) => {
    const env = { PATH: process.env.PATH, ...Object.fromEntries(variables) };
    execFile("sh", ["-c", command], { env }, (error, out) => (error === null ? resolve(out) : reject(error)));
  });

test.skipIf(!hasCurl)("the commands print the documented output, in the real shell with the real curl", async () => {
  const { url } = await startHttpServer();
  await expectDocumentedOutput(steps, { URL: url }, runInShell);
});

/** The addresses of two gateways of one store. */
async function startGateways(): Promise<{ readonly URL: string; readonly OTHER: string }> {
  const store = memoryStore();
  const [first, second] = await Promise.all(
    [memory({ store }), memory({ store })].map((driver) => startGateway({ driver })),
  );
  return { URL: (first as TestGateway).url, OTHER: (second as TestGateway).url };
}

test("the commands of the gateway's page print the documented output", async () => {
  expect(gatewaySteps.length).toBeGreaterThan(10);
  await expectDocumentedOutput(gatewaySteps, await startGateways(), interpret);
});

test.skipIf(!hasCurl)("those of the gateway's page do so in the real shell with the real curl", async () => {
  await expectDocumentedOutput(gatewaySteps, await startGateways(), runInShell);
});

test("the first command starts a server", async () => {
  const line = /```sh\n(holdfast serve .*)\n```/.exec(PAGE)?.[1] as string;
  const args = line.split(" ").slice(1);
  const { code, out } = await sandbox.run([...args, "--check"], { cwd: createTemporaryDirectory() });
  expect({ code, out }).toEqual({ code: 0, out: "configuration is valid\n" });
});

test("the commands that start a gateway are valid", async () => {
  const folder = createTemporaryDirectory();
  writeFileSync(join(folder, "reference-key"), randomBytes(32), { mode: 0o600 });
  const { out } = await sandbox.run(["credential", "new", "--name", "billing", "--prefix", "billing/", "--json"]);
  const { account } = JSON.parse(out) as { account: object };
  writeFileSync(join(folder, "accounts.json"), JSON.stringify({ version: 1, accounts: [account] }), { mode: 0o600 });
  const lines = [...GATEWAY_PAGE.matchAll(/^holdfast gateway .*$/gm)].map(([line]) => line);
  expect(lines).toHaveLength(3);
  for (const line of lines) {
    const checked = await sandbox.run([...line.split(" ").slice(1), "--check"], { cwd: folder });
    expect(checked).toMatchObject({ code: 0, out: "configuration is valid\n" });
  }
});

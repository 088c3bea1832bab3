import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { helpWidth } from "../../../src/cli/help.ts";
import { connect } from "../../../src/index.ts";
import { builtFile } from "../../support/built-file.ts";
import { cliSandbox } from "../../support/cli-sandbox.ts";

const sandbox = cliSandbox();
/** The manual page of the package, as plain text. */
const MANUAL = readFileSync(builtFile("dist/holdfast.1"), "utf8").replaceAll("\\-", "-");
const COMMANDS = [
  "run",
  "acquire",
  "renew",
  "release",
  "check",
  "revoke",
  "ls",
  "top",
  "show",
  "watch",
  "doctor",
  "serve",
];

test.concurrent.each(COMMANDS)(
  "%s --help explains the command with examples, in 80 columns in a pipe",
  async (name) => {
    const { code, out, err } = await sandbox.run([name, "--help"]);
    expect({ code, err }).toEqual({ code: 0, err: "" });
    expect(out).toMatch(/^Usage: holdfast /);
    expect(out).toMatch(/\nExamples:\n {2}\$ /);
    expect(out).not.toContain("on-demand");
    expect(out.split("\n").filter((line) => line.length > 80)).toEqual([]);
  },
);

test.concurrent("--help lists every command, and a missing command is wrong usage", async () => {
  const { out } = await sandbox.run(["--help"]);
  for (const name of COMMANDS) expect(out).toMatch(new RegExp(`^ {2}${name} `, "m"));
  const { code, err } = await sandbox.run([]);
  expect(code).toBe(64);
  expect(err).toBe(out);
});

test.concurrent("help names a command, or prints the help of the program", async () => {
  const helpText = async (...words: readonly string[]): Promise<string> => (await sandbox.run(words)).out;
  expect(await helpText("help")).toBe(await helpText("--help"));
  expect(await helpText("help", "run")).toBe(await helpText("run", "--help"));
  expect(await sandbox.run(["help", "nonsense"])).toMatchObject({ code: 64, out: "" });
});

test("the manual page names every scheme that a url may begin with", async () => {
  const schemes = await connect("nothing://x").catch((error: Error) => error.message.match(/[a-z+]+:(?= |,)/g));
  expect(schemes).toContain("redis+cluster:");
  for (const scheme of schemes as string[]) expect(MANUAL).toContain(scheme);
});

test("the manual page names every parameter of a url that the reference has", () => {
  const rows = readFileSync("docs/reference/api/holdfast.md", "utf8").match(/^\| `\w+(\+\w+)?:\/\/.*$/gm) ?? [];
  const names = new Set([...rows.join().matchAll(/[?&](\w+)=/g)].map(([, name]) => name as string));
  expect(names).toContain("guardDataLoss");
  const urls = MANUAL.slice(MANUAL.indexOf("\n.SH URLS\n"));
  for (const name of names) expect(urls).toMatch(new RegExp(`\\b${name}\\b`));
});

test.concurrent.each(["--version", "-V"])("%s prints the package's version", async (flag) => {
  const { version } = JSON.parse(readFileSync("package.json", "utf8")) as { version: string };
  expect(await sandbox.run([flag])).toMatchObject({ code: 0, out: `${version}\n`, err: "" });
});

test("help is as wide as the terminal, up to a readable width", () => {
  expect(helpWidth({ isTTY: true, columns: 60 })).toBe(60);
  expect(helpWidth({ isTTY: true, columns: 250 })).toBe(100);
  expect(helpWidth({ isTTY: true, columns: 0 })).toBe(80);
  expect(helpWidth({ columns: 60 })).toBe(80);
});

test("the manual page describes the program in prose, and notes and examples of its commands", () => {
  const description = MANUAL.slice(MANUAL.indexOf(".SH DESCRIPTION\n"), MANUAL.indexOf(".SH COMMANDS\n"));
  const paragraphs = description.split("\n.PP\n").slice(1);
  expect(paragraphs).toHaveLength(2);
  for (const paragraph of paragraphs) expect(paragraph.length).toBeGreaterThan(400);
  expect(MANUAL).toContain("\n.PP\nExit codes: the command\\(aqs own");
  // as typed, a line of its own each
  expect(MANUAL).toContain("\n  $ holdfast serve --config /etc/holdfast.json --check\n");
});

test.concurrent("each command explains --ttl: no process renews a lock that acquire took", async () => {
  const helpText = async (name: string): Promise<string> =>
    (await sandbox.run([name, "--help"])).out.replace(/\s+/g, " ");
  expect(await helpText("acquire")).toContain(
    "--ttl <duration> length of the lease (default: 30s); extend it with `holdfast renew`",
  );
  expect(await helpText("run")).toContain("--ttl <duration> length of the lease, renewed while the command runs");
});

test.concurrent.each([
  ["relase", "release"],
  ["aquire", "acquire"],
  ["lss", "ls"],
])("the mistyped command %s is answered with %s", async (typed, suggestion) => {
  const { code, err } = await sandbox.run([typed]);
  expect(code).toBe(64);
  expect(err).toContain(`; did you mean ${suggestion}?`);
});

test.concurrent("no output has colours, with or without NO_COLOR", async () => {
  const results = await Promise.all([
    sandbox.run(["--help"], { env: { FORCE_COLOR: "1" } }),
    sandbox.run(["ls"], { env: { NO_COLOR: "1" } }),
    sandbox.run(["nonsense"], { env: { FORCE_COLOR: "1", CLICOLOR_FORCE: "1" } }),
  ]);
  for (const { out, err } of results) expect(out + err).not.toContain("\u001b");
});

test.concurrent("ls lists holders and waiters of a prefix", async () => {
  const first = sandbox.start(["run", "invoice:1", "--", "sh", "-c", "echo held; sleep 60"]);
  while (!first.out().includes("held")) await new Promise((resolve) => setTimeout(resolve, 5));
  const second = sandbox.start(["run", "invoice:1", "--shared", "--", "true"]);
  await sandbox.waitForQueue("invoice:1");
  const { out } = await sandbox.run(["ls", "invoice:"]);
  expect(out.split("\n")).toEqual([
    expect.stringMatching(/^KEY +STATE +SINCE +LEASE +AHEAD +TOKEN +HOLDER$/),
    expect.stringMatching(/^invoice:1 +held +\d+ m?s +session +\d+ +\S+@\S+ pid \d+ \(sh\)$/),
    expect.stringMatching(/^invoice:1 +waiting shared +\d+ m?s +session +1 +\S+@\S+ pid \d+ \(true\)$/),
    "",
  ]);
  const lines = (await sandbox.run(["ls", "--json"])).out
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as object);
  expect(lines).toMatchObject([
    {
      locks: [{ key: "invoice:1", mode: "exclusive" }],
      state: "held",
      remainingMs: null,
      token: expect.stringMatching(/^\d+$/),
    },
    { locks: [{ key: "invoice:1", mode: "shared" }], state: "waiting", token: null },
  ]);
  expect(JSON.stringify(lines)).not.toContain("hf1.");
  expect((await sandbox.run(["ls", "other"])).out).toBe("");
  first.process.kill("SIGTERM");
  await Promise.all([first.ended, second.ended]);
});

/** Operator tasks, with the real command line against a real server. */

import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { EXIT_CODES } from "../../../src/cli/errors.ts";
import { until } from "../../../src/testing/until.ts";
import { cliSandbox, PROGRAM } from "../../support/cli-sandbox.ts";

const sandbox = cliSandbox();

/** The JSON lines printed so far. */
function splitLines(text: string): readonly { readonly event?: string; readonly token?: string }[] {
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as object);
}

test("a lock is watched, shown and revoked by its token, and its holder is notified", async () => {
  const watch = sandbox.start(["watch", "deploy", "--json"]);
  await until(() => splitLines(watch.out()).length > 0, { within: 30_000, what: "the watch" });
  const run = sandbox.start(["run", "deploy", "--ttl", "10s", "--", "sleep", "60"]);
  await until(() => splitLines(watch.out()).some(({ event }) => event === "granted"), {
    within: 30_000,
    what: "the grant",
  });
  const { token = "" } = splitLines(watch.out()).find(({ event }) => event === "granted") ?? {};

  const withoutToken = await sandbox.run(["revoke", "deploy"]);
  expect(withoutToken).toMatchObject({ code: 64, err: expect.stringContaining(`with token ${token}`) });
  const wrongToken = await sandbox.run(["revoke", "deploy", "--token", "5", "--json"]);
  expect(wrongToken.code).toBe(123);
  expect(JSON.parse(wrongToken.err)).toMatchObject({ error: "lost", reason: "token", keys: ["deploy"] });
  const result = await sandbox.run(["revoke", "deploy", "--token", token, "--reason", "host is dead"]);
  expect(result).toMatchObject({
    code: 0,
    err: expect.stringMatching(/^holdfast: revoked the lock of .* on "deploy" \(token \d+\): it is free when/),
  });
  expect(await run.ended).toMatchObject({ code: 123, err: expect.stringContaining("revoked") });

  await until(() => splitLines(watch.out()).some(({ event }) => event === "released"), {
    within: 30_000,
    what: "its end",
  });
  const revocation = splitLines(watch.out()).find(({ event }) => event === "revoked");
  expect(revocation).toMatchObject({ token, reason: "host is dead", keys: ["deploy"] });
  watch.process.kill("SIGINT");
  expect(await watch.ended).toMatchObject({ signal: "SIGINT", err: "" });

  const { out } = await sandbox.run(["show", "deploy"]);
  expect(out).toMatch(/^deploy\nfree, no waiters\n\nlast events\n/);
  expect(out).toMatch(/revoked +\d+ +\w+ +\S+@\S+ pid \d+ \(sleep\) \(by an operator: host is dead\)\n/);
});

test("--now takes a lock at once and says that its holder may still be working", async () => {
  const run = sandbox.start(["run", "taken", "--", "sleep", "60"]);
  const held = async (): Promise<string | undefined> =>
    splitLines((await sandbox.run(["ls", "taken", "--json"])).out)[0]?.token;
  const token = (await until(held, { within: 30_000, what: "the holder" })) as string;
  const { code, err } = await sandbox.run(["revoke", "taken", "--token", token, "--now"]);
  expect({ code, err }).toMatchObject({ code: 0, err: expect.stringContaining("may still be working") });
  expect((await sandbox.run(["run", "taken", "--no-wait", "--", "true"])).code).toBe(0);
  expect(await run.ended).toMatchObject({ code: 123 });
});

test("doctor reports a healthy server as healthy, and gives advice for one that is not running", async () => {
  const { code, out } = await sandbox.run(["doctor", "--json"]);
  expect(code).toBe(0);
  expect(JSON.parse(out)).toMatchObject({ ok: true, server: { reason: "" }, cyclesMs: { length: 20 } });
  const missing = await sandbox.run(["doctor", "--url", "holdfast+unix:/tmp/hf-absent/listens"]);
  expect(missing).toMatchObject({ code: 69, out: expect.stringContaining("holdfast serve") });
  const memory = await sandbox.run(["doctor", "--url", "memory:"]);
  expect(memory).toMatchObject({ code: 0, out: expect.stringContaining("is not a Holdfast server") });
});

test("a store without events is reported plainly", async () => {
  const watch = await sandbox.run(["watch", "--url", "memory:"]);
  expect(watch).toMatchObject({ code: 64, err: expect.stringContaining("needs a Holdfast server") });
  const show = await sandbox.run(["show", "k", "--url", "memory:"]);
  expect(show).toMatchObject({ code: 0, out: expect.stringContaining("events: memory: keeps no events") });
});

test("watch ends when its reader has closed the pipe", async () => {
  const pipedRun = sandbox.startProgram([
    "bash",
    "-c",
    `set -o pipefail; ${process.execPath} ${PROGRAM} watch --json | head -n 1`,
  ]);
  await until(() => pipedRun.out() !== "", { within: 30_000, what: "the first line" });
  let isOver = false;
  const ended = pipedRun.ended.finally(() => {
    isOver = true;
  });
  // a write fails once the reader, which may take its time, has gone
  while (!isOver) await sandbox.run(["run", "k", "--", "true"]);
  expect(await ended).toMatchObject({ code: 0, err: "" });
});

test("the manual page has every command with every flag and every exit code, and groff reads it without warnings", async () => {
  const source = readFileSync("dist/holdfast.1", "utf8");
  const sections = source.replaceAll("\\-", "-").split(/^\.SS "holdfast ?(.*)"$/m);
  const sectionOf = (command: string): string => sections[sections.indexOf(command) + 1] as string;
  let flagCount = 0;
  const check = async (command: string): Promise<void> => {
    const { out } = await sandbox.run([...command.split(" "), "--help"].filter((word) => word !== ""));
    for (const [, flag] of out.matchAll(/^ {2}(?:-\w, )?(--[a-z-]+)/gm)) {
      expect(sectionOf(command), command).toMatch(new RegExp(`^\\.B (-\\w, )?${flag}( |$)`, "m"));
      flagCount++;
    }
    const [, list = ""] = out.split("\nCommands:\n");
    for (const [, name] of list.matchAll(/^ {2}(\w+)/gm)) if (name !== "help") await check(`${command} ${name}`.trim());
  };
  await check("");
  expect(flagCount).toBeGreaterThan(60);
  for (const code of Object.values(EXIT_CODES))
    expect(source, `exit code ${code}`).toMatch(new RegExp(`^\\.B .*${code}`, "m"));
  const { status, stderr } = spawnSync("groff", ["-man", "-Tutf8", "-ww", "-z"], { input: source, encoding: "utf8" });
  // without groff the machine cannot render the page
  if (status !== null) expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
});

test("completion prints a script that completes commands, flags and the words of the command to run", async () => {
  expect(await sandbox.run(["completion", "csh"])).toMatchObject({
    code: 64,
    err: "holdfast: the shell must be one of bash, zsh, fish, not csh\n",
  });
  const { out: script } = await sandbox.run(["completion", "bash"]);
  const complete = (...words: readonly string[]): string =>
    execFileSync("bash", [
      "-c",
      `holdfast() { ${process.execPath} ${PROGRAM} "$@"; }\n${script}\nCOMP_WORDS=(holdfast "$@"); COMP_CWORD=$#; _holdfast; echo "\${COMPREPLY[@]}"`,
      "bash",
      ...words,
    ]).toString();
  expect(complete("sh")).toBe("show\n");
  expect(complete("credential", "n")).toBe("new\n");
  expect(complete("completion", "f")).toBe("fish\n");
  expect(complete("revoke", "--to")).toBe("--token\n");
  expect(complete("run", "k", "--", "tru")).toContain("true");
  // the value of a flag is not a flag; after a flag without a value another flag may follow
  expect(complete("serve", "--tls-cert", "")).toBe("\n");
  expect(complete("run", "k", "--on-lost", "")).toBe("\n");
  expect(complete("serve", "--insecure", "")).toContain("--tls-cert");
});

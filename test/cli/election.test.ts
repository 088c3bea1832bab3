import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { elect } from "../../src/server/election.ts";
import { until } from "../support/wait-for.ts";

let folder = "";
beforeEach(() => {
  folder = mkdtempSync("/tmp/hf-elect-");
});
afterEach(() => rmSync(folder, { recursive: true }));

/** A process that takes part in the election and, if it wins, lives on until its input ends. */
function candidate(path: string, hasFlock = true): { said(): string; kill(): void; ended: Promise<void> } {
  const election = resolve("dist/server/election.js");
  const program = `
    import { registerHooks } from "node:module";
    const { elect } = await import(${JSON.stringify(election)});
    const won = await elect(${JSON.stringify(path)});
    console.log(won === null ? "lost" : "won");
    if (won !== null) process.stdin.resume();`;
  const plain = program.replace(/^.*registerHooks.*$/m, "");
  const child = spawn(process.execPath, ["--input-type=module", "-e", plain], {
    stdio: ["pipe", "pipe", "inherit"],
    ...(hasFlock ? {} : { env: { HOLDFAST_TEST: "1" } }),
  });
  let said = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    said += text;
  });
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  return { said: () => said.trim(), kill: () => child.kill("SIGKILL"), ended };
}

test("of ten processes that begin together one wins, and the next as soon as it was killed", async () => {
  const path = join(folder, "lock");
  const all = Array.from({ length: 10 }, () => candidate(path));
  await until(() => all.every(({ said }) => said() !== ""), { within: 10_000, what: "ten answers" });
  expect(all.map(({ said }) => said()).sort()).toEqual([...Array(9).fill("lost"), "won"]);
  const winner = all.find(({ said }) => said() === "won");
  winner?.kill();
  await Promise.all(all.map(({ ended }) => ended));
  const next = candidate(path);
  await until(() => next.said() === "won", { within: 5_000, what: "the next winner" });
  next.kill();
  await next.ended;
});

test("within one process, too, there is one winner until it lets go", async () => {
  const path = join(folder, "lock");
  const first = await elect(path);
  expect(first).not.toBeNull();
  expect(await elect(path)).toBeNull();
  first?.close();
  const second = await elect(path);
  expect(second).not.toBeNull();
  second?.close();
});

test("the lock counts for the file of that name, not for one that was moved away", async () => {
  const path = join(folder, "lock");
  const first = await elect(path);
  renameSync(path, join(folder, "moved"));
  const second = await elect(path);
  // whoever removes the file of a lock defeats it: two hold now, and that is why the server watches its own path
  expect(second).not.toBeNull();
  expect(await elect(path)).toBeNull();
  first?.close();
  second?.close();
});

test("a link in the place of the lock file is refused", async () => {
  writeFileSync(join(folder, "target"), "");
  symlinkSync(join(folder, "target"), join(folder, "lock"));
  await expect(elect(join(folder, "lock"))).rejects.toThrow(/ELOOP/);
});

test("the lock file is made for its owner alone", async () => {
  const path = join(folder, "lock");
  const won = await elect(path);
  const { statSync } = await import("node:fs");
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(existsSync(path) && readFileSync(path, "utf8")).toBe("");
  won?.close();
});

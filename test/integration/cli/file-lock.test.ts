import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, renameSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { acquireFileLock } from "../../../src/os/file-lock.ts";
import { until } from "../../../src/testing/until.ts";
import { builtFile } from "../../support/built-file.ts";

// processes: a busy machine needs time to start them
vi.setConfig({ testTimeout: 60_000 });

let folder = "";
beforeEach(() => {
  folder = mkdtempSync("/tmp/hf-elect-");
});
afterEach(() => rmSync(folder, { recursive: true }));

/** A process that takes part in the election and, if it wins, runs until it is killed. */
function startCandidate(path: string, flock: string): { output(): string; kill(): void; ended: Promise<void> } {
  const program = `
    const { acquireFileLock } = await import(${JSON.stringify(builtFile("build/src/os/file-lock.js"))});
    const won = await acquireFileLock(${JSON.stringify(path)}, ${JSON.stringify(flock)});
    console.log(won === null ? "lost" : "won");
    if (won !== null) process.stdin.resume();`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", program], { stdio: ["pipe", "pipe", "inherit"] });
  let outputText = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    outputText += text;
  });
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  return { output: () => outputText.trim(), kill: () => child.kill("SIGKILL"), ended };
}

test.each([
  ["with flock(1)", "flock"],
  ["without flock(1)", "no-such-flock"],
])(
  "%s: of eight processes that start together one wins, and the next one as soon as it is killed",
  async (_, flock) => {
    const path = join(folder, "lock");
    const candidates = Array.from({ length: 8 }, () => startCandidate(path, flock));
    await until(() => candidates.every(({ output }) => output() !== ""), { within: 20_000, what: "eight answers" });
    expect(candidates.map(({ output }) => output()).sort()).toEqual([...Array(7).fill("lost"), "won"]);
    const winner = candidates.find(({ output }) => output() === "won");
    winner?.kill();
    await Promise.all(candidates.map(({ ended }) => ended));
    const next = startCandidate(path, flock);
    await until(() => next.output() === "won", { within: 20_000, what: "the next winner" });
    next.kill();
    await next.ended;
  },
);

test("within one process, too, there is one winner until it releases the lock", async () => {
  const path = join(folder, "lock");
  const first = await acquireFileLock(path);
  expect(first).not.toBeNull();
  expect(await acquireFileLock(path)).toBeNull();
  first?.close();
  const second = await acquireFileLock(path);
  expect(second).not.toBeNull();
  second?.close();
});

test("the lock belongs to the file of that name, not to one that was moved away", async () => {
  const path = join(folder, "lock");
  const first = await acquireFileLock(path);
  renameSync(path, join(folder, "moved"));
  const second = await acquireFileLock(path);
  // removing a lock's file defeats it: two processes hold it now, which is why the server watches its own path
  expect(second).not.toBeNull();
  expect(await acquireFileLock(path)).toBeNull();
  first?.close();
  second?.close();
});

test("a symbolic link in place of the lock file is refused", async () => {
  writeFileSync(join(folder, "target"), "");
  symlinkSync(join(folder, "target"), join(folder, "lock"));
  await expect(acquireFileLock(join(folder, "lock"))).rejects.toThrow(/ELOOP/);
});

test("without flock(1) the lock is a name of 128 random bits, and a damaged file is an error", async () => {
  const path = join(folder, "lock");
  (await acquireFileLock(path, "no-such-flock"))?.close();
  expect(readFileSync(path, "utf8")).toMatch(/^[0-9a-f]{32}\n$/);
  writeFileSync(path, "damaged");
  await expect(acquireFileLock(path, "no-such-flock")).rejects.toThrow(/is damaged: remove it/);
});

test("the lock file is accessible to its owner only", async () => {
  const path = join(folder, "lock");
  const fileLock = await acquireFileLock(path);
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(readFileSync(path, "utf8")).toBe("");
  fileLock?.close();
});

// A wrapper that falls silent (it is stopped) while its lease runs: src is called directly, so that a fault put into it is
// noticed.

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { startGuard } from "../../src/cli/guard.ts";
import { guardWithRelief } from "../../src/cli/relief.ts";
import type { RunFile } from "../../src/cli/run-file.ts";
import { memory } from "../../src/drivers/memory.ts";
import { END_LINE } from "../../src/server/run-record.ts";
import { below, commandOf, signal } from "../crash/processes.ts";
import { cleanUp, folder, later } from "../server/support.ts";
import { until } from "../support/wait-for.ts";

cleanUp();

const GRACE_MS = 200;

/** Leads a group of its own and ignores TERM. */
function stubborn(): ChildProcess & { readonly pid: number } {
  const child = spawn("sh", ["-c", "trap '' TERM; while sleep 0.05; do :; done"], { detached: true, stdio: "ignore" });
  later(() => {
    if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
  });
  return child as ChildProcess & { readonly pid: number };
}

function runFile(): RunFile & { readonly text: () => string } {
  const path = join(folder(), "a.run");
  writeFileSync(path, "the head\n\n\n", { mode: 0o600 });
  const descriptor = openSync(path, "r+");
  later(() => closeSync(descriptor));
  return {
    path,
    descriptor,
    outlived: false,
    add: () => undefined,
    remove: () => undefined,
    text: () => readFileSync(path, "utf8"),
  };
}

const guards = () => below(process.pid).filter(({ pid }) => commandOf(pid).includes("holdfast-guard"));

test("when the guard has ended a child in silence, it notes in the file that the run has ended, not before", async () => {
  const file = runFile();
  const child = stubborn();
  const exit = once(child, "exit");
  const guard = await startGuard({ ownGroup: true, graceMs: GRACE_MS, token: "4712", file, onDeath: () => undefined });
  guard.child(child.pid);
  guard.lease(100);
  const hadEnded = until(() => file.text().includes("ended"), { within: 20_000, what: "the note in the file" });
  expect(await Promise.race([exit, hadEnded.then(() => "noted before the end of the child")])).toEqual([
    null,
    "SIGKILL",
  ]);
  await hadEnded;
  expect(file.text()).toBe(`the head\n\n\n${END_LINE}`);
  await guard.free();
});

test("a guard that replaces one that was killed ends the child in time, although its wrapper says nothing more", async () => {
  const child = stubborn();
  const guard = await guardWithRelief({
    driver: memory(),
    ownGroup: true,
    graceMs: GRACE_MS,
    token: "4713",
    tether: null,
    file: null,
  });
  guard?.child(child.pid);
  guard?.lease(4_000);
  // the guard itself, and its timer, which would go on without it
  const both = await until(() => (guards().length === 2 ? guards() : null), { within: 3_500, what: "the timer" });
  for (const one of both) signal(one, "SIGKILL");
  await until(() => child.signalCode !== null, { within: 15_000, what: "the end of the child" });
  await guard?.free();
});

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { expect } from "vitest";
import { until } from "../../src/testing/until.ts";
import { commandLine, descendants, isAlive } from "../../src/torture/processes/process-tree.ts";
import { PROGRAM } from "../support/cli-sandbox.ts";
import { GATED_COMMAND, openGate } from "../support/processes/child-scripts.ts";
import { test } from "../support/processes/process-harness.ts";
import { startInTerminal } from "../support/processes/pseudo-terminal.ts";

const CTRL_C = "\u0003";
const RUN = `${process.execPath} ${PROGRAM} run k`;

test.concurrent("Ctrl-C in a terminal reaches the child once, and the run ends as the child decides", async ({
  harness,
}) => {
  // a second one would arrive within moments, from the wrapper
  writeFileSync(
    harness.path("child.sh"),
    "trap 'echo INT >>ints' INT\necho >ready\nwhile [ ! -s ints ]; do sleep 0.05; done\nsleep 0.5\nexit 7\n",
  );
  const terminal = startInTerminal(harness, `trap : INT; ${RUN} -- sh child.sh; echo $? >code`);
  await until(() => existsSync(harness.path("ready")), { within: 10_000, what: "the child" });
  const family = descendants(terminal.pid);
  terminal.type(CTRL_C);
  await terminal.ended;
  expect(readFileSync(harness.path("ints"), "utf8")).toBe("INT\n");
  expect(readFileSync(harness.path("code"), "utf8")).toBe("7\n");
  await until(() => !family.some(isAlive), { within: 10_000, what: "the end of all that the terminal had started" });
});

test.concurrent("a child that Ctrl-C ends leaves nothing behind: wrapper, watchdog and all descendants of the child are gone, the lock is free", async ({
  harness,
}) => {
  writeFileSync(harness.path("child.sh"), "echo >ready\nsleep 60\necho >went-on\n");
  const terminal = startInTerminal(harness, `trap : INT; ${RUN} -- sh child.sh; echo $? >code; read enter`);
  await until(() => existsSync(harness.path("ready")), { within: 10_000, what: "the child" });
  const wrapper = descendants(terminal.pid).find(({ pid }) => commandLine(pid) === `${RUN} -- sh child.sh`);
  // its watchdog, the child, the child's sleep
  const processes = await until(() => (descendants(wrapper!.pid).length >= 3 ? descendants(wrapper!.pid) : null), {
    within: 5_000,
    what: "all of the run",
  });
  const family = [wrapper!, ...processes];
  // the run's own processes; what the child itself left behind has the signal, and may still be about to end
  const ownProcesses = [wrapper!, ...processes.filter(({ pid }) => commandLine(pid).includes("holdfast-watchdog"))];
  expect(ownProcesses).toHaveLength(2);
  terminal.type(CTRL_C);
  await until(() => existsSync(harness.path("code")) && readFileSync(harness.path("code"), "utf8"), {
    within: 5_000,
    what: "the run's end",
  });
  // the terminal is still open: it is the run that has left nothing
  expect(ownProcesses.some(isAlive)).toBe(false);
  await until(() => !family.some(isAlive), { within: 5_000, what: "the end of what was below the child" });
  expect(readFileSync(harness.path("code"), "utf8")).toBe("130\n");
  expect(existsSync(harness.path("went-on"))).toBe(false);
  const next = harness.start(["run", "k", "--no-wait", "--", "true"]);
  expect(await next.ended, next.err()).toEqual({ code: 0, signal: null });
  terminal.type("\n");
  await terminal.ended;
});

test.concurrent("Ctrl-C while a run waits ends it, and leaves no queue entry", async ({ harness }) => {
  const holder = harness.start(["run", "k", "--", ...GATED_COMMAND]);
  await until(() => holder.out() !== "", { within: 10_000, what: "the holder" });
  const terminal = startInTerminal(harness, `trap : INT; ${RUN} -- touch ran; echo $? >code`);
  await until(() => terminal.out().includes("waiting for"), {
    within: 10_000,
    what: "the waiter to say that it waits",
  });
  terminal.type(CTRL_C);
  await terminal.ended;
  expect(readFileSync(harness.path("code"), "utf8")).toBe("130\n");
  openGate(harness);
  expect(await holder.ended).toEqual({ code: 0, signal: null });
  const next = harness.start(["run", "k", "--wait", "3s", "--", "true"]);
  expect(await next.ended, next.err()).toEqual({ code: 0, signal: null });
  expect(existsSync(harness.path("ran"))).toBe(false);
});

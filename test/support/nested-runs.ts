/** Runs inside runs, by the built command line. */

import { expect } from "vitest";
import { until } from "../../src/testing/until.ts";
import { identifyProcess, sendSignal } from "../../src/torture/processes/process-tree.ts";
import type { CliSandbox } from "./cli-sandbox.ts";
import { findWatchdog, PROGRAM } from "./cli-sandbox.ts";

/**
 * Kills the wrapper of a nested run, whose command ignores TERM, while another run waits for the key of the outer run: it
 * must not work beside the nested command. `after`: what the outer command, a shell, does then; "": it is the wrapper itself.
 * `watchdogSignal`: what the watchdog of the nested run gets before; then the command ends by itself, a second after its wrapper.
 */
export async function expectNoOverlap(
  sandbox: CliSandbox,
  [key, innerKey]: readonly [outer: string, inner: string],
  after: string,
  outerCode: number,
  env: Readonly<Record<string, string>> = {},
  watchdogSignal?: NodeJS.Signals,
): Promise<void> {
  const loop =
    watchdogSignal === undefined ? "while :; do sleep 0.05; done" : "while kill -0 $PPID; do sleep 0.05; done; sleep 1";
  const script = `trap "" TERM; echo $$ $PPID; ${loop}`;
  const nested = `${process.execPath} ${PROGRAM} run ${innerKey} --grace 1s -- sh -c '${script}'`;
  const command = ["sh", "-c", after === "" ? `exec ${nested}` : `${nested}${after}`];
  const outer = sandbox.start(["run", key, "--", ...command], { env });
  const started = await until(() => /(\d+) (\d+)\n/.exec(outer.out()), { within: 20_000, what: "the nested command" });
  const isRunning = `grep -qs '^State:.[^ZX]' /proc/${started[1]}/status`;
  const next = sandbox.start(["run", key, "--", "sh", "-c", `${isRunning} && echo overlap || echo alone`], { env });
  await until(() => next.err().includes("held by"), { within: 20_000, what: "the next run to wait" });
  const wrapper = Number(started[2]);
  const watchdog = watchdogSignal === undefined ? null : identifyProcess(findWatchdog(wrapper));
  if (watchdog !== null) sendSignal(watchdog, watchdogSignal as NodeJS.Signals);
  try {
    process.kill(wrapper, "SIGKILL");
    expect((await next.ended).out).toBe("alone\n");
    const { code, err } = await outer.ended;
    expect(code).toBe(outerCode);
    expect(err).toContain(`keeping "${key}": a run inside this one was killed, and its command has not ended yet\n`);
  } finally {
    // one that is stopped would stay
    if (watchdog !== null) sendSignal(watchdog, "SIGKILL");
  }
}

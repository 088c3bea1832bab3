// Runs one suite as a child process: shows its output, takes its time, reads its closing line.

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { findFailureLines } from "./failures.ts";
import { markNodeOptions, scanFor } from "./secret-scan.ts";
import type { Suite } from "./suites.ts";
import { isVitestSuite } from "./suites.ts";
import type { TestCounts } from "./summary.ts";
import { NO_TESTS, parseSummary } from "./summary.ts";

export type SuiteResult = {
  readonly name: string;
  readonly counts: TestCounts;
  readonly seconds: number;
  /** Why the suite fails the run although its own counts may not say so. */
  readonly faults: readonly string[];
  /** Which tests failed, and why: lines of formatFailure(). */
  readonly failures: readonly string[];
  /** What a long run shows at its end: lines that the suite prints as "figure: ...". */
  readonly figures: readonly string[];
};

/**
 * A suite that takes so long hangs: the longest takes minutes, and an hour at full scale, on two cores. Tests have time limits of
 * their own; these bounds are for a process that does not end.
 */
const MAX_MINUTES = { usual: 30, long: 300 };

const VITEST = "node_modules/vitest/vitest.mjs";
const runningChildren = new Set<ChildProcess>();

// Children have their own process group (to stop what they started, too), so Ctrl-C does not reach them by itself.
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => {
    for (const child of runningChildren) killGroup(child);
    process.kill(process.pid, signal);
  });
}

/** mark: a part of every secret that the suite makes; the output of the suite must not contain it. */
export async function runSuite(suite: Suite, long: boolean, mark: string): Promise<SuiteResult> {
  const maxMinutes = long ? MAX_MINUTES.long : MAX_MINUTES.usual;
  const started = performance.now();
  const { output, code, wasStopped, printedSecret } = await runBounded(
    suiteCommand(suite, long),
    maxMinutes,
    long,
    mark,
  );
  const seconds = (performance.now() - started) / 1000;
  const said = parseSummary(output);
  const faults: string[] = [];
  if (wasStopped) faults.push(`${suite.name} was stopped after ${maxMinutes} minutes`);
  if (!wasStopped && said === undefined) faults.push(`${suite.name} printed no closing line`);
  if (!wasStopped && code !== 0 && said?.failed === 0) {
    faults.push(`${suite.name} ended with code ${code} although no test failed`);
  }
  if (printedSecret) faults.push(`${suite.name} printed a secret: an id or a credential with this run's canary in it`);
  const counts = said ?? NO_TESTS;
  return {
    name: suite.name,
    // A fault of the run itself counts once, so that the sum line can never look green.
    counts: faults.length > 0 && counts.failed === 0 ? { ...counts, failed: 1 } : counts,
    seconds,
    faults,
    failures: findFailureLines(output),
    figures: [...output.matchAll(/^figure: (.+)$/gm)].map((match) => match[1] ?? ""),
  };
}

function suiteCommand(suite: Suite, long: boolean): string[] {
  if (!isVitestSuite(suite)) {
    return [suite.source.replace(/^/, "build/").replace(/\.ts$/, ".js"), ...(long ? suite.longArgs : suite.args)];
  }
  return [VITEST, "run", "--project", suite.name, ...(suite.hasCoverage === true ? ["--coverage"] : [])];
}

type ExitResult = {
  readonly output: string;
  readonly code: number;
  readonly wasStopped: boolean;
  /** It printed a secret. */
  readonly printedSecret: boolean;
};

function runBounded(args: readonly string[], maxMinutes: number, long: boolean, mark: string): Promise<ExitResult> {
  return new Promise((resolve) => {
    const env = { ...process.env, NODE_OPTIONS: markNodeOptions(mark), ...(long && { HOLDFAST_LONG: "1" }) };
    const child = spawn(process.execPath, args, { env, detached: true, stdio: ["ignore", "pipe", "pipe"] });
    const [seen, seenErrors] = [scanFor(mark), scanFor(mark)];
    runningChildren.add(child);
    let output = "";
    let wasStopped = false;
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      output += text;
      seen.push(text);
      process.stdout.write(text);
    });
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      seenErrors.push(text);
      process.stderr.write(text);
    });
    const limit = setTimeout(() => {
      wasStopped = true;
      killGroup(child);
      // A process that left the group could hold the pipe open for ever.
      child.stdout.destroy();
      child.stderr.destroy();
    }, maxMinutes * 60_000);
    child.once("close", (code) => {
      clearTimeout(limit);
      runningChildren.delete(child);
      resolve({ output, code: code ?? 1, wasStopped, printedSecret: seen.found || seenErrors.found });
    });
  });
}

function killGroup(child: ChildProcess): void {
  if (child.pid === undefined) return;
  try {
    process.kill(process.platform === "win32" ? child.pid : -child.pid, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

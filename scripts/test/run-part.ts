// Runs one part as a child process: shows its output, takes its time, reads its closing line.

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { nodeOptions, watchFor } from "./canary.ts";
import type { Counts } from "./counts.ts";
import { NONE, parseClosingLine } from "./counts.ts";
import { failureLinesIn } from "./failures.ts";
import type { Part } from "./parts.ts";
import { isVitest } from "./parts.ts";

export type PartResult = {
  readonly name: string;
  readonly counts: Counts;
  readonly took: number;
  readonly budget: number;
  /** Why the part fails the run although its own counts may not say so. */
  readonly faults: readonly string[];
  /** Which tests failed, and why: lines of failureLines(). */
  readonly failures: readonly string[];
  /** What the part wants in the long report: lines it prints as "figure: ...". */
  readonly figures: readonly string[];
};

/**
 * A part over its budget says so in the table; it only fails when it takes this many times as long. Time depends on the
 * machine, and a test that fails because something else was at work tells nothing.
 */
const PATIENCE = 5;

const VITEST = "node_modules/vitest/vitest.mjs";
const running = new Set<ChildProcess>();

// Children have their own process group (to stop what they started, too), so Ctrl-C does not reach them by itself.
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => {
    for (const child of running) stop(child);
    process.kill(process.pid, signal);
  });
}

/** mark: what stands in every secret that the part makes, and must not stand in what it prints. */
export async function runPart(part: Part, long: boolean, mark: string): Promise<PartResult> {
  const budget = long ? part.longSeconds : part.seconds;
  const started = performance.now();
  const { output, code, stopped, told } = await execute(commandOf(part, long), budget, long, mark);
  const took = (performance.now() - started) / 1000;
  const said = parseClosingLine(output);
  const faults: string[] = [];
  if (stopped) faults.push(`${part.name} was stopped after ${PATIENCE} times its budget of ${budget} s`);
  if (!stopped && said === undefined) faults.push(`${part.name} printed no closing line`);
  if (!stopped && code !== 0 && said?.failed === 0) {
    faults.push(`${part.name} ended with code ${code} although no test failed`);
  }
  if (told) faults.push(`${part.name} printed a secret: an id or a credential with this run's canary in it`);
  const counts = said ?? NONE;
  return {
    name: part.name,
    // A fault of the run itself counts once, so that the sum line can never look green.
    counts: faults.length > 0 && counts.failed === 0 ? { ...counts, failed: 1 } : counts,
    took,
    budget,
    faults,
    failures: failureLinesIn(output),
    figures: [...output.matchAll(/^figure: (.+)$/gm)].map((match) => match[1] ?? ""),
  };
}

function commandOf(part: Part, long: boolean): string[] {
  if (!isVitest(part)) {
    return [part.source.replace(/^/, "build/").replace(/\.ts$/, ".js"), ...(long ? part.longArgs : part.args)];
  }
  return [VITEST, "run", "--project", part.name, ...(part.coverage === true ? ["--coverage"] : [])];
}

type Ended = {
  readonly output: string;
  readonly code: number;
  readonly stopped: boolean;
  /** It printed a secret. */
  readonly told: boolean;
};

function execute(args: readonly string[], budget: number, long: boolean, mark: string): Promise<Ended> {
  return new Promise((resolve) => {
    const env = { ...process.env, NODE_OPTIONS: nodeOptions(mark), ...(long && { HOLDFAST_LONG: "1" }) };
    const child = spawn(process.execPath, args, { env, detached: true, stdio: ["ignore", "pipe", "pipe"] });
    const [seen, seenErrors] = [watchFor(mark), watchFor(mark)];
    running.add(child);
    let output = "";
    let stopped = false;
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      output += text;
      seen.push(text);
      process.stdout.write(text);
    });
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      seenErrors.push(text);
      process.stderr.write(text);
    });
    const limit = setTimeout(
      () => {
        stopped = true;
        stop(child);
        // A process that left the group could hold the pipe open for ever.
        child.stdout.destroy();
        child.stderr.destroy();
      },
      budget * PATIENCE * 1000,
    );
    child.once("close", (code) => {
      clearTimeout(limit);
      running.delete(child);
      resolve({ output, code: code ?? 1, stopped, told: seen.found || seenErrors.found });
    });
  });
}

function stop(child: ChildProcess): void {
  if (child.pid === undefined) return;
  try {
    process.kill(process.platform === "win32" ? child.pid : -child.pid, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

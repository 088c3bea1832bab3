/** The test's end of a worker process: orders to it, reports from it. */

import { builtFile } from "../built-file.ts";
import type { ProcessHarness, RunningProcess } from "./process-harness.ts";
import { waitForOutput } from "./process-output.ts";

/** What a worker is told to do. `of` names a lock of its own, and the register it writes to. */
export type Order =
  | {
      readonly do: "acquire";
      readonly of: string;
      readonly key: string;
      readonly ttl?: `${number}s` | "session";
      readonly wait?: `${number}s`;
    }
  | { readonly do: "release" | "write" | "use" | "finish"; readonly of: string }
  | {
      readonly do: "load";
      readonly of: string;
      readonly keys: readonly string[];
      readonly ttl?: `${number}s`;
      readonly holdMs: number;
    };

/** What happened to it. Times are nanoseconds of the machine's monotonic clock. */
export type Report = {
  readonly of: string;
  readonly event:
    | "ready"
    | "asked"
    | "held"
    | "lost"
    | "stopped"
    | "released"
    | "written"
    | "refused"
    | "done"
    | "failed";
  readonly at: string;
  readonly token?: string;
  readonly reason?: string;
  /** When it last asked the lock and was told that it is held. */
  readonly believedAt?: string;
  /** Of who uses its lock and has lost it: a time before the last whole round of its event loop in which it was not told. */
  readonly roundAt?: string;
  readonly kept?: boolean;
  readonly turns?: number;
  readonly why?: string;
};

export type Worker = RunningProcess & {
  send(order: Order): void;
  /** The first report of that event, once it has come. */
  waitForReport(of: string, event: Report["event"], within?: number): Promise<Report>;
  reports(): readonly Report[];
  acquire(
    of: string,
    key: string,
    options?: { readonly ttl?: `${number}s` | "session"; readonly wait?: `${number}s` },
  ): void;
  /** kill -STOP, and kill -CONT. */
  stop(): void;
  resume(): void;
};

const PROGRAM = builtFile("build/test/support/processes/worker.child.js");

/** A worker on the store of a url; none: the server on demand of the scene. */
export async function startWorker(
  harness: ProcessHarness,
  url = "",
  registerPath = "",
  env: Readonly<Record<string, string>> = {},
  commandPrefix: readonly string[] = [],
): Promise<Worker> {
  const [program = "", ...args] = [...commandPrefix, process.execPath, PROGRAM, url, registerPath];
  const running = harness.startProgram([program, ...args], { input: true, env });
  const reports = (): Report[] =>
    running
      .out()
      .split("\n")
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Report);
  const waitForReport: Worker["waitForReport"] = async (of, event, timeoutMs = 10_000) =>
    waitForOutput(
      running,
      () => {
        const report = reports().find((one) => one.of === of && one.event === event);
        const failed = reports().find((one) => one.of === of && one.event === "failed");
        if (failed !== undefined && event !== "failed") throw new Error(`the worker failed: ${failed.why}`);
        return report;
      },
      { within: timeoutMs, what: `"${event}" of ${of}` },
    );
  const send = (order: Order): void => {
    running.process.stdin?.write(`${JSON.stringify(order)}\n`);
  };
  running.process.stdin?.on("error", () => undefined);
  const startedWorker: Worker = {
    ...running,
    send,
    waitForReport,
    reports,
    acquire: (of, key, options = {}) => send({ do: "acquire", of, key, ...options }),
    stop: () => void running.process.kill("SIGSTOP"),
    resume: () => void running.process.kill("SIGCONT"),
  };
  await waitForReport("", "ready");
  return startedWorker;
}

/** From the one report to the other, in milliseconds. */
export function msBetween(from: Pick<Report, "at">, to: Pick<Report, "at">): number {
  return Number(BigInt(to.at) - BigInt(from.at)) / 1e6;
}

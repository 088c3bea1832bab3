/** The test's end of a process with a fenced transaction, and what must hold if that process is stopped in it. */

import { expect } from "vitest";
import { createFenceTable, fence } from "../../../src/fencing/index.ts";
import { connect } from "../../../src/index.ts";
import { builtFile } from "../built-file.ts";
import type { FenceDatabase, TestTransaction } from "../fence-scenarios.ts";
import type { ProcessHarness, RunningProcess } from "./process-harness.ts";
import { waitForOutput } from "./process-output.ts";

export const FENCED_LEASE = "2s";

export interface FencedProcess extends RunningProcess {
  /** kill -STOP, once its transaction is fenced. */
  stop(): void;
  /** kill -CONT, and tells it to commit. Resolves to "committed" or "refused". */
  resumeAndCommit(): Promise<string>;
}

/** Its transaction is fenced when this resolves. */
export async function startFencedProcess(
  harness: ProcessHarness,
  lockUrl: string,
  dataUrl: string,
): Promise<FencedProcess> {
  const program = builtFile("build/test/support/processes/fenced-transaction.child.js");
  const running = harness.startProgram([process.execPath, program, lockUrl, dataUrl], { input: true });
  const waitFor = (word: RegExp): Promise<RegExpExecArray> =>
    waitForOutput(running, () => word.exec(running.out()), { within: 15_000, what: `${word}` });
  await waitFor(/fenced/);
  return {
    ...running,
    stop: () => void running.process.kill("SIGSTOP"),
    async resumeAndCommit() {
      running.process.kill("SIGCONT");
      running.process.stdin?.write("commit\n");
      return (await waitFor(/committed|refused/))[0];
    },
  };
}

/** A database with the table `data`. */
export interface StoppedTransactionDatabase extends Pick<FenceDatabase, "pool" | "query"> {
  begin(): Promise<Pick<TestTransaction, "handle" | "query" | "commit">>;
}

/**
 * On a database that ends idle transactions: the next holder's fence waits for the stopped one at most until the time-out
 * that its fence has set, and from then on the stopped one cannot commit.
 */
export async function expectStoppedTransactionRefused(
  harness: ProcessHarness,
  lockUrl: string,
  dataUrl: string,
  database: StoppedTransactionDatabase,
): Promise<void> {
  await createFenceTable(database.pool);
  const stopped = await startFencedProcess(harness, lockUrl, dataUrl);
  stopped.stop();
  await using locks = await connect(lockUrl);
  const lock = await locks.acquire("k", { wait: "20s" });
  const grantedAt = performance.now();
  const next = await database.begin();
  await fence(next.handle, lock);
  await next.query("insert into data (who) values ('next')");
  await next.commit();
  // the time-out began before the lease ended; the rest is for a machine that is busy
  expect(performance.now() - grantedAt).toBeLessThan(6_000);
  expect(await stopped.resumeAndCommit()).toBe("refused");
  expect(await database.query("select who from data")).toEqual([{ who: "next" }]);
}

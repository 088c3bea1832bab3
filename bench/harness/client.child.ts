// A client process of the bench: opens one implementation and performs the workloads that the bench asks for.

import { findImplementation } from "../implementations/implementations.ts";
import { serveCalls } from "./child-rpc.ts";
import type { LockImplementation, Outcome, Workload } from "./closed-loop.ts";
import { runWorkload } from "./closed-loop.ts";
import { recordCriticalSections } from "./exclusion.ts";
import { measureCycles, measureIdleKeys } from "./memory-use.ts";
import { quantile } from "./stats.ts";
import { createWindowHandlers } from "./window-handlers.ts";
import { holdKeys, runPacedTurns, runTurns } from "./workloads.ts";

/** What of an outcome goes back to the bench. */
export type Measured = Omit<Outcome, "latencies"> & { readonly p50: number; readonly p99: number };

const [name = "", socket = ""] = process.argv.slice(2);
let implementation: LockImplementation | null = null;

async function openImplementation(): Promise<LockImplementation> {
  implementation ??= await findImplementation(name).open(socket);
  return implementation;
}

serveCalls({
  perform: async (workload: Workload): Promise<Measured> => {
    const { latencies, ...outcome } = await runWorkload(await openImplementation(), workload);
    return { ...outcome, p50: quantile(latencies, 0.5), p99: quantile(latencies, 0.99) };
  },
  exclusion: async (ms: number) => recordCriticalSections(await openImplementation(), ms),
  idleKeys: async (keys: number) => measureIdleKeys(await openImplementation(), keys),
  manyCycles: async (cycles: number) => measureCycles(await openImplementation(), cycles),
  turns: async ({ callers, times }: { readonly callers: number; readonly times: number }) =>
    runTurns(await openImplementation(), callers, times),
  paced: async ({ times, key }: { readonly times: number; readonly key: string }) =>
    runPacedTurns(await openImplementation(), times, key),
  hold: async ({ from, count }: { readonly from: number; readonly count: number }) =>
    holdKeys(await openImplementation(), from, count),
  ...createWindowHandlers(name, socket, openImplementation),
  close: async () => implementation?.close(),
});

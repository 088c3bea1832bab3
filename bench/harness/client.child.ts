// A client process of the bench: opens one contestant and performs workloads when it is told to.

import { contestants } from "../contestants/contestants.ts";
import { answerCalls } from "./calls.ts";
import { exclusionSections } from "./exclusion.ts";
import { idleKeys, manyCycles } from "./memory-use.ts";
import { quantile } from "./stats.ts";
import { hold, paced, turns } from "./turns.ts";
import { windowCalls } from "./window-calls.ts";
import type { Contestant, Outcome, Workload } from "./workload.ts";
import { perform } from "./workload.ts";

/** What of an outcome goes back to the bench. */
export type Measured = Omit<Outcome, "latencies"> & { readonly p50: number; readonly p99: number };

const [name = "", socket = ""] = process.argv.slice(2);
let opened: Contestant | null = null;

async function contestant(): Promise<Contestant> {
  opened ??= await contestants(name).open(socket);
  return opened;
}

answerCalls({
  perform: async (workload: Workload): Promise<Measured> => {
    const { latencies, ...outcome } = await perform(await contestant(), workload);
    return { ...outcome, p50: quantile(latencies, 0.5), p99: quantile(latencies, 0.99) };
  },
  exclusion: async (ms: number) => exclusionSections(await contestant(), ms),
  idleKeys: async (keys: number) => idleKeys(await contestant(), keys),
  manyCycles: async (cycles: number) => manyCycles(await contestant(), cycles),
  turns: async ({ callers, times }: { readonly callers: number; readonly times: number }) =>
    turns(await contestant(), callers, times),
  paced: async ({ times, key }: { readonly times: number; readonly key: string }) =>
    paced(await contestant(), times, key),
  hold: async ({ from, count }: { readonly from: number; readonly count: number }) =>
    hold(await contestant(), from, count),
  ...windowCalls(name, socket, contestant),
  close: async () => opened?.close(),
});

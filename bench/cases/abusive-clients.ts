/** What decent clients feel of bad ones. */

import { setTimeout as delay } from "node:timers/promises";
import type { BenchCase, Check, Row } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { ChildProcessRpc } from "../harness/child-rpc.ts";
import type { Measured } from "../harness/client.child.ts";
import { waitForIdle } from "../harness/machine.ts";
import { withProcessGroup } from "../harness/process-groups.ts";
import { computeRatio, computeSpread } from "../harness/stats.ts";

const ROUNDS = 5;
const DURATION_MS = 1_000;
/** The flood has begun before anything is measured. */
const LEAD_MS = 300;

export const abusiveClients: BenchCase = {
  name: "floods",
  title: "Floods: what a decent client feels, on TCP",
  about:
    "A client with four callers on keys of their own, alone and beside a process of bad clients, in turns. The floods come at " +
    "a rate of their own (bench/harness/abusive-client.child.ts): beside one that fills a core, anything would be slower.",
  async run() {
    return withProcessGroup("holdfast", { processes: 1, tcp: true }, async ({ clients, address }) => {
      const client = clients[0] as ChildProcessRpc;
      const flooder = new ChildProcessRpc(new URL("../harness/abusive-client.child.js", import.meta.url), []);
      try {
        const rows: Row[] = [];
        const checks: Check[] = [];
        await measureClient(client);
        for (const kind of await flooder.call<string[]>("kinds")) {
          const baselineRounds: Measured[] = [];
          const loadedRounds: Measured[] = [];
          for (let round = 0; round < ROUNDS; round++) {
            await waitForIdle();
            baselineRounds.push(await measureClient(client));
            const flood = flooder.call<number>("flood", { kind, address, ms: LEAD_MS + DURATION_MS });
            await delay(LEAD_MS);
            loadedRounds.push(await measureClient(client));
            await flood;
          }
          const p99 = (all: readonly Measured[]): number[] => all.map((measured) => measured.p99);
          const ratio = computeRatio(p99(loadedRounds), p99(baselineRounds));
          const figures = {
            "p99 us alone": computeSpread(p99(baselineRounds)),
            "p99 us beside": computeSpread(p99(loadedRounds)),
            ratio,
          };
          rows.push({ name: kind, figures });
          checks.push(check("goal", `${kind}: p99 of p99 alone`, ratio, "at most", 2));
        }
        return { rows, checks };
      } finally {
        await flooder.end();
      }
    });
  },
};

function measureClient(client: ChildProcessRpc): Promise<Measured> {
  return client.call<Measured>("perform", { callers: 4, keys: 64, ms: DURATION_MS, latencies: true });
}

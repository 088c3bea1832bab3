/** What decent clients feel of bad ones. */

import { setTimeout as delay } from "node:timers/promises";
import { Child } from "../harness/calls.ts";
import type { BenchCase, Check, Row } from "../harness/case.ts";
import { check } from "../harness/case.ts";
import type { Measured } from "../harness/client.child.ts";
import { withCrew } from "../harness/crews.ts";
import { quiet } from "../harness/machine.ts";
import { ratioOf, spreadOf } from "../harness/stats.ts";

const ROUNDS = 5;
const MS = 1_000;
/** The flood has begun before anything is measured. */
const AHEAD_MS = 300;

export const floods: BenchCase = {
  name: "floods",
  title: "Floods: what a decent client feels, on TCP",
  about:
    "A client with four callers on keys of their own, alone and beside a process of bad clients, in turns. The floods come at " +
    "a rate of their own (bench/harness/flooder.child.ts): beside one that fills a core, anything would be slower.",
  async run() {
    return withCrew("holdfast", { processes: 1, tcp: true }, async ({ clients, address }) => {
      const client = clients[0] as Child;
      const flooder = new Child(new URL("../harness/flooder.child.js", import.meta.url), []);
      try {
        const rows: Row[] = [];
        const checks: Check[] = [];
        await perform(client);
        for (const kind of await flooder.call<string[]>("kinds")) {
          const alone: Measured[] = [];
          const beside: Measured[] = [];
          for (let round = 0; round < ROUNDS; round++) {
            await quiet();
            alone.push(await perform(client));
            const flood = flooder.call<number>("flood", { kind, address, ms: AHEAD_MS + MS });
            await delay(AHEAD_MS);
            beside.push(await perform(client));
            await flood;
          }
          const p99 = (all: readonly Measured[]): number[] => all.map((one) => one.p99);
          const ratio = ratioOf(p99(beside), p99(alone));
          const figures = { "p99 us alone": spreadOf(p99(alone)), "p99 us beside": spreadOf(p99(beside)), ratio };
          rows.push({ contestant: kind, figures });
          checks.push(check("goal", `${kind}: p99 of p99 alone`, ratio, "at most", 2));
        }
        return { rows, checks };
      } finally {
        await flooder.end();
      }
    });
  },
};

function perform(client: Child): Promise<Measured> {
  return client.call<Measured>("perform", { callers: 4, keys: 64, ms: MS, latencies: true });
}

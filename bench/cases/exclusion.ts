/** That the locks which are measured exclude. */

import type { BenchCase, Row } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { ChildProcessRpc } from "../harness/child-rpc.ts";
import type { CriticalSection } from "../harness/exclusion.ts";
import { countFaults } from "../harness/exclusion.ts";
import { CLIENT_PROGRAM, withImplementation } from "../harness/rounds.ts";
import { computeSpread } from "../harness/stats.ts";

const DURATION_MS = 1_000;
const CONTROL_NAME = "no lock";
const LOCK_NAMES = ["holdfast", "holdfast, strict order", "holdfast, cached", "floor B", "live-mutex"];

export const exclusion: BenchCase = {
  name: "exclusion",
  title: "Exclusion",
  about:
    "Two processes with four callers each on one key for a second, every section lasting some turns of the event loop, " +
    "compared on the machine's monotonic clock. The control takes no lock, and must overlap.",
  async run() {
    const rows: Row[] = [];
    const checks = [];
    for (const name of [CONTROL_NAME, ...LOCK_NAMES]) {
      const sections = await measureSections(name);
      const { overlaps, tokens } = countFaults(sections);
      const figures = { sections: computeSpread([sections.length]), overlaps: computeSpread([overlaps]) };
      rows.push({ name, figures });
      if (name === CONTROL_NAME)
        checks.push(check("gate", `${name}: overlaps`, computeSpread([overlaps]), "at least", 1));
      else checks.push(check("gate", `${name}: overlaps`, computeSpread([overlaps]), "exactly", 0));
      if (!name.startsWith("holdfast")) continue;
      checks.push(check("gate", `${name}: sections`, computeSpread([sections.length]), "at least", 100));
      checks.push(check("gate", `${name}: tokens that did not rise`, computeSpread([tokens]), "exactly", 0));
    }
    return { rows, checks };
  },
};

function measureSections(name: string): Promise<CriticalSection[]> {
  return withImplementation(name, async ({ client, socket }) => {
    const second = new ChildProcessRpc(CLIENT_PROGRAM, [name, socket]);
    try {
      const both = await Promise.all(
        [client, second].map((child) => child.call<CriticalSection[]>("exclusion", DURATION_MS)),
      );
      return both.flat();
    } finally {
      await second.end();
    }
  });
}

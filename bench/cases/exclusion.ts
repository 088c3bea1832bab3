/** That the locks which are measured exclude. */

import { Child } from "../harness/calls.ts";
import type { BenchCase, Row } from "../harness/case.ts";
import { check } from "../harness/case.ts";
import type { Section } from "../harness/exclusion.ts";
import { faultsOf } from "../harness/exclusion.ts";
import { clientProgram, withRunner } from "../harness/rounds.ts";
import { spreadOf } from "../harness/stats.ts";

const MS = 1_000;
const CONTROL = "no lock";
const LOCKS = ["holdfast", "holdfast, handoffs 1", "floor B", "live-mutex"];

export const exclusion: BenchCase = {
  name: "exclusion",
  title: "Exclusion",
  about:
    "Two processes with four callers each on one key for a second, every section lasting some turns of the event loop, " +
    "compared on the machine's monotonic clock. The control takes no lock, and must overlap.",
  async run() {
    const rows: Row[] = [];
    const checks = [];
    for (const name of [CONTROL, ...LOCKS]) {
      const sections = await sectionsOf(name);
      const { overlaps, tokens } = faultsOf(sections);
      const figures = { sections: spreadOf([sections.length]), overlaps: spreadOf([overlaps]) };
      rows.push({ contestant: name, figures });
      if (name === CONTROL) checks.push(check("gate", `${name}: overlaps`, spreadOf([overlaps]), "at least", 1));
      else checks.push(check("gate", `${name}: overlaps`, spreadOf([overlaps]), "exactly", 0));
      if (!name.startsWith("holdfast")) continue;
      checks.push(check("gate", `${name}: sections`, spreadOf([sections.length]), "at least", 100));
      checks.push(check("gate", `${name}: tokens that did not rise`, spreadOf([tokens]), "exactly", 0));
    }
    return { rows, checks };
  },
};

function sectionsOf(name: string): Promise<Section[]> {
  return withRunner(name, async ({ client, socket }) => {
    const second = new Child(clientProgram, [name, socket]);
    try {
      const both = await Promise.all([client, second].map((one) => one.call<Section[]>("exclusion", MS)));
      return both.flat();
    } finally {
      await second.end();
    }
  });
}

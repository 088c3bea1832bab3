/** docs/evidence.md: its prose is written in the page, and what stands between its marks is made of the results. */

import type { TortureReport } from "../torture/report.ts";
import { HOLDFAST_CLASS } from "../torture/subjects.ts";
import { renderMutants } from "./mutants.ts";
import { rowsOf } from "./results.ts";
import { renderRivals } from "./rivals.ts";
import { renderAnswer, renderCrashes, renderFaults, renderOthers, renderTotals } from "./stores.ts";

/** The lines of each mark, by its name. */
export type Blocks = Readonly<Record<string, readonly string[]>>;

export function renderBlocks(reports: readonly TortureReport[]): Blocks {
  const own = rowsOf(reports).filter((row) => row.class === HOLDFAST_CLASS);
  return {
    totals: renderTotals(own),
    answer: renderAnswer(own),
    crashes: renderCrashes(own),
    others: renderOthers(own),
    faults: renderFaults(own),
    mutants: renderMutants(),
    rivals: renderRivals(reports),
  };
}

const MARK = /^<!-- made: (\w+) -->\n[\s\S]*?^<!-- end -->$/gm;

/** The same page with these blocks. @throws Error if the page has a mark for no block, or a block has no mark */
export function fillPage(page: string, blocks: Blocks): string {
  const missing = new Set(Object.keys(blocks));
  const filled = page.replace(MARK, (_, name: string) => {
    const lines = blocks[name];
    if (lines === undefined) throw new Error(`there is no block "${name}"`);
    missing.delete(name);
    return [`<!-- made: ${name} -->`, ...lines, "<!-- end -->"].join("\n");
  });
  if (missing.size > 0) throw new Error(`the page has no mark for ${[...missing].join(", ")}`);
  return filled;
}

/** `npm run sim -- --seeds N [--seed S] [--trace]`: the deterministic simulator. */

import { parseArgs } from "node:util";
import { play } from "./play.ts";

const { values } = parseArgs({
  options: {
    seeds: { type: "string", default: "500" },
    seed: { type: "string" },
    first: { type: "string", default: "1" },
    trace: { type: "boolean", default: false },
  },
});

const first = Number(values.seed ?? values.first);
const count = values.seed === undefined ? Number(values.seeds) : 1;
const began = performance.now();
let failed = 0;
let happened = 0;
let grants = 0;

for (let seed = first; seed < first + count; seed++) {
  const result = await play(seed, values.trace);
  happened += result.happened;
  grants += result.grants;
  if (result.failure === null) continue;
  failed++;
  console.log(`\nseed ${seed}: ${result.failure}`);
  if (!values.trace) console.log(result.lines.slice(-60).join("\n"));
  console.log(`replay: npm run sim -- --seed ${seed} --trace`);
  if (failed === 5) break;
}

const seconds = (performance.now() - began) / 1_000;
console.log(`figure: ${count} seeds, ${happened} events, ${grants} grants, ${seconds.toFixed(1)} s`);
console.log(`${count - failed} passed, ${failed} failed, 0 skipped`);
if (failed > 0) process.exitCode = 1;

/** `npm run sim -- --seeds N [--first S] [--seed S] [--trace] [--failures N]`: the deterministic simulator. */

import { parseArgs } from "node:util";
import type { Result } from "./play.ts";
import { play } from "./play.ts";

const REPLAY_EACH = 25;

const { values } = parseArgs({
  options: {
    seeds: { type: "string", default: "500" },
    seed: { type: "string" },
    first: { type: "string", default: "1" },
    trace: { type: "boolean", default: false },
    failures: { type: "string", default: "5" },
  },
});

const first = Number(values.seed ?? values.first);
const count = values.seed === undefined ? Number(values.seeds) : 1;
const began = performance.now();
let failed = 0;
let happened = 0;
let grants = 0;
let played = 0;

for (let seed = first; seed < first + count; seed++) {
  const result = await replayed(seed, await play(seed, values.trace));
  played++;
  happened += result.happened;
  grants += result.grants;
  if (result.failure === null) continue;
  failed++;
  console.log(`\nseed ${seed}: ${result.failure}`);
  if (!values.trace) console.log(result.lines.slice(-60).join("\n"));
  console.log(`replay: npm run sim -- --seed ${seed} --trace`);
  if (failed === Number(values.failures)) break;
}

/** A failure is of use only if its seed brings it back: now and then the same is played again. */
async function replayed(seed: number, result: Result): Promise<Result> {
  if (seed % REPLAY_EACH !== 0 || result.failure !== null) return result;
  const again = await play(seed);
  if (again.digest === result.digest) return result;
  return { ...again, failure: "the same seed gave two traces" };
}

const seconds = (performance.now() - began) / 1_000;
console.log(`figure: simulator: ${played} seeds, ${happened} events, ${grants} grants, ${seconds.toFixed(1)} s`);
console.log(`${played - failed} passed, ${failed} failed, ${count - played} skipped`);
if (failed > 0) process.exitCode = 1;

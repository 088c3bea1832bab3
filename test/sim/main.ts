/** `npm run sim -- --seeds N [--first S] [--seed S] [--trace] [--as N] [--failures N] [--digest]`: the deterministic simulator. */

import { createHash } from "node:crypto";
import { parseArgs } from "node:util";
import { KNOWN_SEEDS } from "./known-seeds.ts";
import type { Result } from "./play.ts";
import { play } from "./play.ts";

const REPLAY_EACH = 25;

const { values } = parseArgs({
  options: {
    seeds: { type: "string", default: "500" },
    seed: { type: "string" },
    first: { type: "string", default: "1" },
    trace: { type: "boolean", default: false },
    as: { type: "string" },
    failures: { type: "string", default: "5" },
    digest: { type: "boolean", default: false },
  },
});

const first = Number(values.seed ?? values.first);
const count = values.seed === undefined ? Number(values.seeds) : 1;
/** As the simulation was then. */
const then: { readonly as?: number } = values.as === undefined ? {} : { as: Number(values.as) };
const began = performance.now();
let failed = 0;
let happened = 0;
let grants = 0;
let played = 0;
/** Of the seeds that were asked for: two commits that decide alike have the same. A trace has names in it, a verdict none. */
const traces = createHash("sha256");
const verdicts = createHash("sha256");

const known = values.seed === undefined ? KNOWN_SEEDS : [];
for (const { seed, as, found } of known) take(seed, await play(seed, { as }), ` (known: ${found})`, as);
for (let seed = first; seed < first + count && failed < Number(values.failures); seed++) {
  const result = await replayed(seed, await play(seed, { trace: values.trace, ...then }));
  const verdict = `${seed} ${result.failure === null ? "passed" : "failed"} ${result.happened} ${result.grants}`;
  verdicts.update(`${verdict}\n`);
  traces.update(`${verdict} ${result.digest}\n`);
  take(seed, result);
}

function take(seed: number, result: Result, known = "", as = then.as): void {
  played++;
  happened += result.happened;
  grants += result.grants;
  if (result.failure === null) return;
  failed++;
  if (!values.trace) console.log(`\n${result.lines.slice(-60).join("\n")}`);
  // scripts/test says lines that begin so again where the whole run ends
  console.log(`FAILED seed ${seed}${known}: ${result.failure}`);
  console.log(`FAILED     replay: npm run sim -- --seed ${seed}${as === undefined ? "" : ` --as ${as}`} --trace`);
}

/** A failure is of use only if its seed brings it back: now and then the same is played again. */
async function replayed(seed: number, result: Result): Promise<Result> {
  if (seed % REPLAY_EACH !== 0 || result.failure !== null) return result;
  const again = await play(seed, then);
  if (again.digest === result.digest) return result;
  return { ...again, failure: "the same seed gave two traces" };
}

const seconds = (performance.now() - began) / 1_000;
console.log(`figure: simulator: ${played} seeds, ${happened} events, ${grants} grants, ${seconds.toFixed(1)} s`);
if (values.digest) {
  console.log(`digest: ${traces.digest("hex")}`);
  console.log(`verdicts: ${verdicts.digest("hex")}`);
}
console.log(`${played - failed} passed, ${failed} failed, ${known.length + count - played} skipped`);
if (failed > 0) process.exitCode = 1;

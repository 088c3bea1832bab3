/** `npm run sim -- --seeds N [--first S] [--seed S] [--trace] [--as N] [--failures N] [--digest]`: the deterministic simulator. */

import { createHash } from "node:crypto";
import { parseArgs } from "node:util";
import { KNOWN_SEEDS } from "./known-seeds.ts";
import type { SeedResult } from "./run-seed.ts";
import { runSeed } from "./run-seed.ts";

const REPLAY_INTERVAL = 25;

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
const seedCount = values.seed === undefined ? Number(values.seeds) : 1;
/** The revision of the simulation. */
const revision: { readonly revision?: number } = values.as === undefined ? {} : { revision: Number(values.as) };
const startedAt = performance.now();
let failed = 0;
let eventCount = 0;
let grants = 0;
let playedCount = 0;
/** Over the given seeds: two equal commits have the same. A trace has names in it, a verdict none. */
const traces = createHash("sha256");
const verdicts = createHash("sha256");

const seeds = values.seed === undefined ? KNOWN_SEEDS : [];
for (const { seed, revision: recordedRevision, found } of seeds)
  recordResult(seed, await runSeed(seed, { revision: recordedRevision }), ` (known: ${found})`, recordedRevision);
for (let seed = first; seed < first + seedCount && failed < Number(values.failures); seed++) {
  const result = await expectSameReplay(seed, await runSeed(seed, { trace: values.trace, ...revision }));
  const verdict = `${seed} ${result.failure === null ? "passed" : "failed"} ${result.eventCount} ${result.grants}`;
  verdicts.update(`${verdict}\n`);
  traces.update(`${verdict} ${result.digest}\n`);
  recordResult(seed, result);
}

function recordResult(seed: number, result: SeedResult, note = "", recordedRevision = revision.revision): void {
  playedCount++;
  eventCount += result.eventCount;
  grants += result.grants;
  if (result.failure === null) return;
  failed++;
  if (!values.trace) console.log(`\n${result.lines.slice(-60).join("\n")}`);
  // scripts/test repeats lines with this beginning at the end of the complete run
  console.log(`FAILED seed ${seed}${note}: ${result.failure}`);
  console.log(
    `FAILED     replay: npm run sim -- --seed ${seed}${recordedRevision === undefined ? "" : ` --as ${recordedRevision}`} --trace`,
  );
}

/** A failure is useful only if its seed reproduces it: now and then the same seed is played again. */
async function expectSameReplay(seed: number, result: SeedResult): Promise<SeedResult> {
  if (seed % REPLAY_INTERVAL !== 0 || result.failure !== null) return result;
  const secondResult = await runSeed(seed, revision);
  if (secondResult.digest === result.digest) return result;
  return { ...secondResult, failure: "the same seed gave two traces" };
}

const seconds = (performance.now() - startedAt) / 1_000;
console.log(`figure: simulator: ${playedCount} seeds, ${eventCount} events, ${grants} grants, ${seconds.toFixed(1)} s`);
if (values.digest) {
  console.log(`digest: ${traces.digest("hex")}`);
  console.log(`verdicts: ${verdicts.digest("hex")}`);
}
console.log(`${playedCount - failed} passed, ${failed} failed, ${seeds.length + seedCount - playedCount} skipped`);
if (failed > 0) process.exitCode = 1;

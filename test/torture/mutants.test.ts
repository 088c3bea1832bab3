/** A torture that cannot fail proves nothing: with each fault that is put into the code on purpose it must find a violation. */

import { join } from "node:path";
import { expect, test } from "vitest";
import type { Violation } from "../../src/torture/checker.ts";
import { cliSandbox } from "../support/cli-sandbox.ts";
import { IS_LONG_RUN } from "../support/processes/process-harness.ts";
import type { TortureMutant } from "./mutants.ts";
import { TORTURE_MUTANTS } from "./mutants.ts";
import { buildMutatedProgram } from "./mutated-program.ts";

/** In the short form: one in the client, one on the server, one on Redis, of those that are found at once. */
const SHORT = [
  "two leaders at a time, by a lock that does not exclude",
  "one permit too many",
  "on Redis, a token that is not raised at a hand-off",
];
const TIME = IS_LONG_RUN ? "25s" : "15s";
const SEEDS = IS_LONG_RUN ? [1, 2, 3, 4, 5] : [1];
/** A busy machine takes long for the repair and the last requests of a store that a fault has damaged. */
const TIMEOUT = { timeout: IS_LONG_RUN ? 600_000 : 120_000 };

interface Summary {
  readonly violations: readonly Pick<Violation, "invariant" | "message">[];
}

const sandbox = cliSandbox();
const mutants = TORTURE_MUTANTS.filter(({ name }) => IS_LONG_RUN || SHORT.includes(name));

for (const mutant of mutants) {
  test.concurrent(`found: ${mutant.name}`, TIMEOUT, async () => {
    const folder = join(sandbox.folder, `mutant-${TORTURE_MUTANTS.indexOf(mutant)}`);
    const program = await buildMutatedProgram(mutant, folder);
    const missed: number[] = [];
    for (const seed of SEEDS) {
      if (!(await isFound(mutant, program, seed, join(folder, `torture-${seed}`)))) missed.push(seed);
    }
    expect(missed).toEqual([]);
  });
}

/** Whether it violates what it should: the end of a worker, which any test would notice, does not count. */
async function isFound(
  { store, faults, invariants }: TortureMutant,
  program: string,
  seed: number,
  out: string,
): Promise<boolean> {
  const flags = ["--start", store, "--faults", faults.join(","), "--time", TIME, "--seed", String(seed), "--out", out];
  const command = [process.execPath, program, "torture", ...flags, "--json", "--quiet"] as const;
  const { code, out: text } = await sandbox.startProgram(command).ended;
  const { violations } = JSON.parse(text) as Summary;
  expect(code === 1).toBe(violations.length > 0);
  const found = violations.filter(({ message }) => !/^worker \d+ ended/.test(message));
  return found.some(({ invariant }) => invariants.includes(invariant));
}

import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import { seededRandom } from "../support/seeded-random.ts";
import { counting } from "./counting.ts";
import type { Seen } from "./processes.ts";
import { below, commandOf, signal } from "./processes.ts";
import type { Running } from "./scene.ts";
import { LONG, test } from "./scene.ts";

const CONTENDERS = 8;
const ROUNDS = LONG ? 40 : 3;
/** Longer than the next child takes to start, or an overlap would not be seen. */
const HOLD_SECONDS = 0.4;
const KILLING_MS = LONG ? 30_000 : 6_000;

test(`${CONTENDERS} processes that increment one file counter under holdfast run lose no update`, {
  timeout: 120_000,
}, async ({ here }) => {
  const count = counting(here.folder);
  const began = performance.now();
  await Promise.all(
    Array.from({ length: CONTENDERS }, async () => {
      for (let round = 0; round < ROUNDS; round++) {
        const run = here.start(["run", "counter", "--", ...count.command(0.01)]);
        expect(await run.ended, run.err()).toEqual({ code: 0, signal: null });
      }
    }),
  );
  const { faults, counter, longestGap } = count.history();
  expect(faults).toEqual([]);
  expect(counter).toBe(CONTENDERS * ROUNDS);
  const seconds = (performance.now() - began) / 1_000;
  console.log(
    `figure: ${CONTENDERS} contenders under run: ${(counter / seconds).toFixed(1)} turns/s, longest gap ${longestGap.toFixed(2)} s`,
  );
});

test("the same processes without a lock are seen to overlap and to lose updates", async ({ here }) => {
  const count = counting(here.folder);
  const all = Array.from({ length: CONTENDERS }, () => here.program(count.command(0.2)));
  for (const one of all) await one.ended;
  const { faults, counter } = count.history();
  expect(counter).toBeLessThan(CONTENDERS);
  expect(faults.some((fault) => fault.startsWith("the last one was still alive"))).toBe(true);
  expect(faults.some((fault) => fault.startsWith("another one was inside"))).toBe(true);
  expect(faults.some((fault) => fault.startsWith("the counter is"))).toBe(true);
});

const seed = Number(process.env.HOLDFAST_SEED ?? Date.now() % 1_000_000);

test(`wrappers of ${CONTENDERS} contenders killed at random moments: nothing is lost and no two children overlap (HOLDFAST_SEED=${seed})`, {
  timeout: KILLING_MS + 60_000,
}, async ({ here }) => {
  const random = seededRandom(seed);
  const count = counting(here.folder);
  const runs = new Set<Running>();
  const end = performance.now() + KILLING_MS;
  let [kills, killsOfHolders] = [0, 0];
  // on a busy machine it goes on until it was a test
  const isOver = (): boolean => performance.now() >= end && killsOfHolders > 0;
  const contend = async (): Promise<void> => {
    while (!isOver()) {
      const run = here.start(["run", "counter", "--grace", "500ms", "--", ...count.command(HOLD_SECONDS)]);
      runs.add(run);
      const { code, signal: name } = await run.ended;
      runs.delete(run);
      // all went well, or it was killed, or its child was before it (128 + 9): nothing else ends a run
      if (name !== "SIGKILL") expect([0, 137], run.err()).toContain(code);
    }
  };
  const killer = async (): Promise<void> => {
    while (!isOver()) {
      await delay(random.int(300));
      const inside = count.inside();
      const holder = [...runs].find((run) => below(run.pid).some(({ pid }) => pid === inside));
      const victim = random.chance(0.5) ? random.pick([...runs]) : holder;
      if (victim === undefined) continue;
      kills++;
      if (victim === holder) killsOfHolders++;
      killOneOf(victim, random.pick(["wrapper", "wrapper", "and child", "and guard"]));
    }
  };
  await Promise.all([...Array.from({ length: CONTENDERS }, contend), killer()]);
  // a guard may still be at work for a wrapper that was killed last; the lock is free behind it
  const last = here.start(["run", "counter", "--wait", "5s", "--", ...count.command(0)]);
  expect((await last.ended).code, last.err()).toBe(0);

  const { faults, entered, left } = count.history();
  expect(faults).toEqual([]);
  expect(entered - left).toBeLessThanOrEqual(kills);
  // work was done all the same
  expect(left).toBeGreaterThan(0);
  expect(here.everListened()).toHaveLength(1);
  console.log(
    `figure: ${kills} wrappers killed in ${KILLING_MS / 1_000} s, ${killsOfHolders} of them holders: ${entered} children entered, ${left} left, 0 overlaps`,
  );
});

/** kill -9 of a wrapper, or of it and one that belongs to it, in any order. */
function killOneOf(run: Running, what: "wrapper" | "and child" | "and guard"): void {
  const others: Seen[] =
    what === "wrapper" ? [] : below(run.pid).filter(({ pid }) => isGuard(pid) === (what === "and guard"));
  for (const other of others) signal(other, "SIGKILL");
  run.kill();
}

function isGuard(pid: number): boolean {
  return commandOf(pid).includes("holdfast-guard");
}

/**
 * `npm run bench -- --compare BUILD [--rounds N] [SUBJECT...]`: this checkout's build against another one, for a change
 * that must not change what is sent or what it costs. Both are measured within one run on the same machine, each in
 * processes of its own, in turns; the one that goes first alternates. Processes are replaced every few rounds, since
 * where the kernel and the compiler happen to place a process moves all of its rounds.
 *
 * The gates: frames and commands are the same; CPU a pair is at most 5 % more; the rate is at least 95 %. Noise: both
 * are ratios within a round, and a gate fails only if the whole interval of the median ratio (95 %) is beyond the
 * bound. An interval that is wide says little, and is marked so. Rounds of one life resemble each other, so on a busy
 * machine an interval may be too narrow: a build compared with itself (`--compare .`) shows what the machine is good
 * for. With fewer than six rounds there is none, and only the counts are judged.
 */

import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { ChildProcessRpc } from "../harness/child-rpc.ts";
import type { Measured } from "../harness/client.child.ts";
import type { Workload } from "../harness/closed-loop.ts";
import { describeMachine, otherLoads, waitForIdle } from "../harness/machine.ts";
import type { Round } from "../harness/rounds.ts";
import { cpuPerPair, pairRates } from "../harness/rounds.ts";
import type { Interval } from "../harness/stats.ts";
import { computeRatio, medianInterval, quantile } from "../harness/stats.ts";
import type { FixedPairs } from "./build.child.ts";
import type { Build, Store } from "./builds.ts";
import { buildIn, withClient, withStore } from "./builds.ts";
import type { Counts } from "./counts.ts";
import { countFaults, countsOf, perPair } from "./counts.ts";
import type { Subject } from "./subjects.ts";
import { SUBJECTS } from "./subjects.ts";

/** Rounds of one life of the processes. */
const LIFE = 3;
const PATIENCE_MS = 200;
const MOST_CPU = 1.05;
const LEAST_RATE = 0.95;
/** From here on an interval says little, high end by low end. */
const WIDE = 1.15;

interface Side {
  readonly build: Build;
  readonly store: Store;
  readonly client: ChildProcessRpc;
  readonly rounds: Round[];
}

interface Gate {
  readonly what: string;
  /** Null: too few rounds to judge it. */
  readonly passed: boolean | null;
  readonly found: string;
}

interface Comparison extends Pick<Subject, "name" | "title"> {
  readonly rate: { readonly old: number; readonly new: number; readonly ratio: Interval };
  readonly cpu: { readonly old: number; readonly new: number; readonly ratio: Interval };
  readonly counts: Counts | null;
  readonly gates: readonly Gate[];
  readonly rounds: { readonly old: readonly Round[]; readonly new: readonly Round[] };
}

/** @param names of subjects; none: all of them. @returns whether all gates were passed */
export async function compareBuilds(folder: string, rounds: number, names: readonly string[]): Promise<boolean> {
  const unknown = names.filter((name) => !SUBJECTS.some((subject) => subject.name === name));
  if (unknown.length > 0) {
    throw new Error(`no subject ${unknown.join(", ")}; there are ${SUBJECTS.map(({ name }) => name).join(", ")}`);
  }
  const { status } = spawnSync("npm", ["run", "--silent", "build"], { stdio: "inherit" });
  if (status !== 0) throw new Error("npm run build failed");
  const [old, now] = [buildIn("old", folder), buildIn("new", ".")];
  const startedAt = performance.now();
  const date = new Date().toISOString();
  console.log(
    `old ${nameOf(old)}, new ${nameOf(now)}; ${rounds} rounds; Node ${process.version}; ${describeMachine()}`,
  );
  const comparisons: Comparison[] = [];
  for (const subject of SUBJECTS) {
    if (names.length > 0 && !names.includes(subject.name)) continue;
    const comparison = await compare(subject, old, now, rounds);
    comparisons.push(comparison);
    console.log(asLines(comparison).join("\n"));
  }
  const seconds = (performance.now() - startedAt) / 1_000;
  const failed = comparisons.flatMap(({ gates }) => gates.filter(({ passed }) => passed === false));
  const load = quantile(otherLoads(), 0.5);
  const report = { date, old, new: now, node: process.version, machine: describeMachine(), load, seconds, comparisons };
  mkdirSync("bench/results", { recursive: true });
  const file = join("bench/results", `compare-${date.replaceAll(":", "-")}.json`);
  writeFileSync(file, JSON.stringify(report, null, 2));
  const unjudged = comparisons.flatMap(({ gates }) => gates.filter(({ passed }) => passed === null)).length;
  const summary = unjudged === 0 ? "all gates passed" : `no gate failed, ${unjudged} not judged`;
  const outcome = failed.length === 0 ? summary : `${failed.length} gates FAILED`;
  console.log(`${outcome}; ${seconds.toFixed(0)} s; others kept ${load.toFixed(2)} cores busy; ${file}`);
  return failed.length === 0;
}

function nameOf({ commit, changed, isOlder }: Build): string {
  return `${commit}${changed ? " with changes" : ""}${isOlder ? " (BUILT BEFORE THIS COMMIT)" : ""}`;
}

async function compare(subject: Subject, old: Build, now: Build, rounds: number): Promise<Comparison> {
  const counts = subject.countedTimes === 0 ? null : await countsOf(subject, old, now);
  const measured = { old: [] as Round[], new: [] as Round[] };
  const life = subject.warmTimes === 0 ? 1 : LIFE;
  for (let completedRounds = 0; completedRounds < rounds; completedRounds += life) {
    const sides = [old, now] as const;
    // who is started first changes, too: it can matter as much as who goes first
    const [first, second] = (completedRounds / life) % 2 === 0 ? sides : ([now, old] as const);
    await withSide(first, subject, measured[first.name], (side) =>
      withSide(second, subject, measured[second.name], (otherSide) =>
        live(subject, [side, otherSide], Math.min(life, rounds - completedRounds)),
      ),
    );
  }
  const rate = compared(measured.old, measured.new, pairRates);
  const cpu = compared(measured.old, measured.new, cpuPerPair);
  const { name, title } = subject;
  return { name, title, rate, cpu, counts, gates: gatesOf(subject, rate, cpu, counts), rounds: measured };
}

function withSide(build: Build, subject: Subject, rounds: Round[], use: (side: Side) => Promise<void>): Promise<void> {
  return withStore(build, subject, (store) =>
    withClient(build, subject, store.url, (client) => use({ build, store, client, rounds })),
  );
}

async function live(subject: Subject, sides: readonly [Side, Side], rounds: number): Promise<void> {
  const { callers, keys, warmTimes: times } = subject;
  for (const { client } of sides) await client.call("turns", { callers, keys, times } satisfies FixedPairs);
  for (let round = 0; round < rounds; round++) {
    await waitForIdle(PATIENCE_MS);
    for (let turn = 0; turn < sides.length; turn++) {
      const side = sides[(round + turn) % sides.length] as Side;
      const measuredRound = await measureOnce(side, subject);
      side.rounds.push(measuredRound);
    }
  }
}

async function measureOnce({ client, store }: Side, { call, callers, keys, ms, idleMs }: Subject): Promise<Round> {
  await delay(idleMs);
  const before = await store.cpu();
  const measured = await client.call<Measured>(call, { callers, keys, ms, latencies: false } satisfies Workload);
  return { ...measured, serverCpu: (await store.cpu()) - before };
}

function compared(
  old: readonly Round[],
  now: readonly Round[],
  figure: (rounds: readonly Round[]) => readonly number[],
): Comparison["rate"] {
  const [before, after] = [figure(old), figure(now)];
  return {
    old: quantile(before, 0.5),
    new: quantile(after, 0.5),
    ratio: medianInterval(computeRatio(after, before).rounds),
  };
}

function gatesOf(
  subject: Subject,
  { ratio: rate }: Comparison["rate"],
  { ratio: cpu }: Comparison["cpu"],
  counts: Counts | null,
): Gate[] {
  const gates: Gate[] = [];
  if (counts !== null) {
    const faults = countFaults(counts, subject);
    const description = subject.store === "redis" ? "commands identical" : "frames identical";
    gates.push({ what: description, passed: faults.length === 0, found: faults.join("; ") || "the same" });
  }
  const toResult = (passed: boolean, { isSure }: Interval): boolean | null => (isSure ? passed : null);
  gates.push({
    what: `CPU a pair at most ${MOST_CPU}`,
    passed: toResult(cpu.low <= MOST_CPU, cpu),
    found: formatInterval(cpu),
  });
  gates.push({
    what: `rate at least ${LEAST_RATE}`,
    passed: toResult(rate.high >= LEAST_RATE, rate),
    found: formatInterval(rate),
  });
  return gates;
}

function formatInterval({ median, low, high }: Interval): string {
  const text = `${median.toFixed(3)} (${low.toFixed(3)}..${high.toFixed(3)})`;
  return high / low > WIDE ? `${text}, a wide interval: says little` : text;
}

function asLines({ title, rate, cpu, counts, gates }: Comparison): string[] {
  const counted = counts === null ? [] : perPair(counts);
  return [
    title,
    `  pairs/s: old ${rate.old.toFixed(0)}, new ${rate.new.toFixed(0)}, ratio ${formatInterval(rate.ratio)}`,
    `  CPU us a pair: old ${cpu.old.toFixed(2)}, new ${cpu.new.toFixed(2)}, ratio ${formatInterval(cpu.ratio)}`,
    ...(counted.length === 0
      ? []
      : [
          `  a pair: ${counted.map((comparison) => `${comparison.name} ${asCount(comparison.old)} -> ${asCount(comparison.new)}`).join(", ")}`,
        ]),
    ...gates.map(({ what, passed, found }) => `  ${verdict(passed)}  ${what}: ${found}`),
  ];
}

function verdict(passed: Gate["passed"]): string {
  if (passed === null) return "not judged (too few rounds)";
  return passed ? "passed" : "FAILED";
}

function asCount(figure: number): string {
  return Number(figure.toFixed(4)).toString();
}

/** Histories for the tests of the reports: a few operations of five workers, written as the register writes them. */

import type { HistoryEvent, RunHeader } from "../../../../src/torture/history.ts";

export const HEADER: RunHeader = {
  ...{ event: "run", format: 1, seed: 7, subject: "Holdfast 1.2.3", store: "Redis 7.0.15", ttlMs: 1_000, workers: 2 },
  ...{
    seconds: 20,
    faults: ["pause"],
    versions: { holdfast: "1.2.3", node: "v20", kernel: "6.1", store: "Redis 7.0.15" },
  },
};

const MICROS = 1_000;

export interface SampleHold {
  readonly worker: number;
  readonly op: number;
  readonly key?: string;
  readonly token: string;
  /** In milliseconds. */
  readonly from: number;
  readonly to: number;
  /** It asks for it so long before. */
  readonly waitedMs?: number;
}

/** A lock that is held, asked about, used and released. */
export function sampleHold({ worker, op, key = "a", token, from, to, waitedMs = 5 }: SampleHold): HistoryEvent[] {
  const stamp = (ms: number) => ({ at: ms * MICROS, worker, op });
  const request = { kind: "mutex", keys: [key], permits: 1, limit: 1, waitMs: 8_000 } as const;
  return [
    { event: "invoke", ...stamp(from - waitedMs), ...request },
    { event: "granted", ...stamp(from), tokens: { [key]: token } },
    { event: "asked", ...stamp(from), leftMs: 900 },
    { event: "enter", ...stamp(from), key, token, accepted: true, value: 0 },
    { event: "asked", ...stamp((from + to) / 2), leftMs: 800 },
    { event: "write", ...stamp(to - 1), key, token, base: 0, accepted: true, value: 0 },
    { event: "releasing", ...stamp(to) },
    { event: "released", ...stamp(to + 1), wasHeld: true },
  ];
}

export function sampleWorkers(): HistoryEvent[] {
  return [0, 1].map((worker) => ({
    ...{ event: "worker", at: worker, worker, pid: 4_000 + worker, phase: "started", reason: "" },
  }));
}

export function samplePause(id: number, worker: number, from: number, to: number): HistoryEvent[] {
  const fault = { event: "fault", fault: "pause", id, workers: [worker] } as const;
  return [
    { ...fault, at: from * MICROS, phase: "begin" },
    { ...fault, at: to * MICROS, phase: "end" },
  ];
}

export function sampleEnd(at = 10_000): HistoryEvent[] {
  return [
    { event: "healed", at: at * MICROS },
    { event: "stopping", at: (at + 4_000) * MICROS },
    { event: "leftovers", at: (at + 6_000) * MICROS, count: 0 },
  ];
}

/** Workers 0 and 1 in turns: no violation. */
export function goodHistory(key = "a", rounds = 30): HistoryEvent[] {
  const holds = Array.from({ length: rounds }, (_, round) =>
    sampleHold({
      ...{ worker: round % 2, op: round, key, token: String(1_000_001 + round) },
      ...{ from: 1_000 + round * 300, to: 1_050 + round * 300, waitedMs: 270 },
    }),
  );
  return [
    HEADER,
    ...sampleWorkers(),
    ...samplePause(0, 0, 1_020, 1_900),
    ...holds.flat(),
    ...sampleEnd(2_000 + rounds * 300),
  ];
}

/** As the good one; then worker 1 is granted a lock that worker 0 holds. */
export function doubleGrant(key = "a"): HistoryEvent[] {
  const first = sampleHold({ worker: 0, op: 100, key, token: "2000001", from: 6_000, to: 6_400 });
  const second = sampleHold({ worker: 1, op: 100, key, token: "2000002", from: 6_200, to: 6_300 });
  const good = goodHistory(key, 16).slice(0, -sampleEnd().length);
  return [...good, ...samplePause(1, 0, 6_100, 6_350), ...first, ...second, ...sampleEnd()];
}

/** Sections under a lock, with their times on the machine's monotonic clock, which all processes share. */

import { setImmediate as turn } from "node:timers/promises";
import type { Contestant } from "./workload.ts";

const CALLERS = 4;

export interface Section {
  /** Microseconds: when the caller saw the grant, and when it called release. */
  readonly from: number;
  readonly to: number;
  /** The fencing token in decimal, where there is one. */
  readonly token: string | null;
}

/** Four callers on one key; each section lasts for some turns of the event loop. */
export async function exclusionSections(contestant: Contestant, ms: number): Promise<Section[]> {
  const sections: Section[] = [];
  const until = performance.now() + ms;
  async function caller(): Promise<void> {
    while (performance.now() < until) {
      const held = await contestant.acquire("bench:exclusion");
      const from = micros();
      const token = contestant.tokenOf?.(held).toString() ?? null;
      await turn();
      await turn();
      sections.push({ from, to: micros(), token });
      await contestant.release(held);
    }
  }
  await Promise.all(Array.from({ length: CALLERS }, caller));
  return sections;
}

/** How often a section began before the one before it had ended, and how often its token did not rise. */
export function faultsOf(sections: readonly Section[]): { readonly overlaps: number; readonly tokens: number } {
  const ordered = sections.toSorted((a, b) => a.from - b.from);
  let overlaps = 0;
  let tokens = 0;
  let before: Section | null = null;
  for (const section of ordered) {
    if (before !== null && section.from < before.to) overlaps++;
    if (before?.token && section.token && BigInt(section.token) <= BigInt(before.token)) tokens++;
    before = section;
  }
  return { overlaps, tokens };
}

function micros(): number {
  return Number(process.hrtime.bigint() / 1_000n);
}

/** Sections under a lock, with their times on the machine's monotonic clock, which all processes share. */

import { setImmediate as turn } from "node:timers/promises";
import type { LockImplementation } from "./closed-loop.ts";

const CALLER_COUNT = 4;

export interface CriticalSection {
  /** Microseconds: when the caller saw the grant, and when it called release. */
  readonly from: number;
  readonly to: number;
  /** The fencing token in decimal, where there is one. */
  readonly token: string | null;
}

/** Four callers on one key; each section lasts for some turns of the event loop. */
export async function recordCriticalSections(
  implementation: LockImplementation,
  ms: number,
): Promise<CriticalSection[]> {
  const sections: CriticalSection[] = [];
  const endsAt = performance.now() + ms;
  async function caller(): Promise<void> {
    while (performance.now() < endsAt) {
      const held = await implementation.acquire("bench:exclusion");
      const from = nowMicros();
      const token = implementation.tokenOf?.(held).toString() ?? null;
      await turn();
      await turn();
      sections.push({ from, to: nowMicros(), token });
      await implementation.release(held);
    }
  }
  await Promise.all(Array.from({ length: CALLER_COUNT }, caller));
  return sections;
}

/** How often a section began before the one before it had ended, and how often its token did not rise. */
export function countFaults(sections: readonly CriticalSection[]): {
  readonly overlaps: number;
  readonly tokens: number;
} {
  const ordered = sections.toSorted((a, b) => a.from - b.from);
  let overlaps = 0;
  let tokens = 0;
  let before: CriticalSection | null = null;
  for (const section of ordered) {
    if (before !== null && section.from < before.to) overlaps++;
    if (before?.token && section.token && BigInt(section.token) <= BigInt(before.token)) tokens++;
    before = section;
  }
  return { overlaps, tokens };
}

function nowMicros(): number {
  return Number(process.hrtime.bigint() / 1_000n);
}

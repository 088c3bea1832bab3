import { setTimeout as delay, setImmediate as turn } from "node:timers/promises";

export type UntilOptions = {
  /** Milliseconds after which the wait fails. */
  readonly within: number;
  /** What was waited for, as the failure will say it: "the second holder". */
  readonly what: string;
};

const POLL_MS = 5;

/**
 * Waits until a fact holds, and gives it back. The fact is asked once more after the bound has passed, when what
 * came meanwhile has been heard, so a machine that stood still in between does not fail the test.
 */
export async function until<T>(
  condition: () => T | Promise<T>,
  { within, what }: UntilOptions,
): Promise<NonNullable<T>> {
  const end = performance.now() + within;
  for (;;) {
    const isLate = performance.now() >= end;
    // timers come before what stands in sockets and pipes: this one may be the first to run after a standstill
    if (isLate) await turn();
    const value = await condition();
    if (value) return value;
    if (isLate) throw new Error(`waited ${within} ms in vain for ${what}`);
    await delay(POLL_MS);
  }
}

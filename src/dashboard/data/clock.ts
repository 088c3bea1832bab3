/** One clock for all that moves on the page: it ticks once a second while the page is visible. */

import { useStored, ValueStore } from "./value-store.ts";

const TICK_MS = 1_000;

const ticks = new ValueStore(performance.now());
let timer: ReturnType<typeof setInterval> | null = null;

/** Starts the clock of the page. */
export function startClock(): void {
  document.addEventListener("visibilitychange", adapt);
  adapt();
}

function adapt(): void {
  if (timer !== null) clearInterval(timer);
  timer = document.hidden ? null : setInterval(tick, TICK_MS);
  tick();
}

function tick(): void {
  ticks.set(performance.now());
}

/** The time of the last tick, in the milliseconds of performance.now(). The component is drawn again with each tick. */
export function useTick(): number {
  return useStored(ticks);
}

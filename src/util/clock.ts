/** Time, as the client, the server and the memory driver see it: passed in, so that tests can move it. */

import { uptime } from "node:os";

/** One re-armable timer. */
export interface Timer {
  /** Call the timer's function at `due` on the clock's now() scale, replacing what was set; null: never. */
  set(due: number | null): void;
  /** Does a pending call keep the process alive? False at first. */
  keepAlive(on: boolean): void;
  /** Nothing is pending any more, nor is anything kept for a later set(). */
  stop(): void;
}

/** How a client, a server or the memory driver sees time: the machine's, or one that a test moves. */
export interface Clock {
  /** Milliseconds from an arbitrary start; never goes back, may stand still while the machine sleeps. */
  now(): number;
  /** Wall clock, milliseconds since 1970; may step either way. For tokens and for noticing sleep, never for leases. */
  wall(): number;
  /** Milliseconds that also count while the machine sleeps; coarse. */
  uptime(): number;
  /** A timer that calls `run`; nothing is set at first. */
  timer(run: () => void): Timer;
}

/** setTimeout fires at once for a longer delay; a longer wait is made of several. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** The machine's clock. */
export const systemClock: Clock = {
  now: () => performance.now(),
  wall: () => Date.now(),
  uptime: () => uptime() * 1_000,
  timer: createSystemTimer,
};

/**
 * A timer that costs nothing when it is set, unset and set again in quick succession, as an uncontended lock does: it is
 * only re-armed for an earlier due time, and lets the process go one turn of the event loop late.
 */
function createSystemTimer(run: () => void): Timer {
  let handle: NodeJS.Timeout | null = null;
  let due: number | null = null;
  let firesAt = 0;
  let keepsAlive = false;
  let isRef = false;
  let isRefPending = false;

  function fire(): void {
    handle = null;
    if (due === null) return;
    // it may fire up to a millisecond early, and a later due time does not re-arm it
    if (due > performance.now()) {
      arm(due);
      return;
    }
    due = null;
    run();
  }

  function arm(fireAt: number): void {
    const delay = Math.min(Math.max(Math.ceil(fireAt - performance.now()), 0), MAX_TIMEOUT_MS);
    firesAt = performance.now() + delay;
    handle = setTimeout(fire, delay);
    if (!isRef) handle.unref();
  }

  function setRef(): void {
    isRefPending = false;
    isRef = keepsAlive;
    if (isRef) handle?.ref();
    else handle?.unref();
  }

  return {
    set(newDue) {
      due = newDue;
      if (newDue === null) return;
      if (handle === null) {
        arm(newDue);
      } else if (newDue < firesAt - 1 && performance.now() < firesAt - 1) {
        // else it fires as soon as a timer can: of a thousand that are due each would arm it anew
        clearTimeout(handle);
        arm(newDue);
      }
    },
    keepAlive(isOn) {
      if (keepsAlive === isOn) return;
      keepsAlive = isOn;
      if (isOn && !isRef) {
        setRef();
      } else if (!isOn && !isRefPending) {
        isRefPending = true;
        setImmediate(setRef);
      }
    },
    stop() {
      due = null;
      if (handle !== null) clearTimeout(handle);
      handle = null;
    },
  };
}

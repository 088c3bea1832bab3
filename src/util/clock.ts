/** The clock of the client, the server and the memory driver: passed in, so that tests can control time. */

import { uptime } from "node:os";
import { MAX_TIMEOUT_MS } from "./duration.ts";

/** A timer that can be set again. */
export interface Timer {
  /** Calls the timer's function at `due` on the clock's now() scale, instead of the time set before; null: never. */
  set(due: number | null): void;
  /** Does a pending call keep the process alive? False at first. */
  keepAlive(on: boolean): void;
  /** Cancels a pending call and frees the underlying timer. */
  stop(): void;
}

/** The source of time of a client, a server or the memory driver: the system's, or one that a test controls. */
export interface Clock {
  /** Milliseconds from an arbitrary start. Never goes back; may stop while the machine is suspended. */
  now(): number;
  /** The wall clock, in milliseconds since 1970; may step. For tokens and to detect a suspension, never for leases. */
  wall(): number;
  /** Milliseconds from an arbitrary start that also count while the machine is suspended; coarse. */
  uptime(): number;
  /** Creates a timer that calls `run`; it is not set at first. */
  timer(run: () => void): Timer;
}

/** The clock of the system. */
export const systemClock: Clock = {
  now: () => performance.now(),
  wall: () => Date.now(),
  uptime: () => uptime() * 1_000,
  timer: createSystemTimer,
};

/**
 * A timer that is cheap to set, unset and set again in quick succession, as an uncontended lock does: it re-arms its timeout
 * only for an earlier due time, and calls unref() one turn of the event loop late.
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
    // setTimeout may fire up to a millisecond early, and a later due time has not re-armed it
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
        // not if the timeout is about to fire anyway: with many due items each would re-arm it
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

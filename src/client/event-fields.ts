/** What events tell of a request: its number, its mode, and how it ended. */

import { ClosedError, LockTimeoutError } from "../errors.ts";
import type { LockSpec } from "../spi/driver.ts";
import { ALL_PERMITS } from "../spi/driver.ts";
import type { FailedOutcome, LockMode } from "./events.ts";

export function modeOf(locks: readonly LockSpec[]): LockMode {
  if (locks.some(({ limit }) => limit !== ALL_PERMITS)) return "semaphore";
  return locks.every(({ permits }) => permits === ALL_PERMITS) ? "exclusive" : "shared";
}

export function outcomeOf(error: unknown): FailedOutcome {
  if (error === null) return "busy";
  if (error instanceof LockTimeoutError) return "timeout";
  return error instanceof ClosedError ? "cancelled" : "error";
}

let lastRequest = 0;

/** Requests are numbered by process, since channels have the events of all clients. */
export function nextRequest(): number {
  return ++lastRequest;
}

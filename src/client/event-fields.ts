/** What events tell of a request: its number, and how it ended. */

import { ClosedError, LockTimeoutError } from "../errors.ts";
import type { FailedOutcome } from "./events.ts";

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

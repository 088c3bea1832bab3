/** How old what a page shows is, and why. */

import type { Pause } from "../../spi/driver.ts";
import { formatClock } from "./time-format.ts";

/** What is known of the attempts to read. Times are those of one clock in this page. */
export interface ReadState {
  /** When the store answered what is shown; null: it has never answered. */
  readonly readAt: number | null;
  readonly intervalMs: number;
  /** Why the newest attempt to read the store failed, as the gateway says. */
  readonly storeFailure: string | null;
  /** Why the gateway could not be asked. */
  readonly requestFailure: string | null;
}

/** "loading": nothing has been read yet; "stale": the gateway answers, and what it knows is old; "disconnected": it does not answer. */
export interface Freshness {
  readonly state: "loading" | "live" | "stale" | "disconnected";
  readonly ageMs: number;
  /** null: nothing has failed. */
  readonly reason: string | null;
}

/** After so many intervals without a reading what is shown is old. */
const LATE_INTERVALS = 3;

/** True: the next reading should have been there for a while. */
export function isLate({ readAt, intervalMs }: Pick<ReadState, "readAt" | "intervalMs">, now: number): boolean {
  return readAt !== null && now - readAt > LATE_INTERVALS * intervalMs;
}

export function judgeFreshness(read: ReadState, now: number): Freshness {
  const { readAt, storeFailure, requestFailure } = read;
  const ageMs = readAt === null ? 0 : Math.max(0, now - readAt);
  if (requestFailure !== null) return { state: "disconnected", ageMs, reason: requestFailure };
  if (readAt === null) return { state: "loading", ageMs, reason: storeFailure };
  if (storeFailure !== null) return { state: "stale", ageMs, reason: storeFailure };
  return { state: isLate(read, now) ? "stale" : "live", ageMs, reason: null };
}

const PAUSE_REASONS: Readonly<Record<Pause["reason"], string>> = {
  recovery: "recovery after a restart",
  gracePeriod: "grace period: the store may have lost data",
};

/** Until when a store grants nothing. @param until in milliseconds since 1970 */
export function describePause({ reason }: Pause, until: number): string {
  return `The store grants no new locks until ${formatClock(until)} at the latest (${PAUSE_REASONS[reason]}).`;
}

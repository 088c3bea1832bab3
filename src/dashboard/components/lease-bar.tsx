/** What is left of a lease: a bar that moves, and the time. */

import { measureLease } from "../model/lease-scale.ts";
import { formatAge } from "../model/time-format.ts";
import { Icon } from "./icons.tsx";

interface LeaseBarProps {
  /** What was left when the list was read; null: it lasts as long as its session. */
  readonly remainingMs: number | null;
  /** The time since then. */
  readonly elapsedMs: number;
  readonly lengthMs: number;
}

export function LeaseBar({ remainingMs, elapsedMs, lengthMs }: LeaseBarProps) {
  if (remainingMs === null) {
    return (
      <span class="lease">
        <span class="lease-session">session</span>
      </span>
    );
  }
  const leftMs = Math.max(0, remainingMs - elapsedMs);
  const { part, level } = measureLease(leftMs, lengthMs);
  return (
    <span class={`lease lease-${level}`}>
      <span class="lease-track" aria-hidden="true">
        <span class="lease-fill" style={{ transform: `scaleX(${part.toFixed(3)})` }} />
      </span>
      <span class="lease-time">{formatAge(leftMs)}</span>
      {level === "critical" && (
        <span class="lease-alarm">
          <Icon name="lost" />
          <span class="visually-hidden">almost over</span>
        </span>
      )}
    </span>
  );
}

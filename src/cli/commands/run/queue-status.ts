/** Describes the holder and the queue of a key, from the store's list of claims. */

import type { ClaimView, Pause } from "../../../spi/driver.ts";
import { formatDuration } from "../../../util/duration.ts";
import { escapeControl } from "../../output.ts";

/** The holder of a key and the number of claims ahead. */
export interface QueueStatus {
  /** The label of the first holder; undefined: the key is not held. */
  readonly holder?: string;
  /** For how long the first holder has held the key; if the store does not report that, the age of its claim. */
  readonly heldForMs?: number;
  /** How long ago the lease was last renewed; undefined for a session claim. */
  readonly renewedAgoMs?: number;
  /** The store grants no new locks. */
  readonly paused?: Pause;
  /** Claims before our own, including the holders. */
  readonly ahead: number;
}

/** The status of a queue for a waiter with this label; null: not a waiter, or not any more. */
export function toQueueStatus(views: readonly ClaimView[], key: string, label: string | null): QueueStatus {
  const queue = views.filter(({ holds }) => holds.some((hold) => hold.key === key));
  const ownIndex =
    label === null ? -1 : queue.findIndex((view) => view.label === label && view.answer.state === "waiting");
  const frontHolder = queue.find(({ answer }) => answer.state === "held");
  const ahead = ownIndex === -1 ? queue.length : ownIndex;
  if (frontHolder === undefined) return { ahead };
  const { answer, ttlMs } = frontHolder;
  const renewal =
    answer.state === "held" && ttlMs !== "session" ? { renewedAgoMs: Math.max(ttlMs - answer.ttlMs, 0) } : {};
  return { holder: frontHolder.label, heldForMs: frontHolder.heldMs ?? frontHolder.ageMs, ahead, ...renewal };
}

function describePause({ reason, remainingMs }: Pause): string {
  const reasonText =
    reason === "recovery"
      ? "the lock server is recovering after a restart and grants no new locks"
      : "the store may have lost data and grants no new locks until all earlier leases have ended";
  return `${reasonText}, for at most ${formatDuration(remainingMs)}`;
}

/** `held by ana@web-1 pid 4121 (node) for 12 m, lease renewed 3 s ago, 2 ahead of you` */
export function describeQueue({ holder, heldForMs, renewedAgoMs, paused, ahead }: QueueStatus): string {
  const parts: string[] = [];
  if (paused !== undefined) parts.push(describePause(paused));
  if (holder !== undefined) {
    const since = heldForMs === undefined ? "" : ` for ${formatDuration(heldForMs)}`;
    parts.push(`held by ${escapeControl(holder)}${since}`);
    if (renewedAgoMs !== undefined) parts.push(`lease renewed ${formatDuration(renewedAgoMs)} ago`);
  }
  if (ahead > 0) parts.push(`${ahead} ahead of you`);
  return parts.length === 0 ? "no longer held" : parts.join(", ");
}

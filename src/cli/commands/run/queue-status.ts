/** Who is in the way, in words: from the store's list of a key. */

import type { ClaimView, Pause } from "../../../spi/driver.ts";
import { formatDuration } from "../../../util/duration.ts";
import { escapeControl } from "../../output.ts";

/** Who holds a key and how many stand before us. */
export interface QueueStatus {
  /** The front holder's label; undefined: nobody holds it. */
  readonly holder?: string;
  /** How long the front holder has held it; where the store does not tell, for how long it has known its claim. */
  readonly heldForMs?: number;
  /** How long ago its lease was last renewed, where the lease has a length. */
  readonly renewedAgoMs?: number;
  /** The store grants nothing new to anyone. */
  readonly paused?: Pause;
  /** Claims before ours, holders included. */
  readonly ahead: number;
}

/** What the claims of a line say to somebody who waits with this label (null: who does not wait, or not any more). */
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
      ? "the lock server was restarted and still hears from its clients who holds what"
      : "the store may have lost data and grants nothing new until what was held before has ended";
  return `${reasonText}, for ${formatDuration(remainingMs)} at most`;
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
  return parts.length === 0 ? "nobody holds it any more" : parts.join(", ");
}

/** Who stood in the way when a wait ended: one look at the store's queue. */

import { shownDuration } from "../duration.ts";
import type { Blocked } from "../errors.ts";
import { LockTimeoutError, pauseText } from "../errors.ts";
import { tagOf } from "../ids.ts";
import type { ClaimId, ClaimView, Hold, Pause } from "../spi/driver.ts";
import type { LaneHost } from "./lane-host.ts";
import type { Queue } from "./lookups.ts";
import { PATIENCE_MS } from "./lookups.ts";
import { named } from "./tenure.ts";
import { within } from "./within.ts";

export interface Obstacle {
  readonly holds: readonly Hold[];
  readonly keys: readonly string[];
  /** Our claim at the store, if we have one. */
  readonly id: ClaimId | null;
  /** Local requests before ours. */
  readonly localAhead: number;
  readonly waitedMs: number;
  /** The store grants nothing new to anyone. */
  readonly paused: Pause | undefined;
}

/** The error for a wait that has ended. Never rejects: an unreachable store leaves the obstacle unnamed. */
export async function timeoutError(host: LaneHost, obstacle: Obstacle): Promise<LockTimeoutError> {
  const { keys, waitedMs, paused } = obstacle;
  const blocked = await within(host.engine, PATIENCE_MS, look(host, obstacle), nothing).catch(nothing);
  const waited = waitedMs === 0 ? "not free" : `waited ${shownDuration(waitedMs)}`;
  const parts = [`${waited} for ${named(keys)}`];
  if (blocked.holder !== undefined) {
    parts.push(`held by ${blocked.holder} for ${shownDuration(blocked.heldForMs ?? 0)}`);
  }
  if (paused !== undefined) parts.push(pauseText(paused));
  if (waitedMs > 0 && blocked.ahead !== undefined) parts.push(`${blocked.ahead} ahead of us`);
  const [first, ...rest] = parts;
  return new LockTimeoutError(
    rest.length === 0 ? `${first}` : `${first}: ${rest.join(", ")}`,
    paused === undefined ? blocked : { ...blocked, paused },
    { keys },
  );
}

/** Why the store cannot tell is not this error's subject. */
const nothing = (): Blocked => ({});

/** The obstacle on the first of the keys that somebody holds before us, another request of this client among them. */
async function look({ engine, lookups }: LaneHost, { holds, id, localAhead }: Obstacle): Promise<Blocked> {
  const until = engine.clock.now() + PATIENCE_MS;
  const mine = id === null ? null : tagOf(id);
  for (const { key } of holds) {
    if (engine.clock.now() >= until) break;
    const queue = await lookups.queueOf(key);
    const holder = queue.views.find(({ answer, tag }) => answer.state === "held" && (localAhead > 0 || tag !== mine));
    if (holder !== undefined) return describe(queue, holder, engine.clock.now(), mine, localAhead);
  }
  return localAhead > 0 ? { ahead: localAhead } : {};
}

function describe(
  { views, seenAt }: Queue,
  holder: ClaimView,
  now: number,
  mine: string | null,
  localAhead: number,
): Blocked {
  const place = views.findIndex(({ tag }) => tag === mine);
  const ahead = (place === -1 ? views.length : place) + localAhead;
  return { holder: holder.label, heldForMs: (holder.heldMs ?? holder.ageMs) + now - seenAt, ahead };
}

/** Who stood in the way when a wait ended: one look at the store's line. */

import { shownDuration } from "../duration.ts";
import type { Blocked } from "../errors.ts";
import { LockTimeoutError } from "../errors.ts";
import { tagOf } from "../ids.ts";
import type { ClaimId, ClaimView, Hold } from "../spi/driver.ts";
import type { Engine } from "./engine.ts";
import { attempt } from "./releases.ts";
import { named } from "./tenure.ts";
import { within } from "./within.ts";

/** A wait that is over is not made much longer by asking why. */
const PATIENCE_MS = 500;
const MOST_LOOKED_AT = 1_000;

export interface Obstacle {
  readonly holds: readonly Hold[];
  readonly keys: readonly string[];
  /** Our claim at the store, if we have one. */
  readonly id: ClaimId | null;
  /** Local requests before ours. */
  readonly localAhead: number;
  readonly waitedMs: number;
}

/** The error for a wait that has ended. Never rejects: an unreachable store leaves the obstacle unnamed. */
export async function timeoutError(engine: Engine, obstacle: Obstacle): Promise<LockTimeoutError> {
  const { keys, waitedMs } = obstacle;
  const blocked = await within(engine, PATIENCE_MS, look(engine, obstacle), nothing).catch(nothing);
  const waited = waitedMs === 0 ? "not free" : `waited ${shownDuration(waitedMs)}`;
  const parts = [`${waited} for ${named(keys)}`];
  if (blocked.holder !== undefined) {
    parts.push(`held by ${blocked.holder} for ${shownDuration(blocked.heldForMs ?? 0)}`);
  }
  if (waitedMs > 0 && blocked.ahead !== undefined) parts.push(`${blocked.ahead} ahead of us`);
  const [first, ...rest] = parts;
  return new LockTimeoutError(rest.length === 0 ? `${first}` : `${first}: ${rest.join(", ")}`, blocked, { keys });
}

/** Why the store cannot tell is not this error's subject. */
const nothing = (): Blocked => ({});

/** The obstacle on the first of the keys that somebody holds before us, another request of this client among them. */
async function look(engine: Engine, { holds, id, localAhead }: Obstacle): Promise<Blocked> {
  const mine = id === null ? null : tagOf(id);
  for (const { key } of holds) {
    const views = await attempt(() => engine.driver.list(key, MOST_LOOKED_AT));
    const line = views.filter((view) => view.holds.some((hold) => hold.key === key));
    const holder = line.find((view) => view.answer.state === "held" && (localAhead > 0 || view.tag !== mine));
    if (holder !== undefined) return describe(line, holder, mine, localAhead);
  }
  return localAhead > 0 ? { ahead: localAhead } : {};
}

function describe(line: readonly ClaimView[], holder: ClaimView, mine: string | null, localAhead: number): Blocked {
  const place = line.findIndex(({ tag }) => tag === mine);
  const ahead = (place === -1 ? line.length : place) + localAhead;
  return { holder: holder.label, heldForMs: holder.ageMs, ahead };
}

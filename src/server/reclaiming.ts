/** The time after an unclean start in which clients tell what they had (design A.5). */

import type { Entry } from "../core/entry.ts";
import { standingOf } from "../core/standing.ts";
import type { Table } from "../core/table.ts";
import type { Reclaimed } from "../protocol/frames.ts";
import type { Answer, ClaimId } from "../spi/driver.ts";
import { isLong } from "./durability.ts";
import type { Session } from "./session.ts";

export class Reclaiming {
  /** When it ends at the latest, on the clock's scale. */
  readonly openAt: number;
  /** Sessions that may hold and have not told yet; null: there may be others than we know of. */
  readonly #awaited: Set<string> | null;

  constructor(openAt: number, awaited: ReadonlySet<string> | null) {
    this.openAt = openAt;
    this.#awaited = awaited === null ? null : new Set(awaited);
  }

  /** The session has told all it had, or its process is gone. */
  done(sessionId: string): void {
    this.#awaited?.delete(sessionId);
  }

  isOver(now: number): boolean {
    return now >= this.openAt || this.#awaited?.size === 0;
  }
}

/** Which claims may be taken back. */
export interface Admission {
  /** Is it still the time for it? */
  readonly reclaiming: boolean;
  /** Tokens from before this start lie below it. */
  readonly boundAtStart: number;
  readonly now: number;
  readonly micros: number;
  /** Makes a claim that stands the session's. */
  readonly own: (entry: Entry) => void;
}

/** Takes back what the session says that it had; gives where each claim stands now. The table's time has been set. */
export function takeBack(table: Table, session: Session, items: readonly Reclaimed[], rule: Admission): Answer[] {
  for (const item of items) takeBackOne(table, session, item, rule);
  // only now, since of two that conflict the later one may be the one that stays
  return items.map(({ claim }) => standing(table, claim.id, rule));
}

function takeBackOne(table: Table, session: Session, { claim, was }: Reclaimed, rule: Admission): void {
  const { reclaiming, boundAtStart, now, micros } = rule;
  const by = session.principal.name;
  if (!reclaiming || table.entries.has(claim.id) || table.endings.reasonOf(claim.id) !== undefined) return;
  if (was.state === "waiting") {
    table.claim({ ...claim, wait: true }, session, now, micros, was.arrival, by);
    return;
  }
  const token = Number(was.token);
  const leftMs = claim.ttlMs === "session" ? 0 : Math.min(was.leftMs, claim.ttlMs);
  // what is long was in the journal, or was never granted
  if (token + was.tokens > boundAtStart || isLong(claim.ttlMs) || (claim.ttlMs !== "session" && leftMs <= 0)) return;
  table.assertHeld(claim, session, token, was.tokens, leftMs, by);
}

function standing(table: Table, id: ClaimId, { own, now }: Admission): Answer {
  const entry = table.entries.get(id);
  if (entry === undefined) return table.endings.none(id);
  if (entry.revoked !== null) return { state: "none", reason: entry.revoked };
  own(entry);
  table.unpark(id);
  return standingOf(entry, now, table.sessionMs);
}

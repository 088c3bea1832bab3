/** The time after an unclean start in which clients tell what they had (design A.5). */

import type { Clock } from "../clock.ts";
import type { Entry } from "../core/entry.ts";
import { standingOf } from "../core/standing.ts";
import type { Table } from "../core/table.ts";
import type { Reclaimed } from "../protocol/frames.ts";
import type { Answer, Claim, ClaimId } from "../spi/driver.ts";
import { isLong, SHORT_MS } from "./durability.ts";
import type { Session } from "./session.ts";
import type { Time } from "./times.ts";

export interface ReclaimingOptions {
  readonly table: Table;
  readonly clock: Clock;
  /** Tokens from before this start lie below it; new ones do not. */
  readonly boundAtStart: number;
  /** How long at most; 0: there is nothing to reclaim. */
  readonly reclaimMs: number;
  /** Sessions that may hold and have not told yet; null: there may be others than we know of. */
  readonly awaited: ReadonlySet<string> | null;
  /** Called once, when it is over. */
  readonly opened: () => void;
}

export class Reclaiming {
  readonly #table: Table;
  readonly #clock: Clock;
  readonly #boundAtStart: number;
  readonly #awaited: Set<string> | null;
  readonly #opened: () => void;
  /** When it ends at the latest, on the clock's scale; Infinity: it has ended. */
  openAt: number;

  constructor({ table, clock, boundAtStart, reclaimMs, awaited, opened }: ReclaimingOptions) {
    this.#table = table;
    this.#clock = clock;
    this.#boundAtStart = boundAtStart;
    this.#awaited = awaited === null ? null : new Set(awaited);
    this.#opened = opened;
    this.openAt = reclaimMs > 0 ? clock.now() + reclaimMs : Number.POSITIVE_INFINITY;
  }

  get isOn(): boolean {
    return this.openAt !== Number.POSITIVE_INFINITY;
  }

  /** Milliseconds until it is over; 0: it is. */
  leftMs(): number {
    return this.isOn ? Math.max(this.openAt - this.#clock.now(), 1) : 0;
  }

  /** May this claim have been held before the restart, although we know nothing of it? */
  mayHaveBeen(id: ClaimId): boolean {
    return this.isOn && !this.#table.entries.has(id) && this.#table.endings.reasonOf(id) === undefined;
  }

  /** The same of one that is given back; then nobody may take it back any more. */
  givenBack(id: ClaimId): boolean {
    const mayBe = this.mayHaveBeen(id);
    if (mayBe) this.#table.bury(id, SHORT_MS);
    return mayBe;
  }

  /** Takes back what the session says that it had; last: it has told all. */
  takeBack(session: Session, items: readonly Reclaimed[], last: boolean, { now, micros }: Time, host: Host): Answer[] {
    this.#table.advance(now, micros);
    const rule = { reclaiming: this.isOn, boundAtStart: this.#boundAtStart, now, micros, ...host };
    const answers = takeBack(this.#table, session, items, rule);
    if (last) this.told(session);
    return answers;
  }

  /** The session has told all it had, or its process is gone. */
  told(session: Session): void {
    this.#awaited?.delete(session.id);
    this.endIfOver();
  }

  endIfOver(): void {
    if (!this.isOn || (this.#clock.now() < this.openAt && this.#awaited?.size !== 0)) return;
    this.openAt = Number.POSITIVE_INFINITY;
    this.#opened();
  }
}

/** Who counts the claims of each session. */
export interface Host {
  /** Is there room for it? */
  readonly fits: (claim: Claim, isHeld: boolean) => boolean;
  /** Makes a claim that stands the session's, and counts it. */
  readonly own: (entry: Entry) => void;
}

/** Which claims may be taken back. */
interface Admission extends Host {
  /** Is it still the time for it? */
  readonly reclaiming: boolean;
  readonly boundAtStart: number;
  readonly now: number;
  readonly micros: number;
}

/** Gives where each claim stands now. The table's time has been set. */
function takeBack(table: Table, session: Session, items: readonly Reclaimed[], rule: Admission): Answer[] {
  for (const item of items) takeBackOne(table, session, item, rule);
  // only now, since of two that conflict the later one may be the one that stays
  return items.map(({ claim }) => standing(table, claim.id, rule));
}

function takeBackOne(table: Table, session: Session, { claim, was }: Reclaimed, rule: Admission): void {
  const { reclaiming, boundAtStart, now, micros } = rule;
  const by = session.principal.name;
  if (!reclaiming || table.entries.has(claim.id) || table.endings.reasonOf(claim.id) !== undefined) return;
  if (!rule.fits(claim, was.state === "held")) return;
  if (was.state === "waiting") table.claim({ ...claim, wait: true }, session, now, micros, was.arrival, by);
  else {
    const token = Number(was.token);
    const leftMs = claim.ttlMs === "session" ? 0 : Math.min(was.leftMs, claim.ttlMs);
    // what is long was in the journal, or was never granted
    if (token + was.tokens > boundAtStart || isLong(claim.ttlMs) || (claim.ttlMs !== "session" && leftMs <= 0)) return;
    table.assertHeld(claim, session, token, was.tokens, leftMs, by);
  }
  // at once: the next one of this frame may be one too many
  const entry = table.entries.get(claim.id);
  if (entry !== undefined) rule.own(entry);
}

function standing(table: Table, id: ClaimId, { own, now }: Admission): Answer {
  const entry = table.entries.get(id);
  if (entry === undefined) return table.endings.none(id);
  if (entry.revoked !== null) return { state: "none", reason: entry.revoked };
  own(entry);
  table.unpark(id);
  return standingOf(entry, now, table.sessionMs);
}

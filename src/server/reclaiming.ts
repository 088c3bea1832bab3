/** The time after an unclean start in which clients tell what they had (design A.5). */

import type { Clock } from "../clock.ts";
import type { Entry } from "../core/entry.ts";
import { standingOf } from "../core/standing.ts";
import type { Table } from "../core/table.ts";
import type { Reclaimed } from "../protocol/frames.ts";
import type { Answer, Claim, ClaimId } from "../spi/driver.ts";
import type { RecoveryReason, SavedRecovery } from "./disk.ts";
import { isLong, SHORT_MS } from "./durability.ts";
import type { Session } from "./session.ts";
import type { Time } from "./times.ts";

/** How a start begins. */
export interface RecoveryPlan {
  /** Why there is something to reclaim; null: there is nothing. */
  readonly reason: RecoveryReason | null;
  /** How long to reclaim at most; 0: open at once. */
  readonly reclaimMs: number;
  /** Tokens from before this start lie below it; new ones do not. Infinity: that is not known. */
  readonly boundAtStart: number;
  /** Ids of the sessions that may hold something and have not told yet; null: there may be others than we know of. */
  readonly awaited: ReadonlySet<string> | null;
  /** Long and detached claims may be missing from the journal: they are taken back like others. */
  readonly takesLong: boolean;
}

/** Nothing from before this start can be held, but for what came back from disk. */
export const NO_RECOVERY: RecoveryPlan = {
  reason: null,
  reclaimMs: 0,
  boundAtStart: 0,
  awaited: null,
  takesLong: false,
};

const WHY: Readonly<Record<RecoveryReason, string>> = {
  crash: "the last server did not stop cleanly",
  stateless: "nothing is kept of the last run",
  missing: "the state file is missing from a folder that has been in use",
  runs: "the file of a run is damaged",
  outdated:
    "a client has seen a later state than this one: an older copy of the state folder was put back, or it was emptied",
};

/** Why nothing new is granted, and for how long at most. For people. */
export function recoveryText(reason: RecoveryReason, leftMs: number): string {
  return `${WHY[reason]}: granting nothing new for up to ${Math.ceil(leftMs / 1_000)} s`;
}

export interface ReclaimingOptions {
  readonly table: Table;
  readonly clock: Clock;
  readonly plan: RecoveryPlan;
  /** Called when it is over. */
  readonly opened: () => void;
  /** Called when a client has shown that the state is older than what it has seen. */
  readonly outdated: () => void;
}

export class Reclaiming {
  readonly #table: Table;
  readonly #clock: Clock;
  readonly #opened: () => void;
  readonly #outdated: () => void;
  /** Short leases from before this start have ended by then. */
  readonly #allOverAt: number;
  #boundAtStart: number;
  #awaited: Set<string> | null;
  #takesLong: boolean;
  #reason: RecoveryReason | null;
  /** When it ends at the latest, on the clock's scale; Infinity: it has ended. */
  openAt: number;

  constructor({ table, clock, plan, opened, outdated }: ReclaimingOptions) {
    const { reason, boundAtStart, reclaimMs, awaited, takesLong } = plan;
    this.#table = table;
    this.#clock = clock;
    this.#reason = reason;
    this.#boundAtStart = boundAtStart;
    this.#awaited = awaited === null ? null : new Set(awaited);
    this.#takesLong = takesLong;
    this.#opened = opened;
    this.#outdated = outdated;
    this.#allOverAt = clock.now() + SHORT_MS;
    this.openAt = reclaimMs > 0 ? clock.now() + reclaimMs : Number.POSITIVE_INFINITY;
  }

  /** Why nothing new is granted now; null: it is. */
  get reason(): RecoveryReason | null {
    return this.isOn ? this.#reason : null;
  }

  /** What the next start is to go on with, should this one end cleanly; null: nothing. */
  saved(): SavedRecovery | null {
    if (this.reason === null) return null;
    const bound = Number.isFinite(this.#boundAtStart) ? this.#boundAtStart : null;
    return { reason: this.reason, leftMs: this.leftMs(), bound, awaited: this.#awaited && [...this.#awaited] };
  }

  /**
   * A client has seen a later state than ours: the folder was emptied, or an older copy of it was put back. Others may hold
   * what we know nothing of, as long as the leases of before our start can last; so the rest of that time is a recovery.
   * Later than that nobody holds by a short lease what we have not heard of.
   */
  begin(): void {
    if (this.#boundAtStart === Number.POSITIVE_INFINITY || this.#clock.now() >= this.#allOverAt) return;
    this.#reason = "outdated";
    this.#boundAtStart = Number.POSITIVE_INFINITY;
    this.#awaited = null;
    this.#takesLong = true;
    this.openAt = this.isOn ? Math.max(this.openAt, this.#allOverAt) : this.#allOverAt;
    this.#table.pause();
    this.#outdated();
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
    if (items.some((item) => this.#isOfLaterState(item, micros))) this.begin();
    const known = { boundAtStart: this.#boundAtStart, takesLong: this.#takesLong };
    const rule = { reclaiming: this.isOn, ...known, now, micros, ...host };
    const answers = takeBack(this.#table, session, items, rule);
    if (last) this.told(session);
    return answers;
  }

  /** It was granted by a server that our state knows nothing of. What no server can have granted shows nothing. */
  #isOfLaterState({ claim, was }: Reclaimed, micros: number): boolean {
    return (
      was.state === "held" &&
      !this.#table.entries.has(claim.id) &&
      this.#table.endings.reasonOf(claim.id) === undefined &&
      Number(was.token) + was.tokens > this.#boundAtStart &&
      this.#table.mint.reaches(BigInt(was.token), micros)
    );
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
  readonly takesLong: boolean;
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
  const { reclaiming, boundAtStart, takesLong, now, micros } = rule;
  const by = session.principal.name;
  if (!reclaiming || table.entries.has(claim.id) || table.endings.reasonOf(claim.id) !== undefined) return;
  if (!rule.fits(claim, was.state === "held")) return;
  if (was.state === "waiting") table.claim({ ...claim, wait: true }, session, now, micros, was.arrival, by);
  else {
    const token = Number(was.token);
    const leftMs = claim.ttlMs === "session" ? 0 : Math.min(was.leftMs, claim.ttlMs);
    if (token + was.tokens > boundAtStart || !table.mint.reaches(BigInt(was.token), micros)) return;
    // what is long was in the journal, or was never granted
    if ((isLong(claim.ttlMs) && !takesLong) || (claim.ttlMs !== "session" && leftMs <= 0)) return;
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

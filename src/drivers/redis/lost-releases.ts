/**
 * Gives claims back that the store still has although this client has released them. A fail-over loses the releases that the promoted
 * replica has not received, so it may have a holder that is gone, or grant to a waiter that is gone, and others would wait for the
 * whole lease. The pushes that such a claim gets show it: the client does not have the claim.
 *
 * Those pushes may be lost while its process subscribes again, and a first waiter that is gone does not recheck. So after a
 * break all that wait recheck early: a recheck recalls the holders again.
 */

import type { Answer, ClaimId } from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";

/** How long after a break of the connection the first recall counts and waiting claims recheck early, in milliseconds. */
const AFTER_BREAK_MS = 60_000;
/** The first recheck after a break; the next ones come after 400 ms, 800 ms and so on. */
const EARLY_RECHECK_MS = 200;
/** How many recalled claims are remembered. */
const MAX_RECALLED = 1_000;

/** The key of a grant or of a recall, after its bucket (lua/lib/admission.lua). */
const GRANT = /^(\S+) \d+ \d+ \d+ [hr]\S* (.+)$/s;
const RECALL = /^(\S+) recalled (.+)$/s;

export class LostReleases {
  readonly #clock: Clock;
  /** Releases the claim with this id on this key. It may fail: the next push repeats it. */
  readonly #giveBack: (id: ClaimId, bucketAndKey: string) => void;
  #lastBreakAt = Number.NEGATIVE_INFINITY;
  /**
   * Claims that were recalled once. Without a break that recall has crossed the release, most likely; if the store has lost the
   * release, the recheck of the waiter repeats the recall.
   */
  readonly #recalled = new Set<ClaimId>();

  constructor(clock: Clock, giveBack: (id: ClaimId, bucketAndKey: string) => void) {
    this.#clock = clock;
    this.#giveBack = giveBack;
  }

  /** The connection broke: another server may have become master. */
  onBreak(): void {
    this.#lastBreakAt = this.#clock.now();
  }

  /** The answer to a call, with an early recheck if the connection broke a short time ago. `isNew`: the claim was made by the call. */
  toRecheckEarly(answer: Answer, isNew: boolean): Answer {
    if (answer.state !== "waiting") return answer; // most renewals are those of held locks: they read no clock
    const sinceBreakMs = this.#clock.now() - this.#lastBreakAt;
    if (sinceBreakMs > AFTER_BREAK_MS) return answer;
    const earlyMs = isNew ? EARLY_RECHECK_MS : Math.max(sinceBreakMs, EARLY_RECHECK_MS);
    return { ...answer, recheckMs: Math.min(answer.recheckMs, earlyMs) };
  }

  /** A push about a claim that this client does not have. */
  onPush(message: string): void {
    const [, recalledId, recalledKey] = RECALL.exec(message) ?? [];
    if (recalledId !== undefined && recalledKey !== undefined) {
      if (this.#isFirst(recalledId) && this.#clock.now() - this.#lastBreakAt > AFTER_BREAK_MS) return;
      return this.#giveBack(recalledId, recalledKey);
    }
    const [, id, bucketAndKey] = GRANT.exec(message) ?? [];
    if (id !== undefined && bucketAndKey !== undefined) this.#giveBack(id, bucketAndKey);
  }

  #isFirst(id: ClaimId): boolean {
    if (this.#recalled.delete(id)) return false;
    if (this.#recalled.size === MAX_RECALLED) this.#recalled.delete(this.#recalled.keys().next().value as ClaimId);
    this.#recalled.add(id);
    return true;
  }
}

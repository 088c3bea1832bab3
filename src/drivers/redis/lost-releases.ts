/**
 * Gives claims back that the store still has although this client has released them. A fail-over loses the releases that the promoted
 * replica has not received, so it may have a holder that is gone, or grant to a waiter that is gone, and others would wait for the
 * whole lease. The pushes that such a claim gets show it: the client does not have the claim.
 *
 * Those pushes may be lost while its process subscribes again, and a first waiter that is gone does not recheck. So after a
 * break all that wait recheck early: a recheck recalls the holders again.
 *
 * Readers, permits and claims in strict order are never recalled: a recall would go to all holders of the key. Their last releases are
 * sent again after a break.
 */

import type { Answer, Claim, ClaimId } from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";
import { toBucket } from "./key-names.ts";

/** How long after a break of the connection the first recall counts and waiting claims recheck early, in milliseconds. */
const AFTER_BREAK_MS = 60_000;
/** The first recheck after a break; the next ones come after 400 ms, 800 ms and so on. */
const EARLY_RECHECK_MS = 200;
/** How many recalled claims are remembered. */
const MAX_RECALLED = 1_000;

/** Between this many and twice as many releases of claims that are not recalled are kept. */
const MAX_GENERATION = 2_000;

/** The key of a grant or of a recall, after its bucket (lua/lib/admission.lua). */
const GRANT = /^(\S+) \d+ \d+ \d+ [hr]\S* (.+)$/s;
const RECALL = /^(\S+) recalled (.+)$/s;

/** A release that the store has confirmed. */
interface ConfirmedRelease {
  readonly id: ClaimId;
  readonly key: string;
  readonly at: number;
}

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
  /** Of claims that are not recalled. */
  #current: ConfirmedRelease[] = [];
  #previous: ConfirmedRelease[] = [];

  constructor(clock: Clock, giveBack: (id: ClaimId, bucketAndKey: string) => void) {
    this.#clock = clock;
    this.#giveBack = giveBack;
  }

  /** The store has confirmed the release of this claim. */
  onReleased({ id, recall, locks: [{ key }] }: Claim): void {
    if (recall === true) return;
    if (this.#current.length === MAX_GENERATION) {
      this.#previous = this.#current;
      this.#current = [];
    }
    this.#current.push({ id, key, at: this.#clock.now() });
  }

  /**
   * The connection broke, and is there again: another server may have become master.
   * @param isReleased has this client made no call for the claim since? See RecentReleases
   */
  onBreak(isReleased: (id: ClaimId) => boolean): void {
    this.#lastBreakAt = this.#clock.now();
    for (const { id, key, at } of [...this.#previous, ...this.#current]) {
      if (this.#lastBreakAt - at <= AFTER_BREAK_MS && isReleased(id)) this.#giveBack(id, `${toBucket(key)}${key}`);
    }
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

/**
 * Gives claims back that the store still has although this client has released them. A fail-over loses the releases
 * that the promoted replica has not received, so it may have a holder that is gone, or grant to a waiter that is gone,
 * and others would wait for the whole lease. The pushes that such a claim gets show it: the client does not have the
 * claim.
 *
 * Those pushes may be lost while its process subscribes again, and a first waiter that is gone does not recheck. So
 * after a break all that wait recheck early: a recheck recalls the holders again.
 *
 * Readers, permits and claims in strict order are never recalled: a recall would go to all holders of the key. Their
 * last releases are sent again after a break.
 */

import type { Answer, Claim, ClaimId } from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";
import { RecentReleases } from "../recent-releases.ts";
import type { DecodedPush } from "../reply-codec.ts";
import { toBucket } from "./key-names.ts";

/**
 * How long after a break of the connection the first recall counts and waiting claims recheck early, in milliseconds.
 */
const AFTER_BREAK_MS = 60_000;
/** The first recheck after a break; the next ones come after 400 ms, 800 ms and so on. */
const EARLY_RECHECK_MS = 200;
/** How many recalled claims are remembered. */
const MAX_RECALLED = 1_000;

/** Between this many and twice as many releases of claims that are not recalled are kept. */
const MAX_GENERATION = 2_000;

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
  readonly #recentReleases = new RecentReleases();
  #lastBreakAt = Number.NEGATIVE_INFINITY;
  /**
   * Claims that were recalled once. Without a break that recall has crossed the release, most likely; if the store has
   * lost the release, the recheck of the waiter repeats the recall.
   */
  readonly #recalled = new Set<ClaimId>();
  /** Of claims that are not recalled. */
  #current: ConfirmedRelease[] = [];
  #previous: ConfirmedRelease[] = [];

  constructor(clock: Clock, giveBack: (id: ClaimId, bucketAndKey: string) => void) {
    this.#clock = clock;
    this.#giveBack = giveBack;
  }

  /** A `claim` call is about to be sent. */
  onClaim(id: ClaimId): void {
    this.#recentReleases.onClaim(id);
  }

  /** A release is about to be sent. */
  onRelease(id: ClaimId): void {
    this.#recentReleases.onRelease(id);
  }

  /** The store has confirmed the release of this claim. */
  onReleased({ id, recall, locks: [{ key }] }: Claim): void {
    this.#recentReleases.onReleased(id);
    if (recall === true) return;
    if (this.#current.length === MAX_GENERATION) {
      this.#previous = this.#current;
      this.#current = [];
    }
    this.#current.push({ id, key, at: this.#clock.now() });
  }

  /** The connection broke, and is there again: another server may have become master. */
  onBreak(): void {
    this.#lastBreakAt = this.#clock.now();
    for (const { id, key, at } of [...this.#previous, ...this.#current]) {
      if (this.#lastBreakAt - at <= AFTER_BREAK_MS && this.#recentReleases.has(id))
        this.#giveBack(id, `${toBucket(key)}${key}`);
    }
  }

  /**
   * The answer to a call, with an early recheck if the connection broke a short time ago. `isNew`: the claim was made
   * by the call.
   */
  toRecheckEarly(answer: Answer, isNew: boolean): Answer {
    if (answer.state !== "waiting") return answer; // most renewals are those of held locks: they read no clock
    const sinceBreakMs = this.#clock.now() - this.#lastBreakAt;
    if (sinceBreakMs > AFTER_BREAK_MS) return answer;
    const earlyMs = isNew ? EARLY_RECHECK_MS : Math.max(sinceBreakMs, EARLY_RECHECK_MS);
    return { ...answer, recheckMs: Math.min(answer.recheckMs, earlyMs) };
  }

  /** Whether the push is about a claim that this client has released. Gives such a claim back. */
  onPush({ id, isRecall, bucketAndKey }: DecodedPush): boolean {
    if (!this.#recentReleases.has(id)) return false;
    const isCrossing = isRecall === true && this.#isFirst(id) && this.#clock.now() - this.#lastBreakAt > AFTER_BREAK_MS;
    if (bucketAndKey !== undefined && !isCrossing) this.#giveBack(id, bucketAndKey);
    return true;
  }

  #isFirst(id: ClaimId): boolean {
    if (this.#recalled.delete(id)) return false;
    if (this.#recalled.size === MAX_RECALLED) this.#recalled.delete(this.#recalled.keys().next().value as ClaimId);
    this.#recalled.add(id);
    return true;
  }
}

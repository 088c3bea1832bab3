/**
 * Leaving is certain (design A.15): a release is sent until it is answered, or until the store has forgotten the claim
 * by itself: one ttl after its last claim or renew was sent. A session's claim is never forgotten while the session
 * lives; whoever waits to hear of its release is told after that time that nothing is known, and it is sent on.
 *
 * Invariant: the store's "it was not there" is only believed of the first and only release sent; a repeated one finds
 * nothing although all was well.
 */

import type { Clock } from "../clock.ts";
import { backoffMs } from "../core/backoff.ts";
import type { Schedule } from "../core/schedule.ts";
import { isFatal } from "../errors.ts";
import type { Claim, ClaimId, Driver } from "../spi/driver.ts";
import { batchesOf } from "./batches.ts";
import type { Timed } from "./timed.ts";
import { timed } from "./timed.ts";

const LONGEST_RETRY_MS = 2_000;

/** true, false: what the store said; null: it never said, or its word is worth nothing. */
export type Released = (wasThere: boolean | null) => void;

/** A claim on its way out. */
export interface Leaving {
  readonly claim: Claim;
  readonly ttlMs: number;
  readonly unanswered: boolean;
  /** The store has forgotten the claim by then. */
  readonly giveUpAt: number;
  done: Released;
  /** How often a release of this claim was sent; another Leaving for the same claim counts too. */
  attempts: number;
}

export interface ReleasesOptions {
  readonly driver: Driver;
  readonly clock: Clock;
  readonly random: () => number;
  readonly schedule: Schedule<Timed>;
  /** The schedule has changed. */
  readonly arm: () => void;
  /** The part of the store that keeps this claim has answered. */
  readonly heard: (leaving: Leaving) => void;
  /** It has not, or has failed, when it was asked then. */
  readonly failed: (leaving: Leaving, sentAt: number, error: unknown) => void;
}

export class Releases {
  readonly #options: ReleasesOptions;
  #pending: Leaving[] = [];
  #scheduled = false;
  #underWay = 0;
  #stopped = false;
  #whenIdle: (() => void)[] = [];

  constructor(options: ReleasesOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#underWay;
  }

  /** Release this claim, in one call with all others of this turn. */
  add(claim: Claim, ttlMs: number, unanswered: boolean, lastSentAt: number, done: Released): Leaving {
    this.#underWay++;
    const leaving = { claim, ttlMs, unanswered, giveUpAt: lastSentAt + ttlMs, done, attempts: 0 };
    this.#queue(leaving);
    return leaving;
  }

  /** Sends what has gathered; before a claim of the same turn, so that it does not queue behind its own predecessor. */
  flush(): void {
    if (this.#pending.length === 0) return;
    const leaving = this.#pending;
    this.#pending = [];
    for (const batch of batchesOf(leaving, this.#options.driver)) this.#send(batch);
  }

  /** Settles when nothing is left to release. */
  idle(): Promise<void> {
    if (this.#underWay === 0) return Promise.resolve();
    return new Promise((resolve) => this.#whenIdle.push(resolve));
  }

  /** What fails from now on is not sent again: the store learns of it by the end of a lease or session. */
  stop(): void {
    this.#stopped = true;
  }

  #queue(leaving: Leaving): void {
    this.#pending.push(leaving);
    if (this.#scheduled) return;
    this.#scheduled = true;
    queueMicrotask(() => {
      this.#scheduled = false;
      this.flush();
    });
  }

  #send(leaving: readonly Leaving[]): void {
    const { driver, clock, schedule, arm } = this.#options;
    let settled = false;
    const settle = (answers: readonly boolean[] | null, error: unknown): void => {
      if (settled) return;
      settled = true;
      schedule.remove(batch);
      const first = leaving[0] as Leaving;
      if (answers?.length === leaving.length) {
        this.#options.heard(first);
        return this.#finishAll(leaving, answers);
      }
      const odd = new Error(`${driver.name}: release answered for ${answers?.length} of ${leaving.length}`);
      this.#options.failed(first, now, error ?? odd);
      // who waits for the end of all releases would wait in vain: asking again is useless
      if (isFatal(error) && this.#whenIdle[0]) this.#finishAll(leaving);
      else this.#retry(leaving);
    };
    const batch = timed(() => settle(null, new Error("the store did not answer in time")));
    const now = clock.now();
    let until = Number.POSITIVE_INFINITY;
    let unanswered: Set<ClaimId> | undefined;
    for (const one of leaving) {
      one.attempts++;
      until = Math.min(until, now + one.ttlMs / 6, one.giveUpAt > now ? one.giveUpAt : Number.POSITIVE_INFINITY);
      if (!one.unanswered) continue;
      unanswered ??= new Set();
      unanswered.add(one.claim.id);
    }
    schedule.set(batch, until);
    arm();
    const claims = leaving.map(({ claim }) => claim);
    attempt(() => driver.release(claims, unanswered)).then(
      (answers) => settle(answers, null),
      (error: unknown) => settle(null, error),
    );
  }

  #retry(leaving: readonly Leaving[]): void {
    const { clock, random, schedule, arm } = this.#options;
    const now = clock.now();
    const left = this.#remembered(leaving, now);
    const first = left[0];
    if (first === undefined) return;
    const batch = timed(() => {
      for (const one of this.#remembered(left, clock.now())) this.#queue(one);
    });
    let at = now + backoffMs(first.attempts, random(), LONGEST_RETRY_MS);
    for (const { giveUpAt } of left) if (giveUpAt > now) at = Math.min(at, giveUpAt);
    schedule.set(batch, at);
    arm();
  }

  /** Those that the store may still know; who waits for the others is told. */
  #remembered(leaving: readonly Leaving[], now: number): readonly Leaving[] {
    return leaving.filter((one) => {
      if (this.#stopped || (now >= one.giveUpAt && one.claim.ttlMs !== "session")) {
        this.#finish(one, null);
        return false;
      }
      if (now >= one.giveUpAt) {
        one.done(null);
        one.done = () => undefined;
      }
      return true;
    });
  }

  #finishAll(leaving: readonly Leaving[], answers: readonly boolean[] = []): void {
    for (const [index, one] of leaving.entries()) this.#finish(one, answers[index] ?? null);
  }

  #finish(leaving: Leaving, wasThere: boolean | null): void {
    this.#underWay--;
    leaving.done(leaving.attempts === 1 || wasThere === true ? wasThere : null);
    if (this.#underWay > 0) return;
    this.#options.arm(); // nothing keeps the process any more
    for (const resolve of this.#whenIdle.splice(0)) resolve();
  }
}

/** A driver that throws where it should reject is treated alike. */
export function attempt<T>(call: () => Promise<T>): Promise<T> {
  try {
    return call();
  } catch (error) {
    return Promise.reject(error);
  }
}

/**
 * How a client closes. Its states, and what may happen in each:
 *
 *   open       requests are served
 *   draining   from the first close() on, for at most `drain`. In one turn the waits end with ClosedError, idle cached
 *              locks are released, and every holder is told: `lock.closing` is aborted. A request is refused with
 *              ClosedError, also one made by a holder. What is held stays held and is renewed; a release or detach is
 *              sent as usual, so that other processes go on at once. It ends when no holder is left, or its time is over
 *   releasing  the holders that are left lose their locks: `lock.signal` is aborted with the reason "released", and
 *              then the release is sent. Lasts until the store has answered, at most 5 s (client.ts)
 *   closed     no timer and no connection is left
 *
 * A holder is whatever has a lock and has not released it: the function of using(), wrap() or @locked(), a request in
 * middleware, a job, the body of a leader's loop, or code that has called acquire(). One whose lock was lost is waited
 * for, too: the key of a revoked one is locked until its release.
 *
 * Invariants
 * - A holder is told before it loses its lock, and loses it before the release is sent. With a drain of 0 it is told in
 *   the same turn.
 * - No hold begins after the holders were told. So the number of those that are left only falls.
 * - A call of close() does not wait for the locks of its own async flow, as the function that calls it cannot end before
 *   it: it would wait for itself. They are kept as long as another holder is waited for, and then lost.
 * - A later close() joins the first one. With an option `drain` of its own it can make the drain shorter, never longer.
 */

import type { ClosedError } from "../errors.ts";
import type { Timer } from "../util/clock.ts";
import type { Scheduler } from "./scheduler.ts";

/** A local hold, as far as its client closes. */
export interface DrainedHold {
  startClosing(drain: Drain): void;
}

export class Drain {
  /** The reason of `lock.closing`, and the error of waits that end. */
  readonly error: ClosedError;
  #endsAt: number;
  readonly #holds = new Set<DrainedHold>();
  /** Held by flows that wait for close() themselves. */
  readonly #ownHolds = new Set<DrainedHold>();
  #timer: Timer | null = null;
  #settle: (() => void) | null = null;

  constructor(error: ClosedError, endsAt: number) {
    this.error = error;
    this.#endsAt = endsAt;
  }

  /** From now on its end is waited for. */
  add(hold: DrainedHold): void {
    if (!this.#ownHolds.has(hold)) this.#holds.add(hold);
  }

  /** Called when its holder has released or detached it. */
  remove(hold: DrainedHold): void {
    if (this.#holds.delete(hold)) this.#settleIfOver();
  }

  /** close() is called by a flow that has this hold. */
  exempt(hold: DrainedHold): void {
    this.#ownHolds.add(hold);
    this.remove(hold);
  }

  shorten(drainMs: number, now: number): void {
    const endsAt = now + drainMs;
    if (endsAt >= this.#endsAt) return;
    this.#endsAt = endsAt;
    this.#timer?.set(endsAt);
    if (drainMs === 0) this.#settle?.();
  }

  /** Settles when all holds have ended, or the time is over. */
  async wait(scheduler: Scheduler): Promise<void> {
    if (this.#holds.size === 0 || scheduler.now() >= this.#endsAt) return;
    // a holder whose lock was lost has no claim that keeps the process alive
    scheduler.ref();
    await new Promise<void>((resolve) => {
      this.#settle = resolve;
      this.#timer = scheduler.timer(resolve);
      this.#timer.set(this.#endsAt);
    });
    this.#timer?.stop();
    this.#timer = null;
    scheduler.unref();
  }

  #settleIfOver(): void {
    if (this.#holds.size === 0) this.#settle?.();
  }
}

/**
 * Waiting and holding over HTTP. A claim waits as long as a request does; between two requests its place is kept for a
 * short time, and grants pass over it (design A.6). What is granted is detached at once, so it belongs to whoever has the
 * reference, and outlives the client, the connection and a crash of the server (design A.23).
 */

import type { Answer, Claim, ClaimId, LostReason, Pause } from "../../spi/driver.ts";
import type { Clock, Timer } from "../../util/clock.ts";
import { DeadlineHeap } from "../../util/deadline-heap.ts";
import type { Principal } from "../auth/access-control.ts";
import type { Backend } from "../backend.ts";
import { RequestError } from "../backend.ts";
import type { Logger } from "../config/logger.ts";
import type { LockService } from "../service.ts";
import { callBackend, PendingClaim, renewAll } from "./pending-claim.ts";

/** How long a place is kept after a request that waited for it has been answered. */
export const WAIT_GRACE_MS = 10_000;
/** The shortest time between two looks at a place. */
const MIN_RENEW_MS = 20;

/** How a request for a claim ended. */
export type ClaimOutcome =
  | { readonly state: "held"; readonly claim: Claim; readonly token: bigint; readonly ttlMs: number }
  | { readonly state: "waiting"; readonly claim: Claim; readonly paused?: Pause | undefined }
  | { readonly state: "none"; readonly reason: LostReason; readonly paused?: Pause | undefined };

export class PendingClaims {
  readonly #backend: Backend;
  readonly #service: LockService;
  readonly #clock: Clock;
  readonly #timer: Timer;
  readonly #claims = new Map<ClaimId, PendingClaim>();
  readonly #deadlines = new DeadlineHeap<PendingClaim>();
  readonly #log: Logger;
  #isDraining = false;

  constructor(service: LockService) {
    const { backend, clock, log } = service;
    this.#backend = backend;
    this.#service = service;
    this.#log = log;
    this.#clock = clock;
    this.#timer = clock.timer(() => this.#onTimer());
  }

  /** Places that are waited for, or kept until somebody waits for them again. */
  get size(): number {
    return this.#claims.size;
  }

  /** Places a claim and waits until it is held, at most until `deadline`. `disconnected`: nobody is left to be answered. */
  async claim(principal: Principal, claim: Claim, deadline: number, disconnected: AbortSignal): Promise<ClaimOutcome> {
    const pending = new PendingClaim(principal, claim, this.#clock.now());
    let answer: Answer;
    try {
      pending.lastCallAt = this.#clock.now();
      answer = await callBackend(this.#service, () => this.#backend.claim(pending.session, claim));
    } catch (error) {
      this.#endClaim(pending);
      throw error;
    }
    return this.#waitForGrant(pending, answer, deadline, disconnected);
  }

  /** Goes on waiting for a claim that was answered "waiting" before, by this server or by the one before a restart. */
  async wait(principal: Principal, claim: Claim, deadline: number, disconnected: AbortSignal): Promise<ClaimOutcome> {
    const existing = this.find(principal, claim.id);
    if (existing === null) return unknownOutcome();
    const pending = existing ?? new PendingClaim(principal, claim, this.#clock.now());
    pending.session.principal = principal;
    pending.session.disconnectedAt = null;
    pending.notification = null;
    const answer = await this.#renew(pending);
    if (answer.state === "waiting") {
      this.#backend.resume(pending.session);
      this.#service.endTurn();
    }
    return this.#waitForGrant(pending, answer, deadline, disconnected);
  }

  /** The place of a claim that is still waited for; null: it is another account's. */
  find(principal: Principal, id: ClaimId): PendingClaim | null | undefined {
    const pending = this.#claims.get(id);
    return pending === undefined || pending.session.principal.name === principal.name ? pending : null;
  }

  /** Nothing is left of it, and its claim has been seen to. `lossReason`: what a request that waits for it is told. */
  remove(pending: PendingClaim, lossReason: LostReason | null = null): void {
    pending.lossReason = lossReason;
    pending.session.isEnded = true;
    this.#deadlines.remove(pending);
    if (this.#claims.get(pending.claim.id) === pending) this.#claims.delete(pending.claim.id);
    pending.wake?.();
  }

  /** Every request that waits is answered that it waits; places stay, as they do between two requests. */
  drain(): void {
    this.#isDraining = true;
    for (const pending of this.#claims.values()) pending.wake?.();
  }

  /** The accounts have changed: who waits by a credential that is gone waits no more. */
  revalidatePrincipals(): void {
    for (const pending of [...this.#claims.values()]) {
      if (!pending.session.principal.isValid) this.#endClaim(pending);
    }
  }

  close(): void {
    this.#timer.stop();
    this.#claims.clear();
  }

  async #renew(pending: PendingClaim): Promise<Answer> {
    const { session, claim } = pending;
    pending.lastCallAt = this.#clock.now();
    const [answer] = await renewAll(this.#service, session, [claim]);
    return answer as Answer;
  }

  async #waitForGrant(
    pending: PendingClaim,
    firstAnswer: Answer,
    deadline: number,
    disconnected: AbortSignal,
  ): Promise<ClaimOutcome> {
    try {
      return await this.#waitUntilSettled(pending, firstAnswer, deadline, disconnected);
    } catch (error) {
      // its place stays for a while, as at the end of every wait
      if (!pending.session.isEnded) this.#keepForGrace(pending);
      throw error;
    }
  }

  async #waitUntilSettled(
    pending: PendingClaim,
    firstAnswer: Answer,
    deadline: number,
    disconnected: AbortSignal,
  ): Promise<ClaimOutcome> {
    let answer = firstAnswer;
    for (;;) {
      if (pending.notification !== null) answer = await this.#takeNotification(pending);
      if (answer.state === "none") {
        this.remove(pending);
        return { state: "none", reason: answer.reason ?? "unknown", paused: answer.paused };
      }
      if (disconnected.aborted || !pending.session.principal.isValid) {
        this.#endClaim(pending);
        return unknownOutcome();
      }
      if (answer.state === "held") return this.#detachGrant(pending, answer, disconnected);
      this.#claims.set(pending.claim.id, pending);
      if (this.#clock.now() >= deadline || this.#isDraining) {
        this.#keepForGrace(pending);
        return { state: "waiting", claim: pending.claim, paused: answer.paused };
      }
      const isStillOurs = await this.#waitForChange(pending, answer, deadline, disconnected);
      if (!isStillOurs) return { state: "waiting", claim: pending.claim, paused: answer.paused };
      // given back by another request meanwhile
      if (pending.lossReason !== null) return { state: "none", reason: pending.lossReason };
      if (pending.notification === null && !disconnected.aborted && !this.#isDraining)
        answer = await this.#renew(pending);
    }
  }

  async #takeNotification(pending: PendingClaim): Promise<Answer> {
    const { notification } = pending;
    pending.notification = null;
    // a grant that is told without being asked for lengthens no lease: how much is left of it is not known
    return notification !== null && notification !== "ask" && notification.state === "none"
      ? notification
      : this.#renew(pending);
  }

  /** Until something may have changed. False: another request waits for this place now. */
  async #waitForChange(
    pending: PendingClaim,
    answer: Answer & { state: "waiting" },
    deadline: number,
    disconnected: AbortSignal,
  ): Promise<boolean> {
    let wake = (): void => undefined;
    const woken = new Promise<void>((resolve) => {
      wake = resolve;
    });
    pending.wake?.();
    pending.wake = wake;
    disconnected.addEventListener("abort", wake);
    this.#schedule(pending, Math.min(deadline, this.#nextRenewAt(answer)));
    await woken;
    disconnected.removeEventListener("abort", wake);
    if (pending.wake !== wake) return false;
    pending.wake = null;
    return true;
  }

  /** It is held: from now on by whoever has the reference. */
  async #detachGrant(
    pending: PendingClaim,
    answer: Answer & { state: "held" },
    disconnected: AbortSignal,
  ): Promise<ClaimOutcome> {
    const { claim, session } = pending;
    const endsAt = pending.lastCallAt + answer.ttlMs;
    // not ours: it was detached before, and the answer got lost
    if (!this.#backend.hasClaims(session)) {
      this.remove(pending);
      return heldOutcome(endsAt, this.#clock.now(), claim, answer.token);
    }
    let results: readonly boolean[];
    try {
      results = await callBackend(this.#service, () => this.#backend.detach(session, [claim.id]));
    } catch (error) {
      this.#endClaim(pending);
      throw error;
    }
    if (!results[0]) {
      const current = await this.#renew(pending);
      this.#endClaim(pending);
      return { state: "none", reason: (current.state === "none" ? current.reason : undefined) ?? "unknown" };
    }
    this.remove(pending);
    const outcome = heldOutcome(endsAt, this.#clock.now(), claim, answer.token);
    if (disconnected.aborted || outcome.state === "none") {
      await callBackend(this.#service, () =>
        this.#backend.release(session, [{ id: claim.id, unansweredTtl: undefined }]),
      );
    }
    return outcome;
  }

  /** Nobody waits for it any more, for a while. */
  #keepForGrace(pending: PendingClaim): void {
    const now = this.#clock.now();
    pending.wake = null;
    pending.expiresAt = now + WAIT_GRACE_MS;
    pending.session.disconnectedAt = now;
    this.#backend.suspend(pending.session);
    this.#schedule(pending, this.#nextUnattendedRenewAt(pending, now));
    this.#service.endTurn();
  }

  /** Keeps a place that nobody waits for at the moment, or gives it up. */
  async #renewUnattended(pending: PendingClaim): Promise<void> {
    const now = this.#clock.now();
    if (now >= pending.expiresAt) return this.#endClaim(pending);
    try {
      const answer = await this.#renew(pending);
      if (answer.state === "none") this.remove(pending);
    } catch (error) {
      // the next wait will be told, if it is still so
      if (!(error instanceof RequestError)) this.#log("a place in line could not be kept", error);
    }
    if (!pending.session.isEnded && pending.wake === null)
      this.#schedule(pending, this.#nextUnattendedRenewAt(pending, this.#clock.now()));
  }

  #endClaim(pending: PendingClaim): void {
    if (pending.session.isEnded) return;
    this.remove(pending);
    this.#backend.endClaims(pending.session, "all");
    this.#service.endTurn();
  }

  /** When a waiting place must be asked for again: before its lease ends, and when the store wants to be asked. */
  #nextRenewAt({ ttlMs, recheckMs }: Answer & { state: "waiting" }): number {
    return this.#clock.now() + Math.max(MIN_RENEW_MS, Math.min(recheckMs, ttlMs / 2));
  }

  #nextUnattendedRenewAt({ claim, expiresAt }: PendingClaim, now: number): number {
    return Math.min(expiresAt, now + Math.max(MIN_RENEW_MS, Number(claim.ttlMs) / 2));
  }

  #schedule(pending: PendingClaim, dueAt: number): void {
    this.#deadlines.set(pending, dueAt);
    this.#timer.set(this.#deadlines.nextDueAt());
  }

  #onTimer(): void {
    const now = this.#clock.now();
    for (let pending = this.#deadlines.takeDue(now); pending !== null; pending = this.#deadlines.takeDue(now)) {
      if (pending.wake === null) void this.#renewUnattended(pending);
      else pending.wake();
    }
    this.#timer.set(this.#deadlines.nextDueAt());
  }
}

/** Held with what is left of its lease; expired, if that took so long to write down that nothing is left. */
export function heldOutcome(endsAt: number, now: number, claim: Claim, token: bigint): ClaimOutcome {
  const ttlMs = Math.floor(endsAt - now);
  return ttlMs > 0 ? { state: "held", claim, token, ttlMs } : { state: "none", reason: "expired" };
}

/** As if it had never been. */
export function unknownOutcome(): ClaimOutcome & { readonly state: "none" } {
  return { state: "none", reason: "unknown" };
}

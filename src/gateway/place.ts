/**
 * A place in the queue: a claim that requests wait for, one after another.
 *
 *   new          the first request is about to wait for it
 *   attended     a request waits for it, until its deadline
 *   unattended   none does: grants pass over it, and after WAIT_GRACE_MS the claim is withdrawn
 *   granting     the claim was granted to the request that waits: the store is being asked to detach it
 *   granted      the claim belongs to its reference now
 *   ended        the claim was lost, withdrawn or refused
 *
 *   new -> attended          attend()
 *   attended -> unattended   at its deadline, while the store has the claim in the queue
 *   unattended -> attended   attend()
 *   attended -> granting     onEffect("grant"), or attend() if it came before
 *   granting -> granted      once the store has answered
 *   any but granted -> ended onEffect(), withdraw(), or a store that fails before it has queued the claim
 *
 * The engine (client/engine.ts) renews the claim in the queue and tells of its grant. Invariant: a claim that is granted
 * while no request waits is kept for the next request for UNATTENDED_HOLD_MS, and then released: a client that has gone
 * delays others for no longer than that. Every request for the place is answered with the same grant. If the store cannot let grants pass over
 * the claim, the place then goes on with another claim, at the end of the queue.
 */

import type { Principal } from "../auth/access-control.ts";
import type { ActiveClaim, ClaimListener, ListenerEffect } from "../client/engine.ts";
import type { ClientContext } from "../client/local-queue.ts";
import type { LostReason } from "../errors.ts";
import type { EventKind } from "../lock-table/events.ts";
import { drainingError } from "../server/request-error.ts";
import type { Claim, Pause } from "../spi/driver.ts";
import type { Timer } from "../util/clock.ts";
import { randomId } from "../util/ids.ts";
import type { ClaimOutcome } from "./claim-outcome.ts";
import { heldOutcome, unknownOutcome } from "./claim-outcome.ts";
import type { ClaimRegister } from "./claim-register.ts";
import type { GatewayStore } from "./gateway-store.ts";

/** How long a claim stays in the queue after a request for it was answered with "waiting". */
export const WAIT_GRACE_MS = 10_000;

/**
 * How long a granted lock is kept for the next request: one that follows at once comes earlier, and others wait for the
 * lock.
 */
const UNATTENDED_HOLD_MS = 1_000;
/** A lease with less of it left is renewed before the claim is passed on, as that of a claim that has waited. */
const MIN_LEASE_SHARE = 0.75;

/** The event of a claim that waited, by the reason of its end. */
const END_EVENTS: Readonly<Record<LostReason, EventKind>> = {
  expired: "withdrawn",
  released: "withdrawn",
  revoked: "revoked",
  maxHold: "maxHoldExceeded",
  unknown: "disconnected",
};

/** The request that waits for a place. */
interface Attendee {
  readonly resolve: (outcome: ClaimOutcome) => void;
  readonly reject: (error: unknown) => void;
  readonly deadline: number;
  readonly disconnected: AbortSignal;
}

type PlaceState =
  | { readonly kind: "new" }
  | { readonly kind: "attended"; readonly attendee: Attendee }
  | { readonly kind: "unattended" }
  /** The store is being asked to detach the claim. A repeated request waits for it, too. */
  | { readonly kind: "granting"; readonly attendees: Attendee[] }
  | { readonly kind: "granted" }
  | { readonly kind: "ended"; readonly reason: LostReason };

export interface PlaceOptions {
  readonly store: GatewayStore;
  readonly context: ClientContext;
  readonly principal: Principal;
  readonly claim: Claim;
  readonly register: ClaimRegister;
  /** Called once, when it is granted or has ended. */
  readonly onEnd: (place: Place) => void;
}

export class Place implements ClaimListener {
  /** The first claim: its reference is that of the place. */
  readonly claim: Claim;
  /** Requests that are about to wait for it: a lock that is granted meanwhile is kept for them. */
  arrivingCount = 0;
  /** The account of the request that came last. */
  principal: Principal;
  readonly #store: GatewayStore;
  readonly #context: ClientContext;
  readonly #onEnd: (place: Place) => void;
  readonly #timer: Timer;
  readonly #register: ClaimRegister;
  /** The present claim, and the engine's part of it. */
  #current: Claim;
  #activeClaim: ActiveClaim;
  /** Until when it is kept without a request. */
  #graceEndsAt = 0;
  #state: PlaceState = { kind: "new" };

  /** Requests the claim. The caller attends it at once. */
  constructor({ store, context, principal, claim, register, onEnd }: PlaceOptions) {
    this.claim = claim;
    this.#current = claim;
    this.#register = register;
    this.principal = principal;
    this.#store = store;
    this.#context = context;
    this.#onEnd = onEnd;
    this.#timer = context.engine.clock.timer(() => this.#onTimer());
    this.#activeClaim = this.#start(claim);
  }

  #start(claim: Claim): ActiveClaim {
    this.#register.add(claim, this.principal.name);
    const { engine } = this.#context;
    const settings = { ttlMs: claim.ttlMs as number, wait: claim.wait, survivesSilence: false, renews: true };
    return engine.start(claim, settings, this, engine.clock.now());
  }

  /** Waits until the claim is held, at most until `deadline`. An earlier request that waits is answered "waiting". */
  attend(deadline: number, disconnected: AbortSignal): Promise<ClaimOutcome> {
    return new Promise((resolve, reject) => {
      const attendee: Attendee = { resolve, reject, deadline, disconnected };
      if (this.#state.kind === "granting") return void this.#state.attendees.push(attendee);
      if (this.#state.kind === "ended") return resolve({ state: "none", reason: this.#state.reason });
      if (this.#state.kind === "attended") this.#answerWaiting(this.#state.attendee);
      if (this.#state.kind === "unattended") this.#suspend(false);
      this.#state = { kind: "attended", attendee };
      disconnected.addEventListener("abort", this.#onDisconnected);
      this.#timer.set(deadline);
      if (disconnected.aborted) this.#onDisconnected();
      else void this.#detachIfHeld();
      this.#pauseIfLate();
    });
  }

  /** It was granted, or has ended: no request can wait for it. */
  get isOver(): boolean {
    return this.#state.kind === "granted" || this.#state.kind === "ended";
  }

  /** The credential of the request that waits was removed, but not its account: the place is kept for another one. */
  dismiss(): void {
    if (this.#state.kind !== "attended") return;
    const { attendee } = this.#state;
    this.#keepUnattended();
    this.#leave(attendee).resolve(unknownOutcome());
  }

  /**
   * Asks the store about the claim, before another request waits for it: a request must not wait in vain while the store
   * cannot be reached. @throws RequestError
   */
  async check(): Promise<void> {
    const { engine } = this.#context;
    const claim = this.#current;
    const [answer] = await this.#store.call(this.#context, () => engine.driver.renew([claim]));
    if (answer === undefined) throw this.#store.unknownError();
    engine.pushed(claim.id, answer);
  }

  /** Answers the request that waits with "waiting". The claim stays in the queue for a while. */
  pause(): void {
    if (this.#state.kind !== "attended") return;
    this.#answerWaiting(this.#state.attendee);
    this.#keepUnattended();
  }

  /** The program stops: as pause(), but a claim that may have no place in the queue is withdrawn. */
  drain(): void {
    if (this.#activeClaim.state.status === "waiting") this.pause();
    else if (this.#state.kind === "attended") this.#fail(drainingError());
  }

  #keepUnattended(): void {
    this.#state = { kind: "unattended" };
    this.#graceEndsAt = this.#now() + WAIT_GRACE_MS;
    this.#timer.set(this.#graceEndsAt);
    this.#suspend(true);
  }

  /** Withdraws the claim, for a request that does not want it any more. True if the store still had it. */
  withdraw(reason: LostReason): Promise<boolean> {
    const { engine } = this.#context;
    const released = engine.releaseLock(this.#activeClaim, false, engine.clock.now());
    this.#end({ state: "none", reason });
    return released;
  }

  onEffect(effect: ListenerEffect): void {
    switch (effect) {
      case "grant":
        if (this.#state.kind === "unattended")
          this.#timer.set(Math.min(this.#graceEndsAt, this.#now() + UNATTENDED_HOLD_MS));
        return void this.#detachIfHeld();
      case "wait":
        return this.#onFirstAnswer();
      case "reject":
        return this.#fail(this.#activeClaim.failure);
      case "refuse":
      case "expire":
        return this.#end({
          state: "none",
          reason: this.#activeClaim.endReason ?? "expired",
          paused: this.#pause,
        });
      case "lose":
        return this.#onLost();
      case "jeopardy":
      case "restored":
      case "recall":
        return;
    }
  }

  tokensToRenew(): number {
    return 0;
  }

  onClose(): void {
    // the claim stays at the store; see GatewayStore.close()
  }

  giveBack(): void {
    // only releaseAll() calls it
  }

  readonly #onDisconnected = (): void => {
    if (this.#state.kind === "attended") void this.withdraw("unknown");
  };

  #now(): number {
    return this.#context.engine.clock.now();
  }

  #onTimer(): void {
    if (this.#state.kind !== "unattended") this.#pauseIfLate();
    // a request that is about to come gets the place
    else if (this.arrivingCount > 0) this.#timer.set(this.#now() + UNATTENDED_HOLD_MS);
    else if (this.#now() >= this.#graceEndsAt) void this.withdraw("expired");
    else this.#passOn();
  }

  /** No request has come for the granted lock: others get it, and the place goes on at the end of the queue. */
  #passOn(): void {
    const { engine } = this.#context;
    engine.release(this.#activeClaim);
    this.#register.onEnd(this.#current.id, "withdrawn");
    this.#current = { ...this.#current, id: randomId() };
    this.#activeClaim = this.#start(this.#current);
    this.#timer.set(this.#graceEndsAt);
  }

  /** The first call for the claim has ended. An error is reported, rather than waiting until the store is back. */
  #onFirstAnswer(): void {
    const { state, lastError, failure } = this.#activeClaim;
    if (state.status === "waiting") {
      this.#register.onQueued(this.#current.id);
      // it follows one that was passed on
      if (this.#state.kind === "unattended") this.#suspend(true);
    }
    if (state.status === "asking" && lastError !== null) this.#fail(failure);
    else this.#pauseIfLate();
  }

  #pauseIfLate(): void {
    if (this.#state.kind !== "attended" || this.#now() < this.#state.attendee.deadline) return;
    const { state, failure } = this.#activeClaim;
    if (state.status === "waiting") this.pause();
    // else the first call is still in progress, and it is not known whether the claim has a place
    else if (state.status === "asking" && state.callState.failures > 0) this.#fail(failure);
  }

  #onLost(): void {
    const { state } = this.#activeClaim;
    this.#context.engine.release(this.#activeClaim);
    this.#end({ state: "none", reason: state.status === "lost" ? state.reason : "unknown" });
  }

  #answerWaiting(attendee: Attendee): void {
    this.#leave(attendee).resolve({ state: "waiting", claim: this.claim, paused: this.#pause });
  }

  get #pause(): Pause | undefined {
    const pause = this.#activeClaim.currentPause(this.#now());
    return pause && { ...pause, remainingMs: Math.ceil(pause.remainingMs) };
  }

  /** Passes a granted claim to its reference, which the waiting request gets. */
  async #detachIfHeld(): Promise<void> {
    const held = this.#activeClaim.state;
    if (held.status !== "held" || this.#state.kind !== "attended") return;
    const { attendee } = this.#state;
    const { engine } = this.#context;
    const attendees = [attendee];
    this.#state = { kind: "granting", attendees };
    this.#timer.set(null);
    let endsAt: number;
    try {
      endsAt = await this.#renewForReference();
    } catch (error) {
      return this.#fail(error);
    }
    // it was lost meanwhile
    if (this.#state.kind !== "granting") return;
    engine.forget(this.#activeClaim);
    const outcome = heldOutcome(endsAt, this.#now(), this.#current, held.token);
    this.#register.onGranted(this.#current.id, held.token, endsAt);
    this.#state = { kind: "granted" };
    this.#onEnd(this);
    for (const one of attendees) this.#leave(one).resolve(outcome);
    const isWanted = this.arrivingCount > 0 || attendees.some(({ disconnected }) => !disconnected.aborted);
    if (outcome.state === "held" && isWanted) return;
    // no client has the reference
    this.#register.onEnd(this.#current.id, "disconnected");
    const release = { claim: this.#current, hasUnansweredClaim: false };
    await this.#store.call(this.#context, () => engine.driver.release([release])).catch(() => undefined);
  }

  /**
   * Makes the claim independent of this client, with a full lease. Returns when the lease ends at the earliest.
   * @throws RequestError
   */
  async #renewForReference(): Promise<number> {
    const { engine } = this.#context;
    const claim = this.#current;
    const ttlMs = claim.ttlMs as number;
    const sentAt = this.#now();
    if (engine.driver.detach !== undefined) {
      engine.startDetaching(this.#activeClaim, false);
      const detach = engine.driver.detach.bind(engine.driver);
      const [isDetached] = await this.#store.call(this.#context, () => detach([claim]));
      if (isDetached === true) return sentAt + ttlMs;
    } else if (this.#activeClaim.leaseEndsAt - sentAt > MIN_LEASE_SHARE * ttlMs) return this.#activeClaim.leaseEndsAt;
    const [answer] = await this.#store.call(this.#context, () => engine.driver.renew([claim]));
    if (answer === undefined) throw this.#store.unknownError();
    // one that could not be detached would end with this client's session
    if (answer.state === "held" && engine.driver.detach === undefined) return sentAt + answer.remainingMs;
    this.#context.engine.release(this.#activeClaim);
    this.#end({ state: "none", reason: (answer.state === "none" && answer.reason) || "unknown" });
    return sentAt;
  }

  #fail(error: unknown): void {
    if (this.isOver) return;
    const attendees = this.#attendees;
    this.#context.engine.release(this.#activeClaim);
    this.#register.onEnd(this.#current.id, "withdrawn");
    this.#state = { kind: "ended", reason: "unknown" };
    this.#timer.stop();
    this.#onEnd(this);
    for (const attendee of attendees) this.#leave(attendee).reject(this.#store.refuse(error));
  }

  #end(outcome: ClaimOutcome & { readonly state: "none" }): void {
    if (this.#state.kind === "ended" || this.#state.kind === "granted") return;
    const attendees = this.#attendees;
    this.#register.onEnd(this.#current.id, END_EVENTS[outcome.reason]);
    this.#state = { kind: "ended", reason: outcome.reason };
    this.#timer.stop();
    this.#onEnd(this);
    for (const attendee of attendees) this.#leave(attendee).resolve(outcome);
  }

  /** The claim that was granted; null: none was. */
  get grantedClaim(): Claim | null {
    return this.#state.kind === "granted" ? this.#current : null;
  }

  /** Why it has ended; null: it has not, or was granted. */
  get lostReason(): LostReason | null {
    return this.#state.kind === "ended" ? this.#state.reason : null;
  }

  get #attendees(): readonly Attendee[] {
    if (this.#state.kind === "granting") return this.#state.attendees;
    return this.#state.kind === "attended" ? [this.#state.attendee] : [];
  }

  #leave(attendee: Attendee): Attendee {
    attendee.disconnected.removeEventListener("abort", this.#onDisconnected);
    return attendee;
  }

  /** Grants pass over the claim from now on, or no longer, where the store can do that. */
  #suspend(isSuspended: boolean): void {
    const { driver } = this.#context.engine;
    // what an error means: the store, or the connection to it, fails, and the claim may end
    driver.suspend?.([this.#current], isSuspended).catch(() => undefined);
  }
}

/**
 * A place in the queue: a claim that requests wait for, one after another.
 *
 *   new          the first request is about to wait for it
 *   attended     a request waits for it, until its deadline
 *   unattended   none does: grants pass over it, and after WAIT_GRACE_MS the claim is withdrawn
 *   granted      the claim was granted to the request that waited, and belongs to its reference now
 *   ended        the claim was lost, withdrawn or refused
 *
 *   new -> attended          attend()
 *   attended -> unattended   at its deadline, while the store has the claim in the queue
 *   unattended -> attended   attend()
 *   attended -> granted      onEffect("grant"), once the store has answered that the claim is detached
 *   any but granted -> ended onEffect(), withdraw(), or a store that fails before it has queued the claim
 *
 * The engine (client/engine.ts) renews the claim in the queue and tells of its grant. Invariant: a claim that is held
 * while no request waits is detached for the next one, or released with the place, so that nobody is told of a lock
 * twice, and none is kept for longer than WAIT_GRACE_MS without a request.
 */

import type { Principal } from "../auth/access-control.ts";
import type { ActiveClaim, ClaimListener, ListenerEffect } from "../client/engine.ts";
import type { ClientContext } from "../client/local-queue.ts";
import type { LostReason } from "../errors.ts";
import type { Claim, Pause } from "../spi/driver.ts";
import type { Timer } from "../util/clock.ts";
import type { ClaimOutcome } from "./claim-outcome.ts";
import { heldOutcome } from "./claim-outcome.ts";
import type { GatewayStore } from "./gateway-store.ts";
import { toRequestError } from "./gateway-store.ts";

/** How long a claim stays in the queue after a request for it was answered with "waiting". */
export const WAIT_GRACE_MS = 10_000;

/** A lease with less of it left is renewed before the claim is passed on, as that of a claim that has waited. */
const MIN_LEASE_SHARE = 0.75;

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
  /** The store is being asked to detach the claim. */
  | { readonly kind: "granting"; readonly attendee: Attendee }
  | { readonly kind: "granted" }
  | { readonly kind: "ended"; readonly reason: LostReason };

export interface PlaceOptions {
  readonly store: GatewayStore;
  readonly context: ClientContext;
  readonly principal: Principal;
  readonly claim: Claim;
  /** Called once, when it is granted or has ended. */
  readonly onEnd: (place: Place) => void;
}

export class Place implements ClaimListener {
  readonly claim: Claim;
  /** The account of the request that came last. */
  principal: Principal;
  readonly #store: GatewayStore;
  readonly #context: ClientContext;
  readonly #onEnd: (place: Place) => void;
  readonly #timer: Timer;
  readonly #activeClaim: ActiveClaim;
  #state: PlaceState = { kind: "new" };
  /** For the request that waits. */
  #outcome!: Promise<ClaimOutcome>;

  /** Requests the claim. The caller attends it at once. */
  constructor({ store, context, principal, claim, onEnd }: PlaceOptions) {
    this.claim = claim;
    this.principal = principal;
    this.#store = store;
    this.#context = context;
    this.#onEnd = onEnd;
    const { engine } = context;
    this.#timer = engine.clock.timer(() => this.#onTimer());
    const settings = { ttlMs: claim.ttlMs as number, wait: claim.wait, survivesSilence: false, renews: true };
    this.#activeClaim = engine.start(claim, settings, this, engine.clock.now());
  }

  /** Waits until the claim is held, at most until `deadline`. An earlier request that waits is answered "waiting". */
  attend(deadline: number, disconnected: AbortSignal): Promise<ClaimOutcome> {
    // the claim is being granted to a request whose response may be lost
    if (this.#state.kind === "granting") return this.#outcome;
    if (this.#state.kind === "ended") return Promise.resolve({ state: "none", reason: this.#state.reason });
    if (this.#state.kind === "attended") this.#answerWaiting(this.#state.attendee);
    if (this.#state.kind === "unattended") this.#suspend(false);
    this.#outcome = new Promise((resolve, reject) => {
      this.#state = { kind: "attended", attendee: { resolve, reject, deadline, disconnected } };
      disconnected.addEventListener("abort", this.#onDisconnected);
      this.#timer.set(deadline);
      if (disconnected.aborted) this.#onDisconnected();
      else void this.#detachIfHeld();
      this.#pauseIfLate();
    });
    return this.#outcome;
  }

  /**
   * Asks the store about the claim, before another request waits for it: a request must not wait in vain while the store
   * cannot be reached. @throws RequestError
   */
  async check(): Promise<void> {
    const { engine } = this.#context;
    const [answer] = await this.#store.call(this.#context, () => engine.driver.renew([this.claim]));
    if (answer === undefined) throw this.#store.unknownError();
    engine.pushed(this.claim.id, answer);
  }

  /** Answers the request that waits with "waiting". The claim stays in the queue for a while. */
  pause(): void {
    if (this.#state.kind !== "attended") return;
    this.#answerWaiting(this.#state.attendee);
    this.#state = { kind: "unattended" };
    this.#timer.set(this.#now() + WAIT_GRACE_MS);
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
    if (this.#state.kind === "unattended") void this.withdraw("expired");
    else this.#pauseIfLate();
  }

  /** The first call for the claim has ended. An error is reported, rather than waiting until the store is back. */
  #onFirstAnswer(): void {
    const { state, lastError, failure } = this.#activeClaim;
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
    this.#state = { kind: "granting", attendee };
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
    const outcome = heldOutcome(endsAt, this.#now(), this.claim, held.token);
    this.#state = { kind: "granted" };
    this.#onEnd(this);
    this.#leave(attendee).resolve(outcome);
    if (!attendee.disconnected.aborted && outcome.state === "held") return;
    // nobody has the reference
    const release = { claim: this.claim, hasUnansweredClaim: false };
    await this.#store.call(this.#context, () => engine.driver.release([release])).catch(() => undefined);
  }

  /**
   * Makes the claim independent of this client, with a full lease. Returns when the lease ends at the earliest.
   * @throws RequestError
   */
  async #renewForReference(): Promise<number> {
    const { engine } = this.#context;
    const { claim } = this;
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
    if (answer.state === "held") return sentAt + answer.remainingMs;
    this.#context.engine.release(this.#activeClaim);
    this.#end({ state: "none", reason: (answer.state === "none" && answer.reason) || "unknown" });
    return sentAt;
  }

  #fail(error: unknown): void {
    const attendee = this.#attendee;
    this.#context.engine.release(this.#activeClaim);
    this.#state = { kind: "ended", reason: "unknown" };
    this.#timer.stop();
    this.#onEnd(this);
    if (attendee !== null) this.#leave(attendee).reject(toRequestError(error));
  }

  #end(outcome: ClaimOutcome & { readonly state: "none" }): void {
    if (this.#state.kind === "ended" || this.#state.kind === "granted") return;
    const attendee = this.#attendee;
    this.#state = { kind: "ended", reason: outcome.reason };
    this.#timer.stop();
    this.#onEnd(this);
    if (attendee !== null) this.#leave(attendee).resolve(outcome);
  }

  /** Why it has ended; null: it has not, or was granted. */
  get lostReason(): LostReason | null {
    return this.#state.kind === "ended" ? this.#state.reason : null;
  }

  get #attendee(): Attendee | null {
    return "attendee" in this.#state ? this.#state.attendee : null;
  }

  #leave(attendee: Attendee): Attendee {
    attendee.disconnected.removeEventListener("abort", this.#onDisconnected);
    return attendee;
  }

  /** Grants pass over the claim from now on, or no longer, where the store can do that. */
  #suspend(isSuspended: boolean): void {
    const { driver } = this.#context.engine;
    // what an error means: the store, or the connection to it, fails, and the claim may end
    driver.suspend?.([this.claim], isSuspended).catch(() => undefined);
  }
}

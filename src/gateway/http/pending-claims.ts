/**
 * Waiting and granting over HTTP. A claim waits as long as a request waits for it. Between two requests it keeps its queue
 * entry for a short time as a suspended waiter: grants pass it by. A granted claim is detached at once. So it belongs to its
 * reference, and survives the client, the connection and a crash of the server.
 */

import type { LostReason } from "../../errors.ts";
import type { Answer, Claim, ClaimId, Pause } from "../../spi/driver.ts";
import type { Clock, Timer } from "../../util/clock.ts";
import { DeadlineHeap } from "../../util/deadline-heap.ts";
import { randomId } from "../../util/ids.ts";
import type { MaybePromise } from "../../util/maybe-promise.ts";
import type { Principal } from "../../auth/access-control.ts";
import type { Logger } from "../../server/logger.ts";
import { drainingError, RequestError } from "../../server/request-error.ts";
import type { LockService } from "../../server/service.ts";
import type { BackendControl } from "../../server/session/backend.ts";
import type { NotificationSink } from "../../server/session/session.ts";
import { Session } from "../../server/session/session.ts";

/** How long a claim stays in the queue after a request for it was answered with "waiting". */
export const WAIT_GRACE_MS = 10_000;
/** The shortest interval between two renewals of a waiting claim. */
const MIN_RENEW_MS = 20;

/** The result of a request for a claim. */
export type ClaimOutcome =
  | { readonly state: "held"; readonly claim: Claim; readonly token: bigint; readonly remainingMs: number }
  | { readonly state: "waiting"; readonly claim: Claim; readonly paused?: Pause | undefined }
  | { readonly state: "none"; readonly reason: LostReason; readonly paused?: Pause | undefined };

/** What happens to a pending claim at the moment. */
type PendingState =
  /** A request works on it. */
  | { readonly kind: "calling" }
  /** A request waits for it, until `wake` is called. */
  | { readonly kind: "attended"; readonly wake: () => void }
  /** No request waits for it. It leaves the queue at `expiresAt`. */
  | { readonly kind: "unattended"; readonly expiresAt: number }
  /** `reason`: why it was lost, for example released by another request; null: not known. */
  | { readonly kind: "ended"; readonly reason: LostReason | null };

const CALLING: PendingState = { kind: "calling" };

/**
 * Each pending claim has its own session. So it can be suspended, resumed and ended on its own: it is connected only while
 * a request waits for it.
 */
export class PendingClaim implements NotificationSink {
  readonly claim: Claim;
  readonly session: Session;
  state: PendingState = CALLING;
  /** When the last call to the store was sent: the lease in its answer runs from then at the earliest. */
  lastCallAt = 0;
  /** The last push of the store that has not been handled yet; "ask": a recheck. */
  notification: Answer | "ask" | null = null;
  // for the DeadlineHeap
  dueAt = 0;
  heapIndex = -1;

  constructor(principal: Principal, claim: Claim, now: number) {
    this.claim = claim;
    this.session = createRequestSession(principal, now, claim.label);
    this.session.connect(this);
  }

  pushAnswer(_id: ClaimId, answer: Answer): void {
    this.notification = answer;
    this.wake();
  }

  pushRecheck(): void {
    this.notification ??= "ask";
    this.wake();
  }

  pushRecalled(): void {
    // claims of requests over HTTP do not ask for it
  }

  pushDisconnected(): void {
    // a request over HTTP passes its lock to no other request
  }

  /** Why it was lost; null: it was not, as far as known. */
  get lossReason(): LostReason | null {
    return this.state.kind === "ended" ? this.state.reason : null;
  }

  /** Wakes the request that waits for the claim, if one does. */
  wake(): void {
    if (this.state.kind === "attended") this.state.wake();
  }

  fail(): void {
    this.pushRecheck();
  }
}

export class PendingClaims {
  readonly #backend: BackendControl;
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

  /** The number of waiting claims, with those for which no request waits at the moment. */
  get size(): number {
    return this.#claims.size;
  }

  /** Makes a claim and waits until it is held, at most until `deadline`. `disconnected` ends the wait and the claim. */
  async claim(principal: Principal, claim: Claim, deadline: number, disconnected: AbortSignal): Promise<ClaimOutcome> {
    const pending = new PendingClaim(principal, claim, this.#clock.now());
    let answer: Answer;
    try {
      pending.lastCallAt = this.#clock.now();
      answer = await callBackend(this.#service, () => this.#service.calls.claim(pending.session, claim));
    } catch (error) {
      this.#endClaim(pending);
      throw error;
    }
    return this.#waitForGrant(pending, answer, deadline, disconnected);
  }

  /** Continues to wait for a claim that was answered with "waiting", by this server run or by an earlier one. */
  async wait(principal: Principal, claim: Claim, deadline: number, disconnected: AbortSignal): Promise<ClaimOutcome> {
    const existing = this.find(principal, claim.id);
    if (existing === null) return unknownOutcome();
    const pending = existing ?? new PendingClaim(principal, claim, this.#clock.now());
    pending.session.principal = principal;
    pending.notification = null;
    const answer = await this.#renew(pending);
    if (pending.state.kind === "unattended") pending.state = CALLING;
    if (answer.state === "waiting") {
      this.#backend.resume(pending.session);
      this.#service.endBatch();
    }
    return this.#waitForGrant(pending, answer, deadline, disconnected);
  }

  /** The pending claim with this id; undefined: there is none; null: it belongs to another account. */
  find(principal: Principal, id: ClaimId): PendingClaim | null | undefined {
    const pending = this.#claims.get(id);
    return pending === undefined || pending.session.principal.name === principal.name ? pending : null;
  }

  /** Removes a pending claim. The caller has released or detached it. `lossReason` is for a request that waits for it. */
  remove(pending: PendingClaim, lossReason: LostReason | null = null): void {
    pending.wake();
    pending.state = { kind: "ended", reason: lossReason };
    pending.session.end();
    this.#deadlines.remove(pending);
    if (this.#claims.get(pending.claim.id) === pending) this.#claims.delete(pending.claim.id);
  }

  /** Answers all waiting requests with "waiting". Their claims stay in the queue, as between two requests. */
  drain(): void {
    this.#isDraining = true;
    for (const pending of this.#claims.values()) pending.wake();
  }

  /** Ends the claims of removed credentials, after the accounts have changed. */
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
      // the claim stays in the queue for a while, as after every wait
      if (!pending.session.isEnded && pending.state.kind !== "attended") this.#keepForGrace(pending);
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
      // the claim may have been released during the call: its answer would be "held" for a lock that is free
      if (pending.lossReason !== null) return { state: "none", reason: pending.lossReason };
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
      const isStillWaiting = await this.#waitForChange(pending, answer, deadline, disconnected);
      if (!isStillWaiting) return { state: "waiting", claim: pending.claim, paused: answer.paused };
      // another request has released the claim meanwhile
      if (pending.lossReason !== null) return { state: "none", reason: pending.lossReason };
      if (pending.notification === null && !disconnected.aborted && !this.#isDraining)
        answer = await this.#renew(pending);
    }
  }

  async #takeNotification(pending: PendingClaim): Promise<Answer> {
    const { notification } = pending;
    pending.notification = null;
    // A pushed grant does not extend the lease, so the rest of the lease is unknown: renew. Only a loss needs no call.
    return notification !== null && notification !== "ask" && notification.state === "none"
      ? notification
      : this.#renew(pending);
  }

  /** Waits until the claim may have changed. False: another request waits for the claim now. */
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
    pending.wake();
    const attended: PendingState = { kind: "attended", wake };
    pending.state = attended;
    disconnected.addEventListener("abort", wake);
    this.#schedule(pending, Math.min(deadline, this.#nextRenewAt(answer)));
    await woken;
    disconnected.removeEventListener("abort", wake);
    if (pending.state === attended) pending.state = CALLING;
    return pending.state.kind === "calling" || pending.state.kind === "ended";
  }

  /** Detaches a granted claim, so that it belongs to its reference. */
  async #detachGrant(
    pending: PendingClaim,
    answer: Answer & { state: "held" },
    disconnected: AbortSignal,
  ): Promise<ClaimOutcome> {
    const { claim, session } = pending;
    const endsAt = pending.lastCallAt + answer.remainingMs;
    // the claim was detached by an earlier request whose response was lost
    if (!this.#backend.hasClaims(session)) {
      this.remove(pending);
      return heldOutcome(endsAt, this.#clock.now(), claim, answer.token);
    }
    let results: readonly boolean[];
    try {
      results = await callBackend(this.#service, () => this.#service.calls.detach(session, [claim.id]));
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
        this.#service.calls.release(session, [{ id: claim.id, unansweredTtl: undefined }]),
      );
    }
    return outcome;
  }

  /** Suspends a claim for which no request waits, and keeps it for WAIT_GRACE_MS. */
  #keepForGrace(pending: PendingClaim): void {
    const expiresAt = this.#clock.now() + WAIT_GRACE_MS;
    // another request may wait for the claim: it would get no response any more
    pending.wake();
    pending.state = { kind: "unattended", expiresAt };
    this.#backend.suspend(pending.session);
    this.#schedule(pending, this.#nextUnattendedRenewAt(pending.claim, expiresAt));
    this.#service.endBatch();
  }

  /** Renews a claim for which no request waits, or ends it after its grace. */
  async #renewUnattended(pending: PendingClaim, expiresAt: number): Promise<void> {
    const { state } = pending;
    if (this.#clock.now() >= expiresAt) return this.#endClaim(pending);
    try {
      const answer = await this.#renew(pending);
      if (answer.state === "none") this.remove(pending);
    } catch (error) {
      // a RequestError may be temporary: the next wait reports it if it persists
      if (!(error instanceof RequestError)) this.#log("a waiting claim could not be renewed", error);
    }
    if (pending.state === state) this.#schedule(pending, this.#nextUnattendedRenewAt(pending.claim, expiresAt));
  }

  #endClaim(pending: PendingClaim): void {
    if (pending.session.isEnded) return;
    this.remove(pending, "expired");
    this.#backend.endClaims(pending.session, "all");
    this.#service.endBatch();
  }

  /** When a waiting claim must be renewed: well before its lease ends, and when the store asks for a recheck. */
  #nextRenewAt({ remainingMs, recheckMs }: Answer & { state: "waiting" }): number {
    return this.#clock.now() + Math.max(MIN_RENEW_MS, Math.min(recheckMs, remainingMs / 2));
  }

  #nextUnattendedRenewAt(claim: Claim, expiresAt: number): number {
    return Math.min(expiresAt, this.#clock.now() + Math.max(MIN_RENEW_MS, Number(claim.ttlMs) / 2));
  }

  #schedule(pending: PendingClaim, dueAt: number): void {
    this.#deadlines.set(pending, dueAt);
    this.#timer.set(this.#deadlines.nextDueAt());
  }

  #onTimer(): void {
    const now = this.#clock.now();
    for (let pending = this.#deadlines.takeDue(now); pending !== null; pending = this.#deadlines.takeDue(now)) {
      if (pending.state.kind === "unattended") void this.#renewUnattended(pending, pending.state.expiresAt);
      else pending.wake();
    }
    this.#timer.set(this.#deadlines.nextDueAt());
  }
}

/** "held" with the rest of the lease; "expired" if writing the grant to disk took so long that nothing is left. */
export function heldOutcome(endsAt: number, now: number, claim: Claim, token: bigint): ClaimOutcome {
  const remainingMs = Math.floor(endsAt - now);
  return remainingMs > 0 ? { state: "held", claim, token, remainingMs } : { state: "none", reason: "expired" };
}

/** The outcome for a claim that does not exist, or that this account may not see. */
export function unknownOutcome(): ClaimOutcome & { readonly state: "none" } {
  return { state: "none", reason: "unknown" };
}

/** A session for one request. */
export function createRequestSession(principal: Principal, now: number, label = ""): Session {
  const session = new Session({ session: randomId(), label, pid: null, pidStart: null }, false, now);
  session.principal = principal;
  // Not saved: recovery need not wait for this session. Its grant is either in the journal, or no client was told of it.
  session.isPersisted = true;
  return session;
}

/** Calls the backend and sends the notifications that result. @throws RequestError DRAINING: the server is stopping */
export async function callBackend<T>(service: LockService, call: () => MaybePromise<T>): Promise<T> {
  if (service.isDraining) throw drainingError();
  try {
    const result = call();
    // the call may need the timer to finish: a long list is built in slices
    if (result instanceof Promise) service.endBatch();
    return await result;
  } finally {
    service.endBatch();
  }
}

/** Renews these claims and gives the answers. @throws RequestError RECLAIMING or STORE if the status of one is unknown */
export async function renewAll(
  service: LockService,
  session: Session,
  claims: readonly Claim[],
): Promise<readonly Answer[]> {
  const items = claims.map((claim) => ({ id: claim.id, claim }));
  return (await callBackend(service, () => service.calls.renew(session, items))).map((answer) => {
    if (answer !== undefined) return answer;
    if (service.backend.recoveryRemainingMs() === 0)
      throw new RequestError("STORE", "the server could not query its store about this claim");
    throw new RequestError(
      "RECLAIMING",
      "the server is recovering after a restart and does not know yet which locks are held",
    );
  });
}

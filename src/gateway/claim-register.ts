/**
 * The claims that a gateway has placed, on a store that knows no accounts: for the limits of accounts, events and
 * metrics. A lock server keeps all this itself. A held claim is known until it is released here, or its lease ends by
 * what this gateway knows: another gateway may have renewed or released it.
 */

import type { EventKind } from "../lock-table/events.ts";
import type { ClaimLifecycle, EventLog } from "../server/events/event-log.ts";
import type { ServerLimits } from "../server/limits.ts";
import { RequestError } from "../server/request-error.ts";
import type { Claim, ClaimId } from "../spi/driver.ts";
import type { Clock, Timer } from "../util/clock.ts";
import { DeadlineHeap } from "../util/deadline-heap.ts";

/** What a gateway tells of its claims. */
export interface ClaimRegister {
  /** A claim is about to be placed. @throws RequestError LIMIT if the account, or the gateway, has too many */
  add(claim: Claim, account: string): void;
  onQueued(id: ClaimId): void;
  onGranted(id: ClaimId, token: bigint, endsAt: number): void;
  onRenewed(id: ClaimId, endsAt: number): void;
  onEnd(id: ClaimId, kind: EventKind): void;
  close(): void;
}

/** Of a store that keeps all this itself. */
export const NO_REGISTER: ClaimRegister = {
  add: ignore,
  onQueued: ignore,
  onGranted: ignore,
  onRenewed: ignore,
  onEnd: ignore,
  close: ignore,
};

class RegisteredClaim implements ClaimLifecycle {
  readonly claim: Claim;
  readonly account: string;
  readonly placedAt: number;
  heldAt = 0;
  token: number | bigint = 0;
  isQueued = false;
  // for the DeadlineHeap
  dueAt = 0;
  heapIndex = -1;

  constructor(claim: Claim, account: string, now: number) {
    this.claim = claim;
    this.account = account;
    this.placedAt = now;
  }
}

export interface StoreRegisterOptions {
  readonly clock: Clock;
  readonly eventLog: EventLog;
  readonly limits: Pick<ServerLimits, "claims" | "claimsPerAccount">;
}

export class StoreRegister implements ClaimRegister {
  readonly #clock: Clock;
  readonly #eventLog: EventLog;
  readonly #limits: StoreRegisterOptions["limits"];
  readonly #claims = new Map<ClaimId, RegisteredClaim>();
  /** Keys of claims, by account. */
  readonly #counts = new Map<string, number>();
  #count = 0;
  readonly #leases = new DeadlineHeap<RegisteredClaim>();
  readonly #timer: Timer;

  constructor({ clock, eventLog, limits }: StoreRegisterOptions) {
    this.#clock = clock;
    this.#eventLog = eventLog;
    this.#limits = limits;
    this.#timer = clock.timer(() => this.#onTimer());
  }

  /** Waiting and held claims. */
  get size(): number {
    return this.#claims.size;
  }

  add(claim: Claim, account: string): void {
    const { claims, claimsPerAccount } = this.#limits;
    const keys = claim.locks.length;
    if (this.#count + keys > claims) throw new RequestError("LIMIT", `at most ${claims} claims of this gateway`);
    if (account !== "" && (this.#counts.get(account) ?? 0) + keys > claimsPerAccount)
      throw new RequestError("LIMIT", `at most ${claimsPerAccount} claims of one account`);
    this.#claims.set(claim.id, new RegisteredClaim(claim, account, this.#clock.now()));
    this.#addToCounts(account, keys);
  }

  onQueued(id: ClaimId): void {
    const registered = this.#claims.get(id);
    if (registered === undefined || registered.isQueued) return;
    registered.isQueued = true;
    this.#eventLog.onEvent("waiting", registered, this.#clock.now());
  }

  onGranted(id: ClaimId, token: bigint, endsAt: number): void {
    const registered = this.#claims.get(id);
    if (registered === undefined) return;
    const now = this.#clock.now();
    registered.heldAt = now;
    registered.token = token <= BigInt(Number.MAX_SAFE_INTEGER) && token > 0n ? Number(token) : token;
    this.#eventLog.onEvent("granted", registered, now);
    this.#setLease(registered, endsAt);
  }

  onRenewed(id: ClaimId, endsAt: number): void {
    const registered = this.#claims.get(id);
    if (registered !== undefined) this.#setLease(registered, endsAt);
  }

  onEnd(id: ClaimId, kind: EventKind): void {
    const registered = this.#claims.get(id);
    if (registered === undefined) return;
    this.#claims.delete(id);
    this.#leases.remove(registered);
    this.#addToCounts(registered.account, -registered.claim.locks.length);
    // a claim that never had an entry has not ended
    if (registered.isQueued || registered.token !== 0) this.#eventLog.onEvent(kind, registered, this.#clock.now());
  }

  close(): void {
    this.#timer.stop();
  }

  #setLease(registered: RegisteredClaim, endsAt: number): void {
    this.#leases.set(registered, endsAt);
    this.#timer.set(this.#leases.nextDueAt());
  }

  #addToCounts(account: string, keys: number): void {
    this.#count += keys;
    const count = (this.#counts.get(account) ?? 0) + keys;
    if (count === 0) this.#counts.delete(account);
    else this.#counts.set(account, count);
  }

  #onTimer(): void {
    const now = this.#clock.now();
    for (let due = this.#leases.takeDue(now); due !== null; due = this.#leases.takeDue(now))
      this.onEnd(due.claim.id, "expired");
    this.#timer.set(this.#leases.nextDueAt());
  }
}

function ignore(): void {
  // nothing to keep
}

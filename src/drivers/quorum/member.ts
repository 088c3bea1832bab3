/**
 * One of the stores: opens it when possible, counts its calls, and keeps unanswered releases until it answers again.
 */

import { isFatalError } from "../../errors.ts";
import type { Answer, Claim, ClaimId, ClaimView, Driver, ListQuery, TokenRange, Traits } from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";

/** A member that could not be opened is tried again at the next use, but not more often than this. */
const REOPEN_INTERVAL_MS = 1_000;

/** How many unanswered calls a suspect member may have; further calls fail at once. */
const MAX_UNANSWERED = 5_000;

/** How many releases are kept for a member that is down; the entries of the oldest ones end with their leases. */
const MAX_PENDING_RELEASES = 10_000;

/** How many claims one release call has at most. */
const MAX_RELEASES_PER_CALL = 500;

/** The size of the first list asked of a member; it includes token claims. */
const FIRST_LIST_SIZE = 1_000;

type PushHandler = (index: number, id: ClaimId | null, answer?: Answer) => void;

/** A release that a member has not answered. */
interface PendingRelease {
  readonly claim: Claim;
  readonly ttlMs: number;
  /** By then the member has ended the claim's entry. */
  expiresAt: number;
  /**
   * For a claim that is to be claimed again: called when no late release can end its new entry. Otherwise undefined: a
   * late claim call must make no entry.
   */
  readonly onReleased: (() => void) | undefined;
  /** The last release was answered; an earlier one may still arrive. */
  isAnswered: boolean;
}

export interface MemberOptions {
  readonly index: number;
  readonly driver: Driver;
  readonly clock: Clock;
  /** The monotonic time plus the observed suspensions of the machine. */
  readonly time: () => number;
  readonly onPush: PushHandler;
  readonly onRecalled: (index: number, id: ClaimId) => void;
  readonly onDisconnected: (index: number) => void;
  /** Called with the error when the member fails, and with null when it answers again. */
  readonly onHealthChange: (index: number, error: unknown) => void;
  readonly heldTokens: (index: number, id: ClaimId) => TokenRange | null;
}

export class Member {
  readonly index: number;
  readonly driver: Driver;
  readonly clock: Clock;
  /**
   * The last call failed or was not answered in time: the member is asked, but not waited for while the others can
   * decide.
   */
  isSuspect = false;
  /**
   * An upper bound of its wall clock minus `time()`, in milliseconds (too high by a round trip at most); null: its
   * answers have no store time.
   */
  wallOffsetMs: number | null = null;
  /** How it tells holders that others wait; false while it was never open. */
  recall: Traits["recall"] = false;
  /** See Traits. */
  reportsBreaks: Traits["reportsBreaks"];
  readonly #options: MemberOptions;
  readonly #pendingReleases = new Map<ClaimId, PendingRelease>();
  #opening: Promise<void> | null = null;
  #isOpen = false;
  #isClosed = false;
  #openError: unknown = null;
  #lastOpenAt = 0;
  #unansweredCount = 0;
  #isFlushing = false;

  constructor(options: MemberOptions) {
    this.index = options.index;
    this.driver = options.driver;
    this.clock = options.clock;
    this.#options = options;
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** @throws (rejects) as the driver's open(); TypeError if the driver cannot be a member */
  open(): Promise<void> {
    this.#opening ??= this.#open().finally(() => {
      this.#opening = null;
    });
    return this.#opening;
  }

  /** Makes one call. A failure or a timeout is reported and makes the member suspect. */
  async call<T>(work: (driver: Driver) => Promise<T>): Promise<T> {
    if (!this.#isOpen) {
      this.#reopen();
      throw this.#openError ?? new Error(`quorum: member ${this.index} has not been reached yet`);
    }
    if (this.isSuspect && this.#unansweredCount >= MAX_UNANSWERED)
      throw new Error(`quorum: member ${this.index} has too many unanswered calls`);
    this.#unansweredCount++;
    try {
      const result = await work(this.driver);
      this.#onAnswered();
      return result;
    } catch (error) {
      // a refusal is an answer
      if (!isFatalError(error)) this.markSuspect(error);
      throw error;
    } finally {
      this.#unansweredCount--;
    }
  }

  /** Reads the member's clock from the answer to a call sent at `sentAt`. */
  observeClock(answer: Answer, sentAt: number): void {
    if (answer.state !== "none" && answer.storeTimeMs !== undefined) this.wallOffsetMs = answer.storeTimeMs - sentAt;
  }

  markSuspect(error: unknown): void {
    if (!this.isSuspect) this.#options.onHealthChange(this.index, error);
    this.isSuspect = true;
  }

  /** Keeps a release until the member answers anything. If it stays silent, its entry ends with the lease. */
  addPendingRelease(claim: Claim, ttlMs: number, onReleased?: () => void): void {
    if (this.#pendingReleases.size >= MAX_PENDING_RELEASES) {
      const [oldest] = this.#pendingReleases.keys();
      this.#pendingReleases.delete(oldest as ClaimId);
    }
    const expiresAt = this.#options.time() + ttlMs;
    this.#pendingReleases.set(claim.id, { claim, ttlMs, expiresAt, onReleased, isAnswered: false });
  }

  /** Sends the pending releases, in batches, one batch at a time. */
  flushReleases(): void {
    if (this.#pendingReleases.size === 0 || this.#isFlushing || !this.#isOpen) return;
    const now = this.#options.time();
    const batch: PendingRelease[] = [];
    for (const [id, release] of this.#pendingReleases) {
      if (release.expiresAt <= now) {
        this.#pendingReleases.delete(id);
        release.onReleased?.();
      } else if (batch.length < MAX_RELEASES_PER_CALL && !release.isAnswered) batch.push(release);
    }
    if (batch.length === 0) return;
    this.#isFlushing = true;
    const onSettled = (isAnswered: boolean): void => {
      this.#isFlushing = false;
      for (const leftover of batch) {
        leftover.isAnswered = isAnswered;
        if (leftover.onReleased !== undefined) leftover.expiresAt = this.#options.time() + leftover.ttlMs;
        else if (isAnswered) this.#pendingReleases.delete(leftover.claim.id);
      }
    };
    const releases = batch.map(({ claim, onReleased }) => ({ claim, hasUnansweredClaim: onReleased === undefined }));
    this.driver.release(releases).then(
      () => {
        onSettled(true);
        this.flushReleases();
      },
      () => onSettled(false), // sent again after the next answer
    );
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const opening = this.#opening;
    if (opening !== null) await opening.catch(() => undefined); // open() has rejected with this error
    if (!this.#isOpen) return;
    this.#isOpen = false;
    await this.driver.close();
  }

  async #open(): Promise<void> {
    this.#lastOpenAt = this.#options.time();
    this.#isClosed = false;
    const { index, driver } = this;
    let traits: Traits;
    try {
      traits = await driver.open({
        pushed: (id, answer) => this.#onPush(id, answer),
        recheck: (id) => this.#onPush(id, undefined),
        disconnected: () => this.#options.onDisconnected(this.index),
        reconnected: () => this.#onPush(null, undefined),
        recalled: (id) => {
          if (this.#isOpen) this.#options.onRecalled(this.index, id);
        },
        heldTokens: (id) => this.#options.heldTokens(this.index, id),
      });
    } catch (error) {
      this.#openError = error;
      this.markSuspect(error);
      throw error;
    }
    if (this.#isClosed) return driver.close();
    const { lease, permits, fencing, recall, reportsBreaks } = traits;
    if (!lease.claim || permits === "one" || !fencing) {
      this.#isClosed = true;
      await driver.close();
      const missingTrait = !lease.claim ? "leases of claims" : permits === "one" ? "shared claims" : "fencing tokens";
      throw new TypeError(`drivers[${index}] (${driver.name}) cannot be a quorum member: it has no ${missingTrait}`);
    }
    this.recall = recall;
    this.reportsBreaks = reportsBreaks;
    this.#isOpen = true;
    this.#onAnswered();
  }

  #reopen(): void {
    if (this.#isClosed || this.#opening !== null || this.#options.time() - this.#lastOpenAt < REOPEN_INTERVAL_MS)
      return;
    this.open().then(
      () => this.#options.onPush(this.index, null),
      () => undefined, // markSuspect() has reported it
    );
  }

  #onPush(id: ClaimId | null, answer: Answer | undefined): void {
    if (!this.#isOpen) return;
    if (id === null) this.flushReleases();
    this.#options.onPush(this.index, id, answer);
  }

  #onAnswered(): void {
    if (this.isSuspect) {
      this.isSuspect = false;
      this.#options.onHealthChange(this.index, null);
    }
    this.flushReleases();
  }
}

/** A call in flight at a member; settled never rejects. */
export interface MemberCall {
  readonly member: Member;
  readonly settled: Promise<void>;
}

/**
 * Waits until the outcome is decided or all calls have settled, for `timeoutMs` at most. It does not wait for suspect
 * members if the others are a majority. A member that has not answered by the timeout becomes suspect.
 */
export function waitForMembers(
  calls: readonly MemberCall[],
  isDecided: () => boolean,
  timeoutMs: number,
): Promise<void> {
  const clock = calls[0]?.member.clock;
  if (clock === undefined) return Promise.resolve();
  return new Promise((resolve) => {
    const pending = new Set(calls);
    const trustedCalls = calls.filter(({ member }) => !member.isSuspect);
    const awaited = trustedCalls.length > calls.length >> 1 ? new Set(trustedCalls) : pending;
    const timer = clock.timer(() => {
      for (const { member } of pending)
        member.markSuspect(new Error(`quorum: member ${member.index} did not answer in time`));
      resolve();
    });
    timer.set(clock.now() + timeoutMs);
    const check = (): void => {
      if (!isDecided() && awaited.size > 0) return;
      timer.stop();
      resolve();
    };
    for (const call of calls) {
      void call.settled.then(() => {
        pending.delete(call);
        awaited.delete(call);
        check();
      });
    }
    check();
  });
}

/** Reads the list in one call, not by pages: a claim that ends between two pages would invalidate the cursor. */
export async function listAll(driver: Driver, query: ListQuery, signal?: AbortSignal): Promise<readonly ClaimView[]> {
  for (let max = FIRST_LIST_SIZE; ; max *= 4) {
    signal?.throwIfAborted();
    const { items, next } = await driver.list(query, { max, signal });
    if (next === undefined) return items;
  }
}

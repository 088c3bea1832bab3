/**
 * One of the stores: opened when it can be, its calls counted, and what could not be given back there kept until it
 * answers again. The only file of this driver with a timer, which bounds calls.
 */

import { isFatalError } from "../../errors.ts";
import type { Answer, Claim, ClaimId, Driver } from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";

/** A member that could not be opened is tried again at the next use, but not more often than this. */
const REOPEN_INTERVAL_MS = 1_000;

/** Calls that a member in trouble may owe an answer to; further ones fail at once. */
const MAX_UNANSWERED = 5_000;

/** Releases kept for a member that is away; the oldest are left to the end of their lease. */
const MAX_PENDING_RELEASES = 10_000;

/** In one release. */
const MAX_RELEASES_PER_CALL = 500;

type PushHandler = (index: number, id: ClaimId | null, answer?: Answer) => void;

/** A release that a member has not answered. */
interface PendingRelease {
  readonly claim: Claim;
  readonly ttlMs: number;
  /** The member has forgotten the claim by then. */
  expiresAt: number;
  /** Of a claim that is to come back: told when nothing can end a new place of it. Else none is wanted that comes late. */
  readonly onReleased: (() => void) | undefined;
  /** It was answered at last; one that was sent before may still be on its way. */
  isAnswered: boolean;
}

export interface MemberOptions {
  readonly index: number;
  readonly driver: Driver;
  readonly clock: Clock;
  /** Its time and what the machine was seen to sleep. */
  readonly time: () => number;
  readonly onPush: PushHandler;
  /** It failed, or (null) it answers again. */
  readonly onHealthChange: (index: number, error: unknown) => void;
}

export class Member {
  readonly index: number;
  readonly driver: Driver;
  readonly clock: Clock;
  /** The last call failed or was not answered in time: it is asked, but nobody waits for it while the others can decide. */
  isSuspect = false;
  /** Its wall clock minus our time, in milliseconds, at most (a trip too much); null: its answers do not tell. */
  wallOffsetMs: number | null = null;
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

  /** @throws (rejects) what the driver's open() does; FatalDriverError if it cannot be a member */
  open(): Promise<void> {
    this.#opening ??= this.#open().finally(() => {
      this.#opening = null;
    });
    return this.#opening;
  }

  /** One call. A failure, or silence, is told and makes the member suspect. */
  async call<T>(work: (driver: Driver) => Promise<T>): Promise<T> {
    if (!this.#isOpen) {
      this.#reopen();
      throw this.#openError ?? new Error(`quorum: member ${this.index} was not reached yet`);
    }
    if (this.isSuspect && this.#unansweredCount >= MAX_UNANSWERED)
      throw new Error(`quorum: member ${this.index} owes too many answers`);
    this.#unansweredCount++;
    try {
      const result = await work(this.driver);
      this.#onAnswered();
      return result;
    } catch (error) {
      // "no" is an answer
      if (!isFatalError(error)) this.markSuspect(error);
      throw error;
    } finally {
      this.#unansweredCount--;
    }
  }

  /** What an answer to a call that was sent then says of the member's clock. */
  observeClock(answer: Answer, sentAt: number): void {
    if (answer.state !== "none" && answer.storeMs !== undefined) this.wallOffsetMs = answer.storeMs - sentAt;
  }

  markSuspect(error: unknown): void {
    if (!this.isSuspect) this.#options.onHealthChange(this.index, error);
    this.isSuspect = true;
  }

  /** To be released as soon as the member answers anything; nothing is lost if it does not before the lease ends. */
  addPendingRelease(claim: Claim, ttlMs: number, onReleased?: () => void): void {
    if (this.#pendingReleases.size >= MAX_PENDING_RELEASES) {
      const [oldest] = this.#pendingReleases.keys();
      this.#pendingReleases.delete(oldest as ClaimId);
    }
    const expiresAt = this.#options.time() + ttlMs;
    this.#pendingReleases.set(claim.id, { claim, ttlMs, expiresAt, onReleased, isAnswered: false });
  }

  /** Gives back what is left over, in batches, one at a time. */
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
    const unanswered = new Set(batch.flatMap(({ claim, onReleased }) => (onReleased === undefined ? [claim.id] : [])));
    const onSettled = (isAnswered: boolean): void => {
      this.#isFlushing = false;
      for (const leftover of batch) {
        leftover.isAnswered = isAnswered;
        if (leftover.onReleased !== undefined) leftover.expiresAt = this.#options.time() + leftover.ttlMs;
        else if (isAnswered) this.#pendingReleases.delete(leftover.claim.id);
      }
    };
    const claims = batch.map(({ claim }) => claim);
    this.driver.release(claims, unanswered).then(
      () => {
        onSettled(true);
        this.flushReleases();
      },
      () => onSettled(false), // tried again when it answers something else
    );
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const opening = this.#opening;
    if (opening !== null) await opening.catch(() => undefined); // whoever opened was told
    if (!this.#isOpen) return;
    this.#isOpen = false;
    await this.driver.close();
  }

  async #open(): Promise<void> {
    this.#lastOpenAt = this.#options.time();
    this.#isClosed = false;
    const { index, driver } = this;
    try {
      await driver.open((id, answer) => this.#onPush(id, answer));
    } catch (error) {
      this.#openError = error;
      this.markSuspect(error);
      throw error;
    }
    if (this.#isClosed) return driver.close();
    const { lease, permits, fencing } = driver.traits;
    if (!lease.claim || permits === "one" || !fencing) {
      this.#isClosed = true;
      await driver.close();
      const missingTrait = !lease.claim ? "leases of claims" : permits === "one" ? "shared claims" : "fencing tokens";
      throw new TypeError(`drivers[${index}] (${driver.name}) cannot vote: it has no ${missingTrait}`);
    }
    this.#isOpen = true;
    this.#onAnswered();
  }

  #reopen(): void {
    if (this.#isClosed || this.#opening !== null || this.#options.time() - this.#lastOpenAt < REOPEN_INTERVAL_MS)
      return;
    this.open().then(
      () => this.#options.onPush(this.index, null),
      () => undefined, // told by markSuspect()
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

/** A call under way at a member; settled never rejects. */
export interface MemberCall {
  readonly member: Member;
  readonly settled: Promise<void>;
}

/**
 * Waits until it is decided, until all have settled (members that are suspect are not waited for where the others are a
 * majority), or for `timeoutMs` at most. Who has not answered by then is suspect.
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
    timer.keepAlive(true);
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

/** A pause, for jitter. */
export function delay(clock: Clock, ms: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = clock.timer(resolve);
    timer.keepAlive(true);
    timer.set(clock.now() + ms);
  });
}

/** Two clocks may drift apart by this much before it counts as sleep, and are compared once in COMPARE_INTERVAL_MS. */
const SUSPEND_TOLERANCE_MS = 250;
const COMPARE_INTERVAL_MS = 10;

/** The monotonic clock plus what the machine was seen to sleep: a vote's lease goes on while we sleep. */
export function createSuspendAwareTime(clock: Clock): () => number {
  let uptimeOffsetMs = clock.uptime() - clock.now();
  let suspendedMs = 0;
  let comparedAt = clock.now();
  return () => {
    const now = clock.now();
    if (now - comparedAt >= COMPARE_INTERVAL_MS) {
      comparedAt = now;
      const driftMs = clock.uptime() - now - uptimeOffsetMs;
      if (driftMs > SUSPEND_TOLERANCE_MS) {
        suspendedMs += driftMs;
        uptimeOffsetMs += driftMs;
      }
    }
    return now + suspendedMs;
  };
}

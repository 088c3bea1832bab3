/**
 * One of the stores: opened when it can be, its calls counted, and what could not be given back there kept until it
 * answers again. The only file of this driver with a timer, which bounds calls.
 */

import type { Clock } from "../../clock.ts";
import { isFatal } from "../../errors.ts";
import type { Answer, Claim, ClaimId, Driver } from "../../spi/driver.ts";

/** A member that could not be opened is tried again at the next use, but not more often than this. */
const REOPEN_MS = 1_000;

/** Calls that a member in trouble may owe an answer to; further ones fail at once. */
const MOST_UNANSWERED = 5_000;

/** Releases kept for a member that is away; the oldest are left to the end of their lease. */
const MOST_LEFTOVERS = 10_000;

/** In one release. */
const BATCH = 500;

type Heard = (index: number, id: ClaimId | null, answer?: Answer) => void;

/** A release that a member has not answered. */
interface Leftover {
  readonly claim: Claim;
  readonly ttlMs: number;
  /** The member has forgotten the claim by then. */
  until: number;
  /** Of a claim that is to come back: told when nothing can end a new place of it. Else none is wanted that comes late. */
  readonly left: (() => void) | undefined;
  /** It was answered at last; one that was sent before may still be on its way. */
  isAnswered: boolean;
}

export interface MemberOptions {
  readonly index: number;
  readonly driver: Driver;
  readonly clock: Clock;
  /** Its time and what the machine was seen to sleep. */
  readonly time: () => number;
  readonly heard: Heard;
  /** It failed, or (null) it answers again. */
  readonly told: (index: number, error: unknown) => void;
}

export class Member {
  readonly index: number;
  readonly driver: Driver;
  readonly clock: Clock;
  /** The last call failed or was not answered in time: it is asked, but nobody waits for it while the others can decide. */
  suspect = false;
  /** Its wall clock minus our time, in milliseconds, at most (a trip too much); null: its answers do not tell. */
  aheadMs: number | null = null;
  readonly #options: MemberOptions;
  readonly #leftovers = new Map<ClaimId, Leftover>();
  #opening: Promise<void> | null = null;
  #isOpen = false;
  #isClosed = false;
  #refused: unknown = null;
  #triedAt = 0;
  #unanswered = 0;
  #flushing = false;

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
      throw this.#refused ?? new Error(`quorum: member ${this.index} was not reached yet`);
    }
    if (this.suspect && this.#unanswered >= MOST_UNANSWERED)
      throw new Error(`quorum: member ${this.index} owes too many answers`);
    this.#unanswered++;
    try {
      const result = await work(this.driver);
      this.#answers();
      return result;
    } catch (error) {
      // "no" is an answer
      if (!isFatal(error)) this.fails(error);
      throw error;
    } finally {
      this.#unanswered--;
    }
  }

  /** What an answer to a call that was sent then says of the member's clock. */
  saw(answer: Answer, sentAt: number): void {
    if (answer.state !== "none" && answer.storeMs !== undefined) this.aheadMs = answer.storeMs - sentAt;
  }

  fails(error: unknown): void {
    if (!this.suspect) this.#options.told(this.index, error);
    this.suspect = true;
  }

  /** To be released as soon as the member answers anything; nothing is lost if it does not before the lease ends. */
  keep(claim: Claim, ttlMs: number, left?: () => void): void {
    if (this.#leftovers.size >= MOST_LEFTOVERS) {
      const [oldest] = this.#leftovers.keys();
      this.#leftovers.delete(oldest as ClaimId);
    }
    const until = this.#options.time() + ttlMs;
    this.#leftovers.set(claim.id, { claim, ttlMs, until, left, isAnswered: false });
  }

  /** Gives back what is left over, in batches, one at a time. */
  flush(): void {
    if (this.#leftovers.size === 0 || this.#flushing || !this.#isOpen) return;
    const now = this.#options.time();
    const batch: Leftover[] = [];
    for (const [id, leftover] of this.#leftovers) {
      if (leftover.until <= now) {
        this.#leftovers.delete(id);
        leftover.left?.();
      } else if (batch.length < BATCH && !leftover.isAnswered) batch.push(leftover);
    }
    if (batch.length === 0) return;
    this.#flushing = true;
    const unwanted = new Set(batch.flatMap(({ claim, left }) => (left === undefined ? [claim.id] : [])));
    const settled = (isAnswered: boolean): void => {
      this.#flushing = false;
      for (const leftover of batch) {
        leftover.isAnswered = isAnswered;
        if (leftover.left !== undefined) leftover.until = this.#options.time() + leftover.ttlMs;
        else if (isAnswered) this.#leftovers.delete(leftover.claim.id);
      }
    };
    const claims = batch.map(({ claim }) => claim);
    this.driver.release(claims, unwanted).then(
      () => {
        settled(true);
        this.flush();
      },
      () => settled(false), // tried again when it answers something else
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
    this.#triedAt = this.#options.time();
    this.#isClosed = false;
    const { index, driver } = this;
    try {
      await driver.open((id, answer) => this.#heard(id, answer));
    } catch (error) {
      this.#refused = error;
      this.fails(error);
      throw error;
    }
    if (this.#isClosed) return driver.close();
    const { lease, permits, fencing } = driver.traits;
    if (!lease.claim || permits === "one" || !fencing) {
      this.#isClosed = true;
      await driver.close();
      const what = !lease.claim ? "leases of claims" : permits === "one" ? "shared claims" : "fencing tokens";
      throw new TypeError(`drivers[${index}] (${driver.name}) cannot vote: it has no ${what}`);
    }
    this.#isOpen = true;
    this.#answers();
  }

  #reopen(): void {
    if (this.#isClosed || this.#opening !== null || this.#options.time() - this.#triedAt < REOPEN_MS) return;
    this.open().then(
      () => this.#options.heard(this.index, null),
      () => undefined, // told by fails()
    );
  }

  #heard(id: ClaimId | null, answer: Answer | undefined): void {
    if (!this.#isOpen) return;
    if (id === null) this.flush();
    this.#options.heard(this.index, id, answer);
  }

  #answers(): void {
    if (this.suspect) {
      this.suspect = false;
      this.#options.told(this.index, null);
    }
    this.flush();
  }
}

/** A call under way at a member; settled never rejects. */
export interface Asked {
  readonly member: Member;
  readonly settled: Promise<void>;
}

/**
 * Waits until it is decided, until all have settled (members that are suspect are not waited for where the others are a
 * majority), or for `withinMs` at most. Who has not answered by then is suspect.
 */
export function gather(asked: readonly Asked[], isDecided: () => boolean, withinMs: number): Promise<void> {
  const clock = asked[0]?.member.clock;
  if (clock === undefined) return Promise.resolve();
  return new Promise((resolve) => {
    const open = new Set(asked);
    const trusted = asked.filter(({ member }) => !member.suspect);
    const patient = trusted.length > asked.length >> 1 ? new Set(trusted) : open;
    const timer = clock.timer(() => {
      for (const { member } of open) member.fails(new Error(`quorum: member ${member.index} did not answer in time`));
      resolve();
    });
    timer.keepAlive(true);
    timer.set(clock.now() + withinMs);
    const look = (): void => {
      if (!isDecided() && patient.size > 0) return;
      timer.stop();
      resolve();
    };
    for (const one of asked) {
      void one.settled.then(() => {
        open.delete(one);
        patient.delete(one);
        look();
      });
    }
    look();
  });
}

/** A pause, for jitter. */
export function pause(clock: Clock, ms: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = clock.timer(resolve);
    timer.keepAlive(true);
    timer.set(clock.now() + ms);
  });
}

/** Two clocks may drift apart by this much before it counts as sleep, and are compared once in LOOK_MS. */
const TOLERANCE_MS = 250;
const LOOK_MS = 10;

/** The monotonic clock plus what the machine was seen to sleep: a vote's lease goes on while we sleep. */
export function awakeTime(clock: Clock): () => number {
  let ahead = clock.uptime() - clock.now();
  let sleptMs = 0;
  let lookedAt = clock.now();
  return () => {
    const now = clock.now();
    if (now - lookedAt >= LOOK_MS) {
      lookedAt = now;
      const by = clock.uptime() - now - ahead;
      if (by > TOLERANCE_MS) {
        sleptMs += by;
        ahead += by;
      }
    }
    return now + sleptMs;
  };
}

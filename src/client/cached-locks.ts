/**
 * Cached locks: claims that a client keeps while they are not in use, so that the next request here costs no call.
 *
 *   in use   a local hold has the lock
 *   idle     no request here uses it; it is renewed like one in use
 *
 *   in use -> idle     after the last release, if keepsClaim() of the local queue says so
 *   idle   -> in use   by the next local request, if it may still be used
 *   idle   -> released when another claim waits for it (a recall), after `cache` without use, when it is lost, when a claim
 *                      of this client conflicts with it, at the end of the process, by releaseAll() and close()
 *
 * Invariants
 * - An idle claim is released in the turn in which it is recalled or lost. There is no code to wait for.
 * - Idle claims keep no process alive: neither the client's timer nor the driver's connections.
 * - A claim that was recalled is never idle again.
 * - A claim of this client that conflicts with an idle one is sent behind the release of that one, in the same turn.
 */

import type { Driver, LockSpec, Traits } from "../spi/driver.ts";
import type { ActiveClaim, Engine } from "./engine.ts";
import type { ScheduledTask } from "./scheduler.ts";

/** How many names are remembered. */
const MAX_NAMES = 1_000;

/** How long a lock is not cached that is recalled again and again, at first and at most; each by up to a half more or less. */
const FIRST_BACKOFF_MS = 50;
const MAX_BACKOFF_MS = 10_000;

/**
 * On a store that does not push recalls an idle claim is asked about at intervals of an eighth of its idle time, within these:
 * it learns that another claim waits at the next one. All intervals are the first one times a power of two, and end at multiples
 * of themselves by the clock, so that all idle claims of a process, and its waiting ones, are asked about in the same calls.
 */
const MIN_POLL_MS = 250;
const MAX_POLL_MS = 1_000;
/** How long the end of a process may wait for the answers to its last releases. */
const EXIT_TIMEOUT_MS = 500;

/** The local queue of a cached lock. */
export interface CachingQueue {
  /** Releases the claim, which is idle. */
  giveBack(now: number): void;
}

/** One claim of a local queue that is idle, or was and may be again. */
export class CachedLock implements ScheduledTask {
  readonly activeClaim: ActiveClaim;
  readonly queue: CachingQueue;
  readonly name: string;
  isIdle = false;
  /** It was used again after it had been idle. */
  wasReused = false;
  idleSince = 0;
  #cacheMs = 0;
  readonly #locks: CachedLocks;
  /** It keeps the process alive like a lock in use. */
  #isCounted = true;
  /** It waits for the end of the turn, at which it stops to count. */
  isUnsettled = false;
  // a scheduled task: due when it may have been idle for long enough, or is to be asked about
  readonly mayRunEarly = false;
  dueAt = 0;
  heapIndex = -1;

  constructor(locks: CachedLocks, queue: CachingQueue, name: string, activeClaim: ActiveClaim) {
    this.#locks = locks;
    this.queue = queue;
    this.name = name;
    this.activeClaim = activeClaim;
  }

  /** The last holder here has released the lock. */
  becomeIdle(now: number, cacheMs: number): void {
    this.isIdle = true;
    this.idleSince = now;
    this.#cacheMs = cacheMs;
    // a task that is due before stays: moving it for each use would cost more than one call too many
    const dueAt = this.#nextDueAt(now);
    if (this.heapIndex === -1 || dueAt < this.dueAt) this.#locks.engine.scheduler.schedule(this, dueAt);
    if (this.#isCounted && !this.isUnsettled) this.#locks.settleLater(this);
  }

  /** A request here uses the lock. */
  becomeUsed(): void {
    this.isIdle = false;
    if (!this.wasReused) {
      this.wasReused = true;
      this.#locks.recordReuse(this.name);
    }
    if (!this.#isCounted) this.#setCounted(true);
  }

  /** Still idle at the end of the turn: it keeps the process alive no longer. */
  settle(): void {
    this.isUnsettled = false;
    if (this.isIdle && this.#isCounted) this.#setCounted(false);
  }

  onDue(now: number): void {
    if (this.isIdle && now >= this.idleSince + this.#cacheMs) return this.queue.giveBack(now);
    // one in use, too: it must not be idle again while another claim waits
    if (this.#locks.polls) this.#locks.engine.changed(this.activeClaim.claim.id);
    // the answer may have ended it
    if (this.isIdle) this.#locks.engine.scheduler.schedule(this, this.#nextDueAt(now));
  }

  /** Its claim ends, or is given up. */
  end(): void {
    this.isIdle = false;
    this.#locks.engine.scheduler.cancel(this);
    // the release of the claim, or a later use, counts by itself
    if (!this.#isCounted) this.#setCounted(true);
  }

  #nextDueAt(now: number): number {
    const endsAt = this.idleSince + this.#cacheMs;
    if (!this.#locks.polls) return endsAt;
    return Math.min(endsAt, nextPollAt(now, now - this.idleSince));
  }

  #setCounted(isCounted: boolean): void {
    this.#isCounted = isCounted;
    this.#locks.engine.setIdle(this.activeClaim, !isCounted);
  }
}

/** When to ask next about a claim that has been idle for so long. */
function nextPollAt(now: number, idleMs: number): number {
  let pollMs = MIN_POLL_MS;
  while (pollMs < MAX_POLL_MS && pollMs * 8 < idleMs) pollMs *= 2;
  // a little early: timers are rounded up to milliseconds, and all must meet the same one
  const untilNextMs = pollMs - (now % pollMs) - 0.5;
  return now + (untilNextMs < 1 ? untilNextMs + pollMs : untilNextMs);
}

/** What the cached locks of one name have shown. It outlives them. */
interface CacheHistory {
  /** How often in a row one was recalled before it had been used again. */
  readonly uselessCount: number;
  /** Until then none is cached. */
  readonly cacheableAt: number;
  /** How many tokens the next claim should request. */
  readonly suggestedTokens: number;
}

const NO_HISTORY: CacheHistory = { uselessCount: 0, cacheableAt: 0, suggestedTokens: 1 };

/** The cached locks of one client. */
export class CachedLocks {
  readonly engine: Engine;
  /** The store does not push recalls. */
  readonly polls: boolean;
  /** Every claim that is idle, or was and may be again. */
  readonly #all = new Set<CachedLock>();
  /** The latest of them on each key: an earlier one was lost there. */
  readonly #byKey = new Map<string, CachedLock>();
  /** What was learned about names, the longest unused first. */
  readonly #histories = new Map<string, CacheHistory>();
  #unsettled: CachedLock[] = [];
  readonly #onExitDelayed: () => void;

  /** @param onExitDelayed called if the releases at the end of the process have not been answered after a moment */
  constructor(engine: Engine, { recall }: Traits, onExitDelayed: () => void) {
    this.engine = engine;
    this.#onExitDelayed = onExitDelayed;
    this.polls = recall === "recheck";
  }

  /** May a lock of this name be cached? Not for a while after it was recalled twice in a row without use. */
  allows(name: string, now: number): boolean {
    return now >= (this.#histories.get(name)?.cacheableAt ?? now);
  }

  add(cachedLock: CachedLock): void {
    for (const { key } of cachedLock.activeClaim.claim.locks) this.#byKey.set(key, cachedLock);
    this.#all.add(cachedLock);
    if (this.#all.size === 1) exitListener.add(this);
  }

  remove(cachedLock: CachedLock): void {
    for (const { key } of cachedLock.activeClaim.claim.locks)
      if (this.#byKey.get(key) === cachedLock) this.#byKey.delete(key);
    this.#all.delete(cachedLock);
    cachedLock.end();
    if (this.#all.size === 0) exitListener.delete(this);
  }

  /** Releases the idle locks on these keys. Called before a claim for them is sent. */
  giveBackFor(locks: readonly LockSpec[], now: number): void {
    if (this.#byKey.size === 0) return;
    for (const { key } of locks) {
      const cachedLock = this.#byKey.get(key);
      if (cachedLock?.isIdle) cachedLock.queue.giveBack(now);
    }
  }

  /** Nothing else keeps the process alive. A store that does not answer may delay its end only for a moment. */
  giveBackAtExit(): void {
    this.giveBackAll();
    this.engine.scheduler.timer(this.#onExitDelayed).set(this.engine.clock.now() + EXIT_TIMEOUT_MS);
  }

  giveBackAll(): void {
    const now = this.engine.clock.now();
    for (const cachedLock of this.listIdle()) if (cachedLock.isIdle) cachedLock.queue.giveBack(now);
  }

  /** Returns the idle locks. */
  listIdle(): CachedLock[] {
    return [...this.#all].filter(({ isIdle }) => isIdle);
  }

  /** How many tokens the last claim of this name suggests for the next one. */
  suggestedTokens(name: string): number {
    return this.#histories.get(name)?.suggestedTokens ?? 1;
  }

  recordTokens(name: string, suggestedTokens: number): void {
    this.#record(name, { suggestedTokens });
  }

  recordReuse(name: string): void {
    if (this.#histories.has(name)) this.#record(name, { uselessCount: 0, cacheableAt: 0 });
  }

  /** An idle lock was recalled. */
  recordRecall({ name, wasReused }: CachedLock, now: number): void {
    if (wasReused) return;
    const uselessCount = (this.#histories.get(name)?.uselessCount ?? 0) + 1;
    const backoffMs = uselessCount < 2 ? 0 : Math.min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** (uselessCount - 2));
    this.#record(name, { uselessCount, cacheableAt: now + backoffMs * (0.5 + this.engine.random()) });
  }

  #record(name: string, change: Partial<CacheHistory>): void {
    const history = { ...(this.#histories.get(name) ?? NO_HISTORY), ...change };
    this.#histories.delete(name); // the name moves to the end
    this.#histories.set(name, history);
    if (this.#histories.size > MAX_NAMES) this.#histories.delete(this.#histories.keys().next().value as string);
  }

  /** Counts the lock as idle from the next turn of the event loop on: one that is used again and again costs nothing. */
  settleLater(cachedLock: CachedLock): void {
    cachedLock.isUnsettled = true;
    if (this.#unsettled.push(cachedLock) > 1) return;
    setImmediate(() => {
      const unsettled = this.#unsettled;
      this.#unsettled = [];
      for (const settling of unsettled) settling.settle();
    });
  }
}

/** One listener for all clients: gives cached locks back when nothing else keeps the process alive. */
class ExitListener {
  readonly #clients = new Set<CachedLocks>();
  readonly #onBeforeExit = (): void => {
    for (const client of [...this.#clients]) client.giveBackAtExit();
  };

  add(client: CachedLocks): void {
    if (this.#clients.size === 0) process.on("beforeExit", this.#onBeforeExit);
    this.#clients.add(client);
  }

  delete(client: CachedLocks): void {
    this.#clients.delete(client);
    if (this.#clients.size === 0) process.off("beforeExit", this.#onBeforeExit);
  }
}

const exitListener = new ExitListener();

/** Why a lock cannot be cached on this store; null: it can. */
export function cacheProblem({ recall, reportsBreaks }: Traits, { name }: Driver): string | null {
  if (reportsBreaks === false)
    return `this client of ${name} does not report when its connection breaks: locks cannot be cached with it`;
  return recall === false ? `${name} does not tell holders who waits for them: locks cannot be cached on it` : null;
}

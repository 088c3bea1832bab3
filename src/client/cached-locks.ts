/**
 * The list of the cached locks of one client, and what it has learned from earlier ones: which names it does not cache
 * for a while, and how many tokens a claim should request. A cached lock is a grant that the client keeps while no
 * request uses it, so that the next request here costs no call.
 *
 *   used -> idle   after the last release, if the grant may be kept        Grant.next(), Grant.becomeIdle()
 *   idle -> used   by the next local request, if it may still be used      LocalQueue.#takeIdle(), Grant.reuse()
 *   idle -> ended  when another claim waits for it (a recall)              LocalQueue.onEffect()
 *                  when it is lost                                         LocalQueue.onEffect()
 *                  after `cache` without use                               Grant.onDue()
 *                  when a claim of this client conflicts with it           giveBackFor()
 *                  at the end of the process, by releaseAll() and close()  giveBackAll(), Client.releaseAll()
 *
 * Invariants
 * - An idle claim is released in the turn in which it is recalled or lost. There is no code to wait for.
 * - A claim of this client that conflicts with an idle one is sent behind the release of that one, in the same turn.
 */

import type { Driver, LockSpec, Traits } from "../spi/driver.ts";
import type { ActiveClaim, Engine } from "./engine.ts";
import { exitListeners } from "./exit-listeners.ts";

/** How many names are remembered. */
const MAX_NAMES = 1_000;

/**
 * How long to stop caching a lock that keeps being recalled: the first and the longest back-off, give or take a half.
 */
const FIRST_BACKOFF_MS = 50;
const MAX_BACKOFF_MS = 10_000;

/**
 * On a store that does not push recalls an idle claim is asked about at intervals of an eighth of its idle time, within
 * these: it learns that another claim waits at the next one. All intervals are the first one times a power of two, and
 * end at multiples of themselves by the clock, so that all idle claims of a process, and its waiting ones, are asked
 * about in the same calls.
 */
const MIN_POLL_MS = 250;
const MAX_POLL_MS = 1_000;

/** A grant that is idle, or was and may be again (grant.ts). */
interface CachedGrant {
  readonly activeClaim: ActiveClaim;
  readonly name: string;
  readonly status: "used" | "between" | "idle" | "ended";
  /** null: it is not idle. */
  readonly idleSince: number | null;
  readonly wasReused: boolean;
  settle(): void;
  giveBack(now: number): void;
}

function nextPollAt(now: number, idleMs: number): number {
  let pollMs = MIN_POLL_MS;
  while (pollMs < MAX_POLL_MS && pollMs * 8 < idleMs) pollMs *= 2;
  // a little early: timers are rounded up to milliseconds, and all must meet the same one
  const untilNextMs = pollMs - (now % pollMs) - 0.5;
  return now + (untilNextMs < 1 ? untilNextMs + pollMs : untilNextMs);
}

/** What the cached locks of one name have shown. It outlives them and their queues. */
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
  readonly #engine: Engine;
  /** The store does not push recalls. */
  readonly polls: boolean;
  /** Every grant that is idle, or was and may be again. */
  readonly #all = new Set<CachedGrant>();
  /** The latest of them on each key: an earlier one was lost there. */
  readonly #byKey = new Map<string, CachedGrant>();
  /** What was learned about names, the longest unused first. */
  readonly #histories = new Map<string, CacheHistory>();
  /** Those that have become idle in this turn of the event loop. */
  #unsettled: CachedGrant[] = [];

  constructor(engine: Engine, { recall }: Traits) {
    this.#engine = engine;
    this.polls = recall === "recheck";
  }

  /** May a lock of this name be cached? Not for a while after it was recalled twice in a row without use. */
  allows(name: string, now: number): boolean {
    return now >= (this.#histories.get(name)?.cacheableAt ?? now);
  }

  add(grant: CachedGrant): void {
    if (this.#all.has(grant)) return;
    for (const { key } of grant.activeClaim.claim.locks) this.#byKey.set(key, grant);
    this.#all.add(grant);
    if (this.#all.size === 1) exitListeners.add(this.giveBackAll);
  }

  remove(grant: CachedGrant): void {
    if (!this.#all.delete(grant)) return;
    for (const { key } of grant.activeClaim.claim.locks) if (this.#byKey.get(key) === grant) this.#byKey.delete(key);
    if (this.#all.size === 0) exitListeners.delete(this.giveBackAll);
  }

  /**
   * When to ask next about a claim that has been idle for so long; Infinity: the store says when another claim waits.
   */
  nextPollAt(now: number, idleMs: number): number {
    return this.polls ? nextPollAt(now, idleMs) : Number.POSITIVE_INFINITY;
  }

  /** Releases the idle locks on these keys. Called before a claim for them is sent. */
  giveBackFor(locks: readonly LockSpec[], now: number): void {
    if (this.#byKey.size === 0) return;
    for (const { key } of locks) {
      const grant = this.#byKey.get(key);
      if (grant?.status === "idle") grant.giveBack(now);
    }
  }

  /** Also when nothing else keeps the process alive. */
  readonly giveBackAll = (): void => {
    const now = this.#engine.clock.now();
    for (const grant of this.listIdle()) if (grant.status === "idle") grant.giveBack(now);
  };

  /** Returns the idle ones. */
  listIdle(): CachedGrant[] {
    return [...this.#all].filter(({ status }) => status === "idle");
  }

  /** How many tokens the last claim of this name suggests for the next one. */
  suggestedTokens(name: string): number {
    return this.#histories.get(name)?.suggestedTokens ?? 1;
  }

  recordTokens(name: string, suggestedTokens: number): void {
    this.#record(name, { suggestedTokens });
  }

  recordReuse({ name }: CachedGrant): void {
    if (this.#histories.has(name)) this.#record(name, { uselessCount: 0, cacheableAt: 0 });
  }

  /** An idle lock was recalled. */
  recordRecall({ name, wasReused }: CachedGrant, now: number): void {
    if (wasReused) return;
    const uselessCount = (this.#histories.get(name)?.uselessCount ?? 0) + 1;
    const backoffMs = uselessCount < 2 ? 0 : Math.min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** (uselessCount - 2));
    this.#record(name, { uselessCount, cacheableAt: now + backoffMs * (0.5 + this.#engine.random()) });
  }

  #record(name: string, change: Partial<CacheHistory>): void {
    const history = { ...(this.#histories.get(name) ?? NO_HISTORY), ...change };
    this.#histories.delete(name); // the name moves to the end
    this.#histories.set(name, history);
    if (this.#histories.size > MAX_NAMES) this.#histories.delete(this.#histories.keys().next().value as string);
  }

  /**
   * Counts the lock as idle from the next turn of the event loop on: one that is used again and again costs nothing.
   */
  settleLater(grant: CachedGrant): void {
    if (this.#unsettled.push(grant) > 1) return;
    setImmediate(() => {
      const unsettled = this.#unsettled;
      this.#unsettled = [];
      for (const settling of unsettled) settling.settle();
    });
  }
}

/** Why a lock cannot be cached on this store; null: it can. */
export function cacheProblem({ recall, reportsBreaks }: Traits, { name }: Driver): string | null {
  if (reportsBreaks === false)
    return `this client of ${name} does not report when its connection breaks: locks cannot be cached with it`;
  return recall === false ? `${name} does not tell holders who waits for them: locks cannot be cached on it` : null;
}

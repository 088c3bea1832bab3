/**
 * What a client has of a lock from its grant until its claim is released: the claim, its tokens, and one local holder after another.
 *
 *   used   a local hold has the lock
 *   idle   no request here uses it: a cached lock, which is renewed like one in use (cached-locks.ts)
 *
 * Between two users of this process nothing is asked of the store. When a holder has released the lock, next() says what follows:
 *
 *   handOn   the next request here gets the lock, with the next token
 *   keep     no request here waits, and the lock may be cached: the next one that comes gets it, by reuse()
 *   end      the claim is released, and the store grants to the next one in its queue
 *
 * A grant is used again (handed on, kept, or taken while idle) only if, by clocks that are read for it, enough of the lease is left, its
 * last call did not fail, the store has answered since its connection broke (one that came back empty may have granted the lock to another
 * client), and a token is unused; it is kept only if it has not been recalled. Else it ends, and the next request makes a new claim.
 *
 * Which request is the next one, and how many follow each other, is a matter of the limits (HandoffLimits):
 *
 *   shared          the first waiter of the local queue; one claim represents them all. While no other claim is known to wait the grant
 *                   is bounded by its tokens and its lease alone. Once it is *wanted*, by its first recall, at most `handoffs` holders have
 *                   it, that of this moment included, for `handoffMs`, so that other processes do not starve. On a store that does not
 *                   push recalls it is wanted from the start. (Decisions 0004, 0018 and 0045.)
 *   STRICT_ORDER    each request has a claim of its own. The store names with the grant those of this client that wait directly behind it,
 *                   its successors, and each token but the first is meant for one of them. The next request is that of the first one
 *                   that still waits: it takes the grant over, and its own claim is withdrawn. (Decision 0051. Lock cohorting hands locks
 *                   on within a part of a machine in the same way: Dice, Marathe and Shavit, 2012. It skips waiters of other parts; this
 *                   does not.)
 *   NO_HANDOFFS     none: readers, semaphores, and requests that want a claim of their own
 *
 * Invariants
 * - Tokens rise with every holder. A range is only used for claims that take every permit of every key: with other holders beside it, its
 *   later tokens would not be higher than theirs. No request gets a token beyond the range that the store's last answer has.
 * - A successor gets the lock only while its own claim waits. One that the store has granted meanwhile shows that this grant is gone; one
 *   that has timed out or was aborted is skipped with its token, as the store would skip it. No claim arrives between the successors,
 *   since claims enter a queue at its end. One whose client was disconnected when the store named them may get its earlier place back:
 *   the grant has passed it by, and so do they.
 * - An idle grant keeps no process alive: neither the client's timer nor the driver's connections. One that was recalled is never idle again.
 */

import type { HeldState } from "../claim/state.ts";
import { ALL_PERMITS } from "../spi/driver.ts";
import type { CachedLocks } from "./cached-locks.ts";
import type { ActiveClaim, Engine } from "./engine.ts";
import type { LocalHold } from "./local-hold.ts";
import type { ScheduledTask } from "./scheduler.ts";
import type { TokenFloors } from "./token-floors.ts";

/** The longest token range: used up in a second by a process that does nothing but lock, and 65 ms of the store's clock. */
const MAX_TOKENS = 65_536;

/** How many tokens a claim requests at least that may be kept for later requests: with one it could not be used again. */
const MIN_CACHED_TOKENS = 16;

/** To which requests of this client a grant may be handed on, and for how long. */
export interface HandoffLimits {
  /** The most local holders once the grant is wanted; 1: no hand-off. */
  readonly handoffs: number;
  /** How long it goes on once it is wanted, in milliseconds. */
  readonly handoffMs: number;
  /** The store pushes recalls, so that a grant is not wanted until then. */
  readonly isRecallable: boolean;
  /** Only to the requests whose claims the store has named. */
  readonly isStrict: boolean;
}

/** For one exclusive key: no bounds, since no other claim waits between those that the store has named. */
export const STRICT_ORDER: HandoffLimits = {
  handoffs: Number.POSITIVE_INFINITY,
  handoffMs: Number.POSITIVE_INFINITY,
  isRecallable: false,
  isStrict: true,
};
export const NO_HANDOFFS: HandoffLimits = { handoffs: 1, handoffMs: 0, isRecallable: false, isStrict: false };

/** Can one claim serve several requests for these locks one after another? */
export function isExclusive(locks: readonly { readonly permits: number; readonly limit: number }[]): boolean {
  for (const { permits, limit } of locks) if (permits < ALL_PERMITS || limit > ALL_PERMITS) return false;
  return true;
}

/**
 * How many tokens a claim made now should request: one per waiter, or as many as the last range suggests. The number of waiters alone is
 * too low, since holders that have just released often ask again at once. Unused tokens are skipped.
 * @param isCached the grant may be kept for later requests
 */
export function tokensToRequest(
  { handoffs, isRecallable }: HandoffLimits,
  waiterCount: number,
  suggestedCount: number,
  isCached: boolean,
): number {
  const count = Math.max(waiterCount, suggestedCount, isCached ? MIN_CACHED_TOKENS : 1);
  return Math.min(count, isRecallable ? MAX_TOKENS : handoffs);
}

/** What grants use of their client. */
interface GrantContext {
  readonly engine: Engine;
  readonly cachedLocks: CachedLocks;
  readonly tokenFloors: TokenFloors;
}

export class Grant implements ScheduledTask {
  readonly activeClaim: ActiveClaim;
  /** The name of its queue; null: it cannot be kept, since no other request can join the queue. */
  readonly name: string | null;
  /** The local holder; null: it is idle, or has just been released. */
  holder: LocalHold | null = null;
  readonly #limits: HandoffLimits;
  #nextToken: bigint;
  /** The length of the token range. */
  #tokenCount: number;
  /** How many tokens of the range are unused. */
  #tokensLeft: number;
  /** The length for the next range; 0: not known yet. */
  suggestedCount = 0;
  /** How many tokens had been used when a renewal was last sent. */
  #usedAtRenewal = 0;
  /** When it became wanted; Infinity: it has not. */
  #wantedAt = Number.POSITIVE_INFINITY;
  /** How many hand-offs it has left once it is wanted. */
  #handoffsLeft = 0;
  readonly #context: GrantContext;
  isIdle = false;
  idleSince = 0;
  /** It was used again after it had been idle. */
  wasReused = false;
  #cacheMs = 0;
  /** It keeps the process alive like a lock in use. */
  #isCounted = true;
  /** It waits for the end of the event loop's turn, at which it stops to count. */
  isUnsettled = false;
  // a scheduled task: due when it may have been idle for long enough, or is to be asked about
  readonly mayRunEarly = false;
  dueAt = 0;
  heapIndex = -1;

  /** @param activeClaim has just been granted */
  constructor(
    context: GrantContext,
    name: string | null,
    limits: HandoffLimits,
    activeClaim: ActiveClaim,
    now: number,
  ) {
    this.#context = context;
    this.name = name;
    this.#limits = limits;
    this.activeClaim = activeClaim;
    const { token, tokenCount } = activeClaim.state as HeldState;
    this.#nextToken = token;
    this.#tokenCount = this.#limitRange(tokenCount);
    this.#tokensLeft = this.#tokenCount;
    this.#recordTokens(token, tokenCount);
    if (!limits.isRecallable || activeClaim.isWanted) this.becomeWanted(now);
  }

  get hasTokens(): boolean {
    return this.#tokensLeft > 0;
  }

  /** The token for the first holder, or for one that next() or reuse() allows. */
  takeToken(): bigint {
    this.#tokensLeft--;
    return this.#nextToken++;
  }

  /** Another claim waits, as far as known. */
  becomeWanted(now: number): void {
    if (this.#wantedAt !== Number.POSITIVE_INFINITY) return;
    this.#wantedAt = now;
    this.#handoffsLeft = this.#limits.handoffs - 1;
  }

  /** May the claim serve another request? */
  isUsable(now: number): boolean {
    return this.activeClaim.isHeld(now) && this.#context.engine.isReusable(this.activeClaim, now);
  }

  /**
   * In strict order: the claim whose request gets the lock next, with the next token; null: there is none. Skips the tokens of the requests
   * before it that are gone.
   */
  findSuccessor(): ActiveClaim | null {
    if (!this.#limits.isStrict) return null;
    const { claim, state, successors } = this.activeClaim;
    if (successors === null || state.status !== "held") return null;
    // another token: the grant that named them was not the one that counts
    if (successors.token !== state.token) return null;
    this.#syncTokens();
    while (this.hasTokens) {
      const id = successors.ids[Number(this.#nextToken - state.token) - 1];
      if (id === undefined) return null;
      const successor = this.#context.engine.find(id);
      if (successor !== undefined) {
        const { status } = successor.state;
        const isPending = status === "asking" || status === "waiting";
        // lists show the label of the claim that holds the lock
        return isPending && successor.claim.label === claim.label ? successor : null;
      }
      this.takeToken();
    }
    return null;
  }

  /**
   * What follows when the holder has released the lock.
   * @param isWantedHere a request here waits for it: in the local queue, or as successor
   * @param cacheMs how long the lock may be kept for a later request; 0: not at all
   */
  next(now: number, isWantedHere: boolean, cacheMs: number): "handOn" | "keep" | "end" {
    this.#syncTokens();
    const mayKeep = !isWantedHere && this.#mayKeep(now, cacheMs);
    const isUsable = (isWantedHere || mayKeep) && this.isUsable(now);
    if (isUsable && mayKeep && this.hasTokens) return "keep";
    const canGoOn = isUsable && this.#allowsHandoff(now);
    if (canGoOn && this.hasTokens) {
      this.#handoffsLeft--;
      return "handOn";
    }
    this.suggestTokens(canGoOn);
    return "end";
  }

  /**
   * The claim is about to be released: suggests the length of the next range, from the use of this one.
   * @param isTooShort its range is used up, and its holder could have gone on
   */
  suggestTokens(isTooShort: boolean): void {
    // A range that was too short is doubled (decision 0018). Larger steps would let tokens run ahead of the clock that the
    // token issuer follows.
    this.suggestedCount = isTooShort ? 2 * this.#tokenCount : this.#tokenCount - this.#tokensLeft;
  }

  /**
   * How many tokens the claim should have in all after a renewal that is sent now; 0: as many as it has. Twice the use since
   * the last renewal is added when half of the range is used.
   */
  tokensToRenew(): number {
    const used = this.#tokenCount - this.#tokensLeft;
    const usedSince = used - this.#usedAtRenewal;
    this.#usedAtRenewal = used;
    // most locks have one holder for many renewals: they need no more tokens
    if (!this.#limits.isRecallable || usedSince < 2 || used < this.#tokenCount / 2) return 0;
    const wanted = Math.min(used + 2 * usedSince, MAX_TOKENS);
    return wanted > this.#tokenCount ? wanted : 0;
  }

  /** The last holder here has released the lock, and the grant is kept. */
  becomeIdle(now: number, cacheMs: number): void {
    this.isIdle = true;
    this.idleSince = now;
    this.#cacheMs = cacheMs;
    this.#context.cachedLocks.add(this);
    // a task that is due before stays: moving it for each use would cost more than one call too many
    const dueAt = this.#nextDueAt(now);
    if (this.heapIndex === -1 || dueAt < this.dueAt) this.#context.engine.scheduler.schedule(this, dueAt);
    if (this.#isCounted && !this.isUnsettled) this.#context.cachedLocks.settleLater(this);
  }

  /** A request has come while it is idle: uses it, if it may be used again. */
  reuse(now: number): boolean {
    this.#syncTokens();
    if (!this.isUsable(now) || this.activeClaim.isWanted || !this.hasTokens) return false;
    this.isIdle = false;
    if (!this.wasReused) {
      this.wasReused = true;
      this.#context.cachedLocks.recordReuse(this);
    }
    if (!this.#isCounted) this.#setCounted(true);
    return true;
  }

  /** Still idle at the end of the event loop's turn: it keeps the process alive no longer. */
  settle(): void {
    this.isUnsettled = false;
    if (this.isIdle && this.#isCounted) this.#setCounted(false);
  }

  onDue(now: number): void {
    if (this.isIdle && now >= this.idleSince + this.#cacheMs) return this.giveBack(now);
    // one in use, too: it must not be idle again while another claim waits
    if (this.#context.cachedLocks.polls) this.#context.engine.changed(this.activeClaim.claim.id);
    // the answer may have ended it
    if (this.isIdle) this.#context.engine.scheduler.schedule(this, this.#nextDueAt(now));
  }

  /** Releases its claim, which is idle. */
  giveBack(now: number): void {
    this.activeClaim.listener.giveBack(now);
  }

  /** Its claim ends, or is given up. */
  end(): void {
    this.isIdle = false;
    this.#context.cachedLocks.remove(this);
    if (this.heapIndex !== -1) this.#context.engine.scheduler.cancel(this);
    // the release of the claim, or a later use, counts by itself
    if (!this.#isCounted) this.#setCounted(true);
  }

  #mayKeep(now: number, cacheMs: number): boolean {
    const { name, activeClaim } = this;
    if (cacheMs === 0 || name === null || activeClaim.isWanted) return false;
    // a process that is cut off would keep a claim that silence does not end
    if (activeClaim.settings.survivesSilence) return false;
    return this.#context.cachedLocks.allows(name, now);
  }

  /** Takes over the length of the token range from the store's last answer. */
  #syncTokens(): void {
    const { token, tokenCount } = this.activeClaim.state as HeldState;
    const newCount = this.#limitRange(tokenCount);
    if (newCount === this.#tokenCount) return;
    const used = this.#tokenCount - this.#tokensLeft;
    this.#tokenCount = newCount;
    this.#tokensLeft = Math.max(newCount - used, 0);
    this.#recordTokens(token, tokenCount);
  }

  /** The store must not grant one of these tokens again. */
  #recordTokens(token: bigint, tokenCount: number): void {
    this.#context.tokenFloors.record(this.activeClaim.claim.locks, token + BigInt(tokenCount - 1));
  }

  #limitRange(tokenCount: number): number {
    const { handoffs, isRecallable } = this.#limits;
    return isRecallable ? tokenCount : Math.min(tokenCount, handoffs);
  }

  #allowsHandoff(now: number): boolean {
    if (this.#wantedAt === Number.POSITIVE_INFINITY) return true;
    return this.#handoffsLeft > 0 && now - this.#wantedAt < this.#limits.handoffMs;
  }

  #nextDueAt(now: number): number {
    const endsAt = this.idleSince + this.#cacheMs;
    return Math.min(endsAt, this.#context.cachedLocks.nextPollAt(now, now - this.idleSince));
  }

  #setCounted(isCounted: boolean): void {
    this.#isCounted = isCounted;
    this.#context.engine.setIdle(this.activeClaim, !isCounted);
  }
}

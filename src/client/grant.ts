/**
 * What a client has of a lock from its grant until its claim is released: the claim, its tokens, and one local holder
 * after another.
 *
 *   used     a local hold has the lock
 *   between  its holder has just released it, and next() decides; or reuse() has taken it, and the next holder follows
 *            at once
 *   idle     no request here uses it: a cached lock, which is renewed like one in use (cached-locks.ts)
 *   ended    its queue has left it
 *
 * Between two users of this process nothing is asked of the store. When a holder has released the lock, next() says
 * what follows:
 *
 *   handOn   the next request here gets the lock, with the next token
 *   keep     no request here waits, and the lock may be cached: the next one that comes gets it, by reuse()
 *   usedUp   it could go on, but its tokens are used up: as "end", and the next claim requests twice as many
 *   end      the claim is released, and the store grants to the next one in its queue
 *
 * A grant is used again (handed on, kept, or taken while idle) only if, by clocks that are read for it, enough of the
 * lease is left, its last call did not fail, the store has answered since its connection broke (one that came back
 * empty may have granted the lock to another client), and a token is unused; it is kept only if it has not been
 * recalled. Else it ends, and the next request makes a new claim.
 *
 * Which request is the next one, and how many follow each other, is a matter of the kind of the queue:
 *
 *   shared   The first waiter of the local queue; one claim represents them all. While no other claim is known to wait
 *            the grant is bounded by its tokens and its lease alone. Once it is *wanted*, by its first recall, at most
 *            `holders` requests have it, that of this moment included, for `ms` (HandoffLimits), so that other
 *            processes do not starve. On a store that does not push recalls it is wanted from the start. (Decisions
 *            0004, 0018 and 0045.)
 *   strict   Each request has a claim of its own. The store names with the grant those of this client that wait
 *            directly behind it, its successors, and each token but the first is meant for one of them. The next
 *            request is that of the first one that still waits: it takes the grant over, and its own claim is
 *            withdrawn. No bounds, since no other claim waits between them. (Decision 0051. Lock cohorting hands locks
 *            on within a part of a machine in the same way: Dice, Marathe and Shavit, 2012. It skips waiters of other
 *            parts; this does not.)
 *   alone    None: the grant has one token. For readers, semaphores, and requests that want a claim of their own.
 *
 * Invariants
 * - Tokens rise with every holder. A range is only used for claims that take every permit of every key: with other
 *   holders beside it, its later tokens would not be higher than theirs. No request gets a token beyond the range that
 *   the store's last answer has.
 * - A successor gets the lock only while its own claim waits. One that the store has granted meanwhile shows that this
 *   grant is gone; one that has timed out or was aborted is skipped with its token, as the store would skip it. No
 *   claim arrives between the successors, since claims enter a queue at its end. One whose client was disconnected when
 *   the store named them may get its earlier place back: the grant has passed it by, and so do they.
 * - An idle grant keeps no process alive: neither the client's timer nor the driver's connections. One that was
 *   recalled is never idle again.
 */

import type { HeldState } from "../claim/state.ts";
import type { Traits } from "../spi/driver.ts";
import type { CachedLocks } from "./cached-locks.ts";
import type { ActiveClaim, Engine } from "./engine.ts";
import type { LocalHold } from "./local-hold.ts";
import type { ClientSettings, QueueKind } from "./options.ts";
import type { ScheduledTask } from "./scheduler.ts";
import type { TokenFloors } from "./token-floors.ts";

/**
 * The longest token range: used up in a second by a process that does nothing but lock, and 65 ms of the store's clock.
 */
const MAX_TOKENS = 65_536;

/**
 * How many tokens a claim requests at least that may be kept for later requests: with one it could not be used again.
 */
const MIN_CACHED_TOKENS = 16;

/** What a grant is used for at the moment; see above. */
type GrantState =
  | { readonly status: "used"; readonly holder: LocalHold }
  | { readonly status: "between" }
  | { readonly status: "idle"; readonly since: number; readonly cacheMs: number }
  | { readonly status: "ended" };

const BETWEEN: GrantState = { status: "between" };
const ENDED: GrantState = { status: "ended" };

/** What grants use of their client. */
interface GrantContext {
  readonly engine: Engine;
  readonly cachedLocks: CachedLocks;
  readonly tokenFloors: TokenFloors;
  readonly traits: Traits;
  readonly settings: Pick<ClientSettings, "handoffLimits">;
}

/**
 * How many tokens a claim made now should request: one per waiter, or as many as the last range suggests. The number of
 * waiters alone is too low, since holders that have just released often ask again at once. Unused tokens are skipped.
 * @param isCached the grant may be kept for later requests
 */
export function tokensToRequest(
  context: Pick<GrantContext, "traits" | "settings">,
  kind: QueueKind,
  waiterCount: number,
  suggestedCount: number,
  isCached: boolean,
): number {
  return Math.min(Math.max(waiterCount, suggestedCount, isCached ? MIN_CACHED_TOKENS : 1), maxTokens(context, kind));
}

/** How many tokens of its range a grant uses at most. */
function maxTokens({ traits, settings }: Pick<GrantContext, "traits" | "settings">, kind: QueueKind): number {
  // of a strict claim the store adds those of the successors to the one that is requested
  if (kind === "strict") return MAX_TOKENS;
  // without reports of breaks the client cannot know that the store still has the claim
  if (kind === "alone" || traits.reportsBreaks === false) return 1;
  return traits.recall === "push" ? MAX_TOKENS : settings.handoffLimits.holders;
}

export class Grant implements ScheduledTask {
  readonly activeClaim: ActiveClaim;
  readonly kind: QueueKind;
  /** The name of its queue, if that is shared. */
  readonly name: string;
  #state: GrantState = BETWEEN;
  #nextToken: bigint;
  /** The length of the token range. */
  #tokenCount: number;
  /** How many tokens of the range are unused. */
  #tokensLeft: number;
  /** How many tokens had been used when a renewal was last sent. */
  #usedAtRenewal = 0;
  /** When it became wanted; Infinity: it has not. */
  #wantedAt = Number.POSITIVE_INFINITY;
  /** How many hand-offs it has left once it is wanted. */
  #handoffsLeft = 0;
  readonly #context: GrantContext;
  /** It was used again after it had been idle. */
  wasReused = false;
  /**
   * Does it keep the process alive like a lock in use? "settling": until the end of the event loop's turn, and on if it
   * is in use then, since one that is used again and again should cost nothing.
   */
  #keepsAlive: "yes" | "settling" | "no" = "yes";
  // a scheduled task: due when it may have been idle for long enough, or is to be asked about
  readonly mayRunEarly = false;
  dueAt = 0;
  heapIndex = -1;

  /** @param activeClaim has just been granted */
  constructor(context: GrantContext, kind: QueueKind, name: string, activeClaim: ActiveClaim, now: number) {
    this.#context = context;
    this.kind = kind;
    this.name = name;
    this.activeClaim = activeClaim;
    const { token, tokenCount } = activeClaim.state as HeldState;
    this.#nextToken = token;
    this.#tokenCount = this.#limitRange(tokenCount);
    this.#tokensLeft = this.#tokenCount;
    this.#recordTokens(token, tokenCount);
    if (context.traits.recall !== "push" || activeClaim.isWanted) this.becomeWanted(now);
  }

  /** The local hold that has the lock; null: none has it now. */
  get holder(): LocalHold | null {
    return this.#state.status === "used" ? this.#state.holder : null;
  }

  get status(): GrantState["status"] {
    return this.#state.status;
  }

  /** Since when it is idle; null: it is not. */
  get idleSince(): number | null {
    return this.#state.status === "idle" ? this.#state.since : null;
  }

  get hasTokens(): boolean {
    return this.#tokensLeft > 0;
  }

  /** The token for the first holder, or for one that next() or reuse() allows. */
  takeToken(): bigint {
    this.#tokensLeft--;
    return this.#nextToken++;
  }

  /** The local hold has the lock now. */
  beginUse(holder: LocalHold): void {
    this.#state = { status: "used", holder };
  }

  /** The holder has released the lock. */
  endUse(): void {
    this.#state = BETWEEN;
  }

  /** Another claim waits, as far as known. */
  becomeWanted(now: number): void {
    if (this.#wantedAt !== Number.POSITIVE_INFINITY) return;
    this.#wantedAt = now;
    this.#handoffsLeft = this.#context.settings.handoffLimits.holders - 1;
  }

  /** May the claim serve another request? */
  isUsable(now: number): boolean {
    return this.activeClaim.isHeld(now) && this.#context.engine.isReusable(this.activeClaim, now);
  }

  /**
   * In strict order: the claim whose request gets the lock next, with the next token; null: there is none. Skips the
   * tokens of the requests before it that are gone.
   */
  findSuccessor(): ActiveClaim | null {
    if (this.kind !== "strict") return null;
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
  next(now: number, isWantedHere: boolean, cacheMs: number): "handOn" | "keep" | "usedUp" | "end" {
    this.#syncTokens();
    const mayKeep = !isWantedHere && this.#mayKeep(now, cacheMs);
    if (!(isWantedHere || mayKeep) || !this.isUsable(now)) return "end";
    if (mayKeep && this.hasTokens) return "keep";
    if (!this.#allowsHandoff(now)) return "end";
    if (!this.hasTokens) return "usedUp";
    this.#handoffsLeft--;
    return "handOn";
  }

  /**
   * The claim is about to be released: how many tokens the next one should request, by the use of this one.
   * @param isUsedUp see next()
   */
  suggestTokens(isUsedUp: boolean): number {
    // A range that was too short is doubled (decision 0018). Larger steps would let tokens run ahead of the clock that
    // the token issuer follows.
    return isUsedUp ? 2 * this.#tokenCount : this.#tokenCount - this.#tokensLeft;
  }

  /**
   * How many tokens the claim should have in all after a renewal that is sent now; 0: as many as it has. Twice the use
   * since the last renewal is added when half of the range is used.
   */
  tokensToRenew(): number {
    const used = this.#tokenCount - this.#tokensLeft;
    const usedSince = used - this.#usedAtRenewal;
    this.#usedAtRenewal = used;
    // most locks have one holder for many renewals: they need no more tokens
    if (
      this.kind !== "shared" ||
      this.#context.traits.recall !== "push" ||
      usedSince < 2 ||
      used < this.#tokenCount / 2
    )
      return 0;
    const wanted = Math.min(used + 2 * usedSince, MAX_TOKENS);
    return wanted > this.#tokenCount ? wanted : 0;
  }

  /** The last holder here has released the lock, and the grant is kept. */
  becomeIdle(now: number, cacheMs: number): void {
    const idle = { status: "idle", since: now, cacheMs } as const;
    this.#state = idle;
    this.#context.cachedLocks.add(this);
    // a task that is due before stays: moving it for each use would cost more than one call too many
    const dueAt = this.#nextDueAt(idle, now);
    if (this.heapIndex === -1 || dueAt < this.dueAt) this.#context.engine.scheduler.schedule(this, dueAt);
    if (this.#keepsAlive !== "yes") return;
    this.#keepsAlive = "settling";
    this.#context.cachedLocks.settleLater(this);
  }

  /** A request has come while it is idle: uses it, if it may be used again. */
  reuse(now: number): boolean {
    this.#syncTokens();
    if (!this.isUsable(now) || this.activeClaim.isWanted || !this.hasTokens) return false;
    this.#state = BETWEEN;
    if (!this.wasReused) {
      this.wasReused = true;
      this.#context.cachedLocks.recordReuse(this);
    }
    if (this.#keepsAlive === "no") this.#setKeepsAlive("yes");
    return true;
  }

  /** The end of the event loop's turn in which it became idle. */
  settle(): void {
    if (this.status === "idle") this.#setKeepsAlive("no");
    else this.#keepsAlive = "yes";
  }

  onDue(now: number): void {
    const state = this.#state;
    if (state.status === "idle" && now >= state.since + state.cacheMs) return this.giveBack(now);
    // one in use, too: it must not be idle again while another claim waits
    if (this.#context.cachedLocks.polls) this.#context.engine.recheck(this.activeClaim.claim.id);
    // the answer may have ended it
    if (this.#state.status === "idle") this.#context.engine.scheduler.schedule(this, this.#nextDueAt(this.#state, now));
  }

  /** Releases its claim, which is idle. */
  giveBack(now: number): void {
    this.activeClaim.listener.giveBack(now);
  }

  /** Its claim ends, or is given up. */
  end(): void {
    this.#state = ENDED;
    this.#context.cachedLocks.remove(this);
    if (this.heapIndex !== -1) this.#context.engine.scheduler.cancel(this);
    // the release of the claim, or a later use, counts by itself
    if (this.#keepsAlive === "no") this.#setKeepsAlive("yes");
  }

  #mayKeep(now: number, cacheMs: number): boolean {
    const { activeClaim } = this;
    // no other request finds the queue of another kind
    if (cacheMs === 0 || this.kind !== "shared" || activeClaim.isWanted) return false;
    // a process that is cut off would keep a claim that silence does not end
    if (activeClaim.settings.survivesSilence) return false;
    return this.#context.cachedLocks.allows(this.name, now);
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
    return Math.min(tokenCount, maxTokens(this.#context, this.kind));
  }

  #allowsHandoff(now: number): boolean {
    if (this.kind === "strict" || this.#wantedAt === Number.POSITIVE_INFINITY) return true;
    return this.#handoffsLeft > 0 && now - this.#wantedAt < this.#context.settings.handoffLimits.ms;
  }

  #nextDueAt({ since, cacheMs }: { readonly since: number; readonly cacheMs: number }, now: number): number {
    return Math.min(since + cacheMs, this.#context.cachedLocks.nextPollAt(now, now - since));
  }

  #setKeepsAlive(keepsAlive: "yes" | "no"): void {
    this.#keepsAlive = keepsAlive;
    this.#context.engine.setIdle(this.activeClaim, keepsAlive === "no");
  }
}

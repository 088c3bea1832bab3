/**
 * The shell around core/lane: the local queue for the same keys and the claim that stands for it at the store. Requests
 * that cannot share a claim have a lane of their own for one request.
 *
 *   no claim   nobody here wants the keys (then the lane is dropped), or the next claim is about to start
 *   pending    `tracked` asks or waits, for the head of the queue
 *   held       `tenure` is the local holder; the others queue
 *
 * Invariants: at most one live claim a lane; a lost claim leaves the lane at once (its tenure takes it along until its
 * body has ended), so that local waiters can queue at the store without waiting for that body.
 */

import { backoffMs } from "../core/backoff.ts";
import type { LaneLimits } from "../core/lane.ts";
import { Lane } from "../core/lane.ts";
import { DriverError, isFatal, pauseText, StorePausedError } from "../errors.ts";
import { newId } from "../ids.ts";
import type { Claim, LostReason } from "../spi/driver.ts";
import type { Adoption } from "./adoption.ts";
import { timeoutError } from "./blocked.ts";
import type { LaneHost } from "./lane-host.ts";
import type { Request } from "./request.ts";
import type { Target } from "./target.ts";
import { named, Tenure } from "./tenure.ts";
import type { ClaimOwner, Tracked } from "./tracked.ts";
import { wrapped } from "./wrap-error.ts";

const LONGEST_RESTART_MS = 1_000;
const NO_HANDOFFS: LaneLimits = { handoffs: 1, handoffMs: 0 };

export class KeyLane implements ClaimOwner {
  readonly host: LaneHost;
  readonly target: Target;
  readonly #ttl: number | "session";
  /** Its name in the host's map; null: nobody else may join it. */
  readonly #name: string | null;
  readonly #lane: Lane<Request>;
  #tracked: Tracked | null = null;
  #tenure: Tenure | null = null;
  #adoption: Adoption | null = null;
  /** Places lost in a row. */
  #restarts = 0;

  constructor(host: LaneHost, target: Target, ttl: number | "session", name: string | null) {
    this.host = host;
    this.target = target;
    this.#ttl = ttl;
    this.#name = name;
    this.#lane = new Lane(name === null ? NO_HANDOFFS : host.settings);
  }

  add(request: Request): void {
    const busy = this.#tracked !== null;
    request.standIn(this); // first: a signal may throw, and nobody may wait behind who will never take his turn
    this.#lane.queue.push(request);
    if (!busy) return this.#start(request.startedAt);
    if (request.once) return this.#refuse(request, this.#tracked as Tracked);
    this.host.tellWaiting(request);
  }

  /** The request's user has given up; with its last request the claim goes too. */
  withdraw(request: Request, reason: unknown): void {
    this.#remove(request);
    request.refuse(reason);
  }

  timeOut(request: Request): void {
    if (this.#tracked !== null && isFailing(this.#tracked)) {
      return this.withdraw(
        request,
        wrapped(this.#tracked.failure, `could not ask for ${named(request.target.keys)}`, request.target.keys),
      );
    }
    this.#timeOut(request, this.host.engine.clock.now() - request.startedAt);
  }

  granted(now: number): void {
    const tracked = this.#tracked as Tracked;
    if (tracked.state.at !== "held") return;
    this.#restarts = 0;
    this.#lane.granted(tracked.state.token, tracked.state.tokens, now);
    this.#serve(tracked, this.#lane.firstToken(), now);
  }

  waits(): void {
    const head = this.#lane.queue.first;
    if (head !== null) this.host.tellWaiting(head);
  }

  refused(): void {
    const head = this.#lane.queue.first;
    const tracked = this.#tracked as Tracked;
    this.#tracked = null;
    if (head?.once) this.#refuse(head, tracked);
    this.#goOn();
  }

  expired(): void {
    const head = this.#lane.queue.first;
    this.#tracked = null;
    if (head?.once) {
      const { keys } = head.target;
      this.#lane.queue.remove(head);
      head.refuse(new DriverError(`${this.host.engine.driver.name} answered too late for ${named(keys)}`, { keys }));
    }
    this.#restarts++;
    this.#goOn();
  }

  rejected(error: unknown): void {
    this.#tracked = null;
    const { queue } = this.#lane;
    // what is not fatal ends only who asked once; he may have left the claim to another who goes on waiting
    while (queue.first !== null && (queue.first.once || isFatal(error))) {
      const head = queue.first;
      queue.remove(head);
      head.refuse(wrapped(error, `could not ask for ${named(head.target.keys)}`, head.target.keys));
      if (!isFatal(error)) break;
    }
    this.#goOn();
  }

  lost(reason: LostReason): void {
    if (this.#adoption !== null) return this.#adoption.lost(reason);
    const tenure = this.#tenure as Tenure;
    this.#tenure = null;
    this.#tracked = null;
    this.host.engine.unset(tenure);
    // first: whoever hears of the loss may ask for the same keys at once
    this.#goOn();
    this.host.tellLost(tenure, reason);
    tenure.lose(reason);
  }

  unsure(on: boolean): void {
    if (this.#adoption !== null && !on) this.#adoption.confirmed();
    else if (this.#tenure !== null) this.host.tellUnsure(this.#tenure, on);
  }

  /** The last handle of the local holder was given back. True if it was ours until now. */
  handBack(tenure: Tenure): boolean | Promise<boolean> {
    const { engine } = this.host;
    engine.unset(tenure);
    if (tenure !== this.#tenure) {
      // lost: its claim has left the lane already, and goes now that the body has ended
      engine.leave(tenure.tracked);
      return false;
    }
    const now = engine.clock.now();
    const held = engine.believes(tenure.tracked, now);
    if (tenure !== this.#tenure) return this.handBack(tenure); // reading the clocks told us that it is lost
    this.#tenure = null;
    const { tracked } = tenure;
    this.host.tellReleased(tenure);
    // whoever heard of it has withdrawn the last request, and with it the claim
    if (this.#tracked !== tracked) return held;
    const token = held ? this.#lane.handOff(now, isFresh(tracked, now)) : null;
    if (token !== null) {
      this.#serve(tracked, token, now);
      this.host.tellHandOff(this.#tenure as Tenure | null);
      return true;
    }
    return this.#giveBack(tracked, held, now);
  }

  /** The local holder is given up, though it has not let go: close() and releaseAll() do so. */
  takeBack(): void {
    const tenure = this.#tenure;
    if (tenure === null) return;
    this.#tenure = null;
    this.host.engine.unset(tenure);
    void this.#giveBack(tenure.tracked, true, this.host.engine.clock.now());
    tenure.lose("released");
  }

  /** All waiting requests end with this error. */
  refuseAll(error: unknown): void {
    this.#adoption?.refused(error);
    for (const request of [...this.#lane.queue]) this.withdraw(request, error);
  }

  /** The claim has gone to somebody else, with its holder's consent. */
  letGo(tenure: Tenure): void {
    this.#tenure = null;
    this.#tracked = null;
    this.host.engine.unset(tenure);
    tenure.handles = 0;
    this.host.engine.forget(tenure.tracked);
    this.#goOn();
  }

  /** A claim made elsewhere is being taken up here: until it is confirmed or refused, all that is heard of it goes there. */
  adopt(adoption: Adoption): void {
    this.#adoption = adoption;
    this.#tracked = adoption.tracked;
  }

  /** The adoption is over: this is the claim's one holder, or it is not ours. */
  adopted(tenure: Tenure | null): void {
    this.#adoption = null;
    this.#tenure = tenure;
    if (tenure === null) this.#tracked = null;
  }

  overstay(tenure: Tenure): void {
    if (tenure === this.#tenure) this.host.engine.overstay(tenure.tracked);
  }

  believes(tracked: Tracked): boolean {
    return this.host.engine.believes(tracked);
  }

  remainingMs(tracked: Tracked): number {
    return tracked.state.at === "held" ? Math.max(tracked.state.deadline - this.host.engine.clock.now(), 0) : 0;
  }

  #start(now: number): void {
    const head = this.#lane.queue.first as Request;
    const { host } = this;
    const claim: Claim = {
      id: newId(),
      holds: this.target.holds,
      ttlMs: this.#ttl,
      tokens: this.#lane.tokensWanted(),
      floor: host.witness.floor(this.target.holds),
      wait: !head.once,
      label: head.wish.label,
    };
    const { random } = host.engine;
    const delayMs = this.#restarts < 2 ? 0 : backoffMs(this.#restarts, random(), LONGEST_RESTART_MS);
    this.#tracked = host.engine.start(claim, host.termsOf(this.#ttl, claim.wait), this, now, delayMs);
  }

  #serve(tracked: Tracked, token: bigint, now: number): void {
    const request = this.#lane.queue.first as Request;
    this.#lane.queue.remove(request);
    const { host } = this;
    const tenure = new Tenure(this, tracked, request.target, token, now);
    this.#tenure = tenure;
    host.witness.saw(this.target.holds, token);
    if (host.settings.maxHoldMs < Number.POSITIVE_INFINITY) host.engine.set(tenure, now + host.settings.maxHoldMs);
    // first: whoever hears of it may abort, and has nothing to abort any more
    request.grant(tenure);
    host.tellAcquired(tenure, request);
  }

  /** Releases the claim and, if somebody here waits, queues again at the store's end, in one turn. */
  #giveBack(tracked: Tracked, held: boolean, now: number): Promise<boolean> {
    this.#tracked = null;
    const { engine } = this.host;
    const until = tracked.state.at === "held" ? tracked.state.deadline + engine.sleptMs : 0;
    const answer = new Promise<boolean>((resolve) => {
      // our own clock settles it; of the store only a plain "it was not there", said while the lease stands, is news.
      // Where we are in doubt it is the other way round: only the store's "it was there" counts
      const released = (wasThere: boolean | null): void =>
        resolve(held ? wasThere !== false || engine.elapsed() >= until : wasThere === true);
      engine.leave(tracked, released, now);
    });
    this.#goOn(now);
    return answer;
  }

  #goOn(now?: number): void {
    if (this.#lane.queue.size > 0) this.#start(now ?? this.host.engine.clock.now());
    else if (this.#name !== null) this.host.lanes.delete(this.#name);
  }

  #remove(request: Request): void {
    const { queue } = this.#lane;
    queue.remove(request);
    if (queue.size > 0 || this.#tenure !== null) return;
    const tracked = this.#tracked;
    this.#tracked = null;
    if (tracked !== null) this.host.engine.leave(tracked);
    this.#goOn();
  }

  /** It was asked once, and not granted at once: busy, unless the store grants nothing to anyone and nobody here holds. */
  #refuse(request: Request, tracked: Tracked): void {
    const pause = tracked.state.at === "held" ? undefined : tracked.pauseAt(this.host.engine.clock.now());
    if (pause === undefined) return this.#timeOut(request, 0);
    const { keys } = request.target;
    this.withdraw(request, new StorePausedError(`cannot grant ${named(keys)}: ${pauseText(pause)}`, pause, { keys }));
  }

  /** Takes the request out of the queue and, in the background, finds out why it had to wait. */
  #timeOut(request: Request, waitedMs: number): void {
    if (request.quiet) return this.withdraw(request, null);
    let localAhead = this.#tenure === null ? 0 : 1;
    for (let one = request.previous; one !== null; one = one.previous) localAhead++;
    const { holds, keys } = request.target;
    const id = this.#tracked?.claim.id ?? null;
    const paused = this.#tracked?.pauseAt(this.host.engine.clock.now());
    // looked at while our own place still stands; the user is told when the look is back, or too late
    const error = timeoutError(this.host, { holds, keys, id, localAhead, waitedMs, paused });
    this.#remove(request);
    request.stepOut();
    void error.then((told) => request.refuse(told));
  }
}

/** Is enough of the lease left for another holder? */
function isFresh({ state, terms }: Tracked, now: number): boolean {
  return state.at === "held" && state.talk.failures === 0 && state.deadline - now > 0.45 * terms.ttlMs;
}

function isFailing({ state }: Tracked): boolean {
  return (state.at === "asking" || state.at === "waiting") && state.talk.failures > 0;
}

/**
 * Waiting and holding over HTTP. A claim waits as long as a request does; between two requests its place is kept for a
 * short time, and grants pass over it (design A.6). What is granted is detached at once, so it belongs to whoever has the
 * reference, and outlives the client, the connection and a crash of the server (design A.23).
 */

import type { Clock, Timer } from "../../clock.ts";
import { Schedule } from "../../core/schedule.ts";
import type { Answer, Claim, ClaimId, LostReason, Pause } from "../../spi/driver.ts";
import type { Principal } from "../access.ts";
import type { Backend } from "../backend.ts";
import { Refusal } from "../backend.ts";
import type { Hub } from "../hub.ts";
import type { Log } from "../logging.ts";
import { asked, Place, renewed } from "./place.ts";

/** How long a place is kept after a request that waited for it has been answered. */
export const GRACE_MS = 10_000;
/** The shortest time between two looks at a place. */
const LEAST_MS = 20;

/** How a request for a claim ended. */
export type Outcome =
  | { readonly state: "held"; readonly claim: Claim; readonly token: bigint; readonly ttlMs: number }
  | { readonly state: "waiting"; readonly claim: Claim; readonly paused?: Pause | undefined }
  | { readonly state: "none"; readonly reason: LostReason; readonly paused?: Pause | undefined };

export class Places {
  readonly #backend: Backend;
  readonly #hub: Hub;
  readonly #clock: Clock;
  readonly #timer: Timer;
  readonly #places = new Map<ClaimId, Place>();
  readonly #due = new Schedule<Place>();
  readonly #log: Log;
  #draining = false;

  constructor(hub: Hub) {
    const { backend, clock, log } = hub;
    this.#backend = backend;
    this.#hub = hub;
    this.#log = log;
    this.#clock = clock;
    this.#timer = clock.timer(() => this.#tick());
  }

  /** Places that are waited for, or kept until somebody waits for them again. */
  get size(): number {
    return this.#places.size;
  }

  /** Places a claim and waits until it is held, at most until `until`. `gone`: nobody is left to be answered. */
  async claim(principal: Principal, claim: Claim, until: number, gone: AbortSignal): Promise<Outcome> {
    const place = new Place(principal, claim, this.#clock.now());
    let answer: Answer;
    try {
      place.askedAt = this.#clock.now();
      answer = await asked(this.#hub, () => this.#backend.claim(place.session, claim));
    } catch (error) {
      this.#end(place);
      throw error;
    }
    return this.#follow(place, answer, until, gone);
  }

  /** Goes on waiting for a claim that was answered "waiting" before, by this server or by the one before a restart. */
  async wait(principal: Principal, claim: Claim, until: number, gone: AbortSignal): Promise<Outcome> {
    const known = this.of(principal, claim.id);
    if (known === null) return unknown();
    const place = known ?? new Place(principal, claim, this.#clock.now());
    place.session.principal = principal;
    place.session.awayAt = null;
    place.news = null;
    const answer = await this.#renew(place);
    if (answer.state === "waiting") {
      this.#backend.unpark(place.session);
      this.#hub.settle();
    }
    return this.#follow(place, answer, until, gone);
  }

  /** The place of a claim that is still waited for; null: it is another account's. */
  of(principal: Principal, id: ClaimId): Place | null | undefined {
    const place = this.#places.get(id);
    return place === undefined || place.session.principal.name === principal.name ? place : null;
  }

  /** Nothing is left of it, and its claim has been seen to. `lost`: what a request that waits for it is told. */
  forget(place: Place, lost: LostReason | null = null): void {
    place.lost = lost;
    place.session.ended = true;
    this.#due.remove(place);
    if (this.#places.get(place.claim.id) === place) this.#places.delete(place.claim.id);
    place.watcher?.();
  }

  /** Every request that waits is answered that it waits; places stay, as they do between two requests. */
  drain(): void {
    this.#draining = true;
    for (const place of this.#places.values()) place.watcher?.();
  }

  /** The accounts have changed: who waits by a credential that is gone waits no more. */
  reexamine(): void {
    for (const place of [...this.#places.values()]) {
      if (!place.session.principal.valid) this.#end(place);
    }
  }

  close(): void {
    this.#timer.stop();
    this.#places.clear();
  }

  async #renew(place: Place): Promise<Answer> {
    const { session, claim } = place;
    place.askedAt = this.#clock.now();
    const [answer] = await renewed(this.#hub, session, [claim]);
    return answer as Answer;
  }

  async #follow(place: Place, first: Answer, until: number, gone: AbortSignal): Promise<Outcome> {
    try {
      return await this.#followed(place, first, until, gone);
    } catch (error) {
      // its place stays for a while, as at the end of every wait
      if (!place.session.ended) this.#leave(place);
      throw error;
    }
  }

  async #followed(place: Place, first: Answer, until: number, gone: AbortSignal): Promise<Outcome> {
    let answer = first;
    for (;;) {
      if (place.news !== null) answer = await this.#newsOf(place);
      if (answer.state === "none") {
        this.forget(place);
        return { state: "none", reason: answer.reason ?? "unknown", paused: answer.paused };
      }
      if (gone.aborted || !place.session.principal.valid) {
        this.#end(place);
        return unknown();
      }
      if (answer.state === "held") return this.#hold(place, answer, gone);
      this.#places.set(place.claim.id, place);
      if (this.#clock.now() >= until || this.#draining) {
        this.#leave(place);
        return { state: "waiting", claim: place.claim, paused: answer.paused };
      }
      const isMine = await this.#sleep(place, answer, until, gone);
      if (!isMine) return { state: "waiting", claim: place.claim, paused: answer.paused };
      // given back by another request meanwhile
      if (place.lost !== null) return { state: "none", reason: place.lost };
      if (place.news === null && !gone.aborted && !this.#draining) answer = await this.#renew(place);
    }
  }

  async #newsOf(place: Place): Promise<Answer> {
    const { news } = place;
    place.news = null;
    // a grant that is told without being asked for lengthens no lease: how much is left of it is not known
    return news !== null && news !== "ask" && news.state === "none" ? news : this.#renew(place);
  }

  /** Until something may have changed. False: another request waits for this place now. */
  async #sleep(
    place: Place,
    answer: Answer & { state: "waiting" },
    until: number,
    gone: AbortSignal,
  ): Promise<boolean> {
    let wake = (): void => undefined;
    const woken = new Promise<void>((resolve) => {
      wake = resolve;
    });
    place.watcher?.();
    place.watcher = wake;
    gone.addEventListener("abort", wake);
    this.#set(place, Math.min(until, this.#askAt(answer)));
    await woken;
    gone.removeEventListener("abort", wake);
    if (place.watcher !== wake) return false;
    place.watcher = null;
    return true;
  }

  /** It is held: from now on by whoever has the reference. */
  async #hold(place: Place, answer: Answer & { state: "held" }, gone: AbortSignal): Promise<Outcome> {
    const { claim, session } = place;
    const endsAt = place.askedAt + answer.ttlMs;
    // not ours: it was detached before, and the answer got lost
    if (!this.#backend.owns(session)) {
      this.forget(place);
      return heldUntil(endsAt, this.#clock.now(), claim, answer.token);
    }
    let there: readonly boolean[];
    try {
      there = await asked(this.#hub, () => this.#backend.detach(session, [claim.id]));
    } catch (error) {
      this.#end(place);
      throw error;
    }
    if (!there[0]) {
      const now = await this.#renew(place);
      this.#end(place);
      return { state: "none", reason: (now.state === "none" ? now.reason : undefined) ?? "unknown" };
    }
    this.forget(place);
    const outcome = heldUntil(endsAt, this.#clock.now(), claim, answer.token);
    if (gone.aborted || outcome.state === "none") {
      await asked(this.#hub, () => this.#backend.release(session, [{ id: claim.id, unanswered: undefined }]));
    }
    return outcome;
  }

  /** Nobody waits for it any more, for a while. */
  #leave(place: Place): void {
    const now = this.#clock.now();
    place.watcher = null;
    place.dropAt = now + GRACE_MS;
    place.session.awayAt = now;
    this.#backend.park(place.session);
    this.#set(place, this.#tendAt(place, now));
    this.#hub.settle();
  }

  /** Keeps a place that nobody waits for at the moment, or gives it up. */
  async #tend(place: Place): Promise<void> {
    const now = this.#clock.now();
    if (now >= place.dropAt) return this.#end(place);
    try {
      const answer = await this.#renew(place);
      if (answer.state === "none") this.forget(place);
    } catch (error) {
      // the next wait will be told, if it is still so
      if (!(error instanceof Refusal)) this.#log("a place in line could not be kept", error);
    }
    if (!place.session.ended && place.watcher === null) this.#set(place, this.#tendAt(place, this.#clock.now()));
  }

  #end(place: Place): void {
    if (place.session.ended) return;
    this.forget(place);
    this.#backend.end(place.session, "all");
    this.#hub.settle();
  }

  /** When a waiting place must be asked for again: before its lease ends, and when the store wants to be asked. */
  #askAt({ ttlMs, recheckMs }: Answer & { state: "waiting" }): number {
    return this.#clock.now() + Math.max(LEAST_MS, Math.min(recheckMs, ttlMs / 2));
  }

  #tendAt({ claim, dropAt }: Place, now: number): number {
    return Math.min(dropAt, now + Math.max(LEAST_MS, Number(claim.ttlMs) / 2));
  }

  #set(place: Place, at: number): void {
    this.#due.set(place, at);
    this.#timer.set(this.#due.next());
  }

  #tick(): void {
    const now = this.#clock.now();
    for (let place = this.#due.takeDue(now); place !== null; place = this.#due.takeDue(now)) {
      if (place.watcher === null) void this.#tend(place);
      else place.watcher();
    }
    this.#timer.set(this.#due.next());
  }
}

/** Held with what is left of its lease; expired, if that took so long to write down that nothing is left. */
export function heldUntil(endsAt: number, now: number, claim: Claim, token: bigint): Outcome {
  const ttlMs = Math.floor(endsAt - now);
  return ttlMs > 0 ? { state: "held", claim, token, ttlMs } : { state: "none", reason: "expired" };
}

/** As if it had never been. */
export function unknown(): Outcome & { readonly state: "none" } {
  return { state: "none", reason: "unknown" };
}

/**
 * Lists the store for all viewers together, while there are any.
 *
 *   idle      no viewer has asked for a while
 *   listing   each wanted query in turn, or only those that are new
 *   resting   until the next round, or until a new query may be listed
 *
 *   idle -> listing      read()
 *   listing -> resting   for REST_FACTOR times what the lists took
 *   resting -> listing   the rest is over: all wanted queries; or MIN_INTERVAL_MS after the last list began: new ones, for
 *                        which the rest becomes longer
 *   resting -> idle      the rest is over, and no query is wanted
 *
 * Invariants: the store lists for the dashboard for at most 5 % of the time, and lists begin at most every 2 s, however many
 * viewers there are and whatever they search for. A list that failed does not count: a store that was away is asked again
 * at once. What an account wants takes no place from another one.
 */

import type { Principal } from "../../auth/access-control.ts";
import { RequestError } from "../../server/request-error.ts";
import type { ClaimView, ListQuery, Page } from "../../spi/driver.ts";
import type { Clock, Timer } from "../../util/clock.ts";

const MIN_INTERVAL_MS = 2_000;
/** Lists take 1 of 20 parts of the time. */
const REST_FACTOR = 19;
/** With more of them a page of rows is no help, and each list is work for the store. */
const MAX_CLAIMS = 2_000;
/** Viewers ask again every interval; a query is listed for some time longer. */
const WANTED_INTERVALS = 3;
/** The list of all claims goes on for the charts and the events: a viewer may come back. */
export const ALL_WANTED_MS = 600_000;
/** Different queries of one account at once: beyond it the one that was read longest ago is dropped. */
const MAX_QUERIES_PER_ACCOUNT = 8;
/** How long a viewer waits for the first list of a query. */
const FIRST_LIST_MS = 10_000;

/** What one list showed. */
export interface Listing {
  /** Rises with each list. */
  readonly sequence: number;
  /** On the clock's now() scale. */
  readonly readAt: number;
  readonly views: readonly ClaimView[];
  readonly isComplete: boolean;
}

/** A listing as it is now. */
export interface CurrentListing extends Listing {
  readonly intervalMs: number;
  /** Why the newest attempt failed; null: it did not. */
  readonly failure: string | null;
}

export interface SamplerOptions {
  readonly clock: Clock;
  /** At most `max` claims: those that the account may see; null: all. @throws RequestError */
  readonly list: (query: ListQuery, max: number, account: Principal | null) => Promise<Page<ClaimView>>;
  /** Called with each list of all claims; null: it failed. */
  readonly onAll: (listing: Listing | null) => void;
}

class WantedQuery {
  readonly query: ListQuery;
  readonly account: string;
  /** Whose rights apply; null: this account may see everything. */
  scope: Principal | null = null;
  wantedUntil = 0;
  listing: Listing | null = null;
  /** Of the newest attempt; null: it succeeded. */
  error: Error | null = null;
  /** Called after each attempt. */
  readonly waiting = new Set<() => void>();

  constructor(query: ListQuery, account: string) {
    this.query = query;
    this.account = account;
  }

  /** No list of it was attempted yet. */
  get isNew(): boolean {
    return this.listing === null && this.error === null;
  }
}

export class StoreSampler {
  readonly #options: SamplerOptions;
  readonly #timer: Timer;
  /** All claims, for the charts and the events. */
  readonly #all = new WantedQuery({ prefix: "" }, "");
  /** By account, query and scope, with the one that was read longest ago first. */
  readonly #queries = new Map<string, WantedQuery>();
  #state: "idle" | "listing" | "resting" | "closed" = "idle";
  #sequence = 0;
  #intervalMs = MIN_INTERVAL_MS;
  /** When the last lists began, and when the next round does. */
  #lastListAt = Number.NEGATIVE_INFINITY;
  #nextRoundAt = Number.NEGATIVE_INFINITY;

  constructor(options: SamplerOptions) {
    this.#options = options;
    this.#timer = options.clock.timer(() => void this.#list());
  }

  /** The time between two lists at present. */
  get intervalMs(): number {
    return this.#intervalMs;
  }

  /** Keeps the list of all claims going. */
  watch(): void {
    this.#all.wantedUntil = this.#options.clock.now() + ALL_WANTED_MS;
    if (this.#state === "idle") void this.#list();
  }

  /**
   * The newest listing of these claims, as far as the account may see them: the first one is waited for.
   * @throws the error of the first attempt; RequestError STORE if it takes too long, LIMIT if the account waits for too many
   * queries
   */
  async read(query: ListQuery, account: Principal): Promise<CurrentListing> {
    this.watch();
    if (this.#all.isNew) await this.#nextAttempt(this.#all);
    const wanted = this.#isAnsweredByAll(query) ? this.#all : this.#want(query, account);
    if (wanted !== this.#all && wanted.isNew) await this.#nextAttempt(wanted);
    const { listing, error } = wanted;
    if (listing === null) throw error ?? new RequestError("STORE", "the store has not answered yet");
    return { ...listing, failure: error?.message ?? null, intervalMs: this.#intervalMs };
  }

  /** The holder of this key with this token, if a list has shown it. */
  findHolder(key: string, token: bigint): ClaimView | undefined {
    for (const { listing } of [this.#all, ...this.#queries.values()]) {
      const found = listing?.views.find(
        ({ answer, locks }) =>
          answer.state === "held" && answer.token === token && locks.some((lock) => lock.key === key),
      );
      if (found !== undefined) return found;
    }
    return undefined;
  }

  close(): void {
    this.#state = "closed";
    this.#timer.stop();
    for (const { waiting } of [this.#all, ...this.#queries.values()]) for (const resolve of [...waiting]) resolve();
    this.#queries.clear();
  }

  /**
   * The list of all claims says everything, if it is complete. The queue of a key is in its order there unless one of its
   * claims has several keys: that is listed with the first of them.
   */
  #isAnsweredByAll({ key }: ListQuery): boolean {
    const { listing } = this.#all;
    if (listing === null || !listing.isComplete) return false;
    const isOfSeveral = ({ locks }: ClaimView): boolean => locks.length > 1 && locks.some((lock) => lock.key === key);
    return key === undefined || !listing.views.some(isOfSeveral);
  }

  #want(query: ListQuery, principal: Principal): WantedQuery {
    const scope = principal.can("inspect", "") ? null : principal;
    if (scope === null && query.prefix === "") return this.#all;
    const name = JSON.stringify([principal.name, query]);
    const wanted = this.#queries.get(name) ?? this.#create(query, principal.name);
    wanted.scope = scope;
    wanted.wantedUntil = this.#options.clock.now() + WANTED_INTERVALS * this.#intervalMs;
    // to the end of the queries of its account
    this.#queries.delete(name);
    this.#queries.set(name, wanted);
    if (wanted.isNew && this.#state === "resting") this.#schedule();
    return wanted;
  }

  #create(query: ListQuery, account: string): WantedQuery {
    const own = [...this.#queries].filter(([, other]) => other.account === account);
    if (own.length >= MAX_QUERIES_PER_ACCOUNT) {
      const idle = own.find(([, { waiting }]) => waiting.size === 0);
      if (idle === undefined)
        throw new RequestError("LIMIT", `at most ${MAX_QUERIES_PER_ACCOUNT} different searches at once`);
      this.#queries.delete(idle[0]);
    }
    return new WantedQuery(query, account);
  }

  #nextAttempt({ waiting }: WantedQuery): Promise<void> {
    return new Promise((resolve) => {
      const { clock } = this.#options;
      const end = (): void => {
        timer.stop();
        waiting.delete(end);
        resolve();
      };
      const timer = clock.timer(end);
      timer.set(clock.now() + FIRST_LIST_MS);
      waiting.add(end);
    });
  }

  /** The queries that viewers still read, that of all claims first. */
  #selectWanted(): WantedQuery[] {
    const now = this.#options.clock.now();
    for (const [name, { wantedUntil, waiting }] of [...this.#queries]) {
      if (now >= wantedUntil && waiting.size === 0) this.#queries.delete(name);
    }
    return now < this.#all.wantedUntil ? [this.#all, ...this.#queries.values()] : [...this.#queries.values()];
  }

  async #list(): Promise<void> {
    const { clock } = this.#options;
    const wanted = this.#selectWanted();
    if (wanted.length === 0) {
      this.#state = "idle";
      return;
    }
    this.#state = "listing";
    const startedAt = clock.now();
    this.#lastListAt = startedAt;
    const isRound = startedAt >= this.#nextRoundAt;
    let spentMs = 0;
    for (const one of wanted) if (isRound || one.isNew) spentMs += await this.#attempt(one, isRound);
    if ((this.#state as string) === "closed") return;
    const costMs = spentMs * (REST_FACTOR + 1);
    if (isRound) {
      this.#intervalMs = Math.max(MIN_INTERVAL_MS, costMs);
      this.#nextRoundAt = Math.max(startedAt + this.#intervalMs, clock.now());
    } else this.#nextRoundAt += costMs;
    this.#state = "resting";
    this.#schedule();
  }

  #schedule(): void {
    const isAnyNew = [...this.#queries.values()].some(({ isNew }) => isNew);
    const newListAt = isAnyNew ? this.#lastListAt + MIN_INTERVAL_MS : Number.POSITIVE_INFINITY;
    this.#timer.set(Math.min(this.#nextRoundAt, newListAt));
  }

  /** Returns how long the store has worked for it. */
  async #attempt(wanted: WantedQuery, isRound: boolean): Promise<number> {
    const { clock, list, onAll } = this.#options;
    const readAt = clock.now();
    let spentMs = 0;
    try {
      // a store that does not answer is asked once in a round
      if (isRound && wanted !== this.#all && this.#all.error !== null) throw this.#all.error;
      const { items, next } = await list(wanted.query, MAX_CLAIMS, wanted.scope);
      spentMs = clock.now() - readAt;
      this.#sequence++;
      wanted.listing = { sequence: this.#sequence, readAt, views: items, isComplete: next === undefined };
      wanted.error = null;
    } catch (error) {
      wanted.error = error as Error;
    }
    if (wanted === this.#all && this.#state !== "closed") onAll(wanted.error === null ? wanted.listing : null);
    for (const end of [...wanted.waiting]) end();
    return spentMs;
  }
}

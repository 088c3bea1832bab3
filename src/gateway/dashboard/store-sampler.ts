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
 * Invariant: the store lists for the dashboard for at most 5 % of the time, and lists begin at most every 2 s, however many
 * viewers there are and whatever they search for.
 */

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
/** Different queries at once. */
const MAX_QUERIES = 20;
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
  /** At most `max` claims, whoever may see them. @throws RequestError */
  readonly list: (query: ListQuery, max: number) => Promise<Page<ClaimView>>;
  /** Called with each list of all claims; null: it failed. */
  readonly onAll: (listing: Listing | null) => void;
}

interface WantedQuery {
  readonly query: ListQuery;
  wantedUntil: number;
  listing: Listing | null;
  /** Of the newest attempt; null: it succeeded. */
  error: Error | null;
  /** Called after each attempt. */
  readonly waiting: Set<() => void>;
}

const ALL: ListQuery = { prefix: "" };

export class StoreSampler {
  readonly #options: SamplerOptions;
  readonly #timer: Timer;
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
    this.#want(ALL, ALL_WANTED_MS);
  }

  /**
   * The newest listing of these claims: the first one is waited for.
   * @throws the error of the first attempt; RequestError STORE if it takes too long, LIMIT if too many different queries are
   * read at once
   */
  async read(query: ListQuery): Promise<CurrentListing> {
    this.watch();
    const known = selectClaims(this.#queries.get(toName(ALL)), query);
    if (known !== null) return { ...known, intervalMs: this.#intervalMs };
    const wanted = this.#want(query, WANTED_INTERVALS * this.#intervalMs);
    if (isNew(wanted)) await this.#firstAttempt(wanted);
    const { listing, error } = wanted;
    if (listing === null) throw error ?? new RequestError("STORE", "the store has not answered yet");
    return { ...listing, failure: error?.message ?? null, intervalMs: this.#intervalMs };
  }

  /** The holder of this key with this token, if a list has shown it. */
  findHolder(key: string, token: bigint): ClaimView | undefined {
    for (const { listing } of this.#queries.values()) {
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
    for (const { waiting } of this.#queries.values()) for (const resolve of waiting) resolve();
    this.#queries.clear();
  }

  #want(query: ListQuery, ms: number): WantedQuery {
    const name = toName(query);
    const wantedUntil = this.#options.clock.now() + ms;
    const existing = this.#queries.get(name);
    if (existing !== undefined) {
      existing.wantedUntil = Math.max(existing.wantedUntil, wantedUntil);
      return existing;
    }
    this.#dropUnwanted();
    if (this.#queries.size >= MAX_QUERIES)
      throw new RequestError("LIMIT", `at most ${MAX_QUERIES} different searches at once`);
    const wanted = { query, wantedUntil, listing: null, error: null, waiting: new Set<() => void>() };
    this.#queries.set(name, wanted);
    if (this.#state === "idle") void this.#list();
    else if (this.#state === "resting") this.#schedule();
    return wanted;
  }

  #firstAttempt(wanted: WantedQuery): Promise<void> {
    return new Promise((resolve) => {
      const { clock } = this.#options;
      const end = (): void => {
        timer.stop();
        wanted.waiting.delete(end);
        resolve();
      };
      const timer = clock.timer(end);
      timer.set(clock.now() + FIRST_LIST_MS);
      wanted.waiting.add(end);
    });
  }

  #dropUnwanted(): void {
    const now = this.#options.clock.now();
    for (const [name, { wantedUntil, waiting }] of [...this.#queries]) {
      if (now >= wantedUntil && waiting.size === 0) this.#queries.delete(name);
    }
  }

  async #list(): Promise<void> {
    const { clock } = this.#options;
    this.#dropUnwanted();
    if (this.#queries.size === 0) {
      this.#state = "idle";
      return;
    }
    this.#state = "listing";
    const startedAt = clock.now();
    const isRound = startedAt >= this.#nextRoundAt;
    for (const wanted of [...this.#queries.values()]) if (isRound || isNew(wanted)) await this.#attempt(wanted);
    if ((this.#state as string) === "closed") return;
    const listedMs = clock.now() - startedAt;
    this.#lastListAt = startedAt;
    if (isRound) {
      this.#intervalMs = Math.max(MIN_INTERVAL_MS, listedMs * (REST_FACTOR + 1));
      this.#nextRoundAt = startedAt + this.#intervalMs;
    } else this.#nextRoundAt += listedMs * (REST_FACTOR + 1);
    this.#state = "resting";
    this.#schedule();
  }

  #schedule(): void {
    const isAnyNew = [...this.#queries.values()].some(isNew);
    const newListAt = isAnyNew ? this.#lastListAt + MIN_INTERVAL_MS : Number.POSITIVE_INFINITY;
    this.#timer.set(Math.min(this.#nextRoundAt, newListAt));
  }

  async #attempt(wanted: WantedQuery): Promise<void> {
    try {
      wanted.listing = await this.#fetch(wanted.query);
      wanted.error = null;
    } catch (error) {
      wanted.error = error as Error;
    }
    if (wanted.query === ALL && this.#state !== "closed")
      this.#options.onAll(wanted.error === null ? wanted.listing : null);
    for (const end of [...wanted.waiting]) end();
  }

  async #fetch(query: ListQuery): Promise<Listing> {
    const { clock, list } = this.#options;
    const readAt = clock.now();
    const { items, next } = await list(query, MAX_CLAIMS);
    this.#sequence++;
    return { sequence: this.#sequence, readAt, views: items, isComplete: next === undefined };
  }
}

function toName(query: ListQuery): string {
  return JSON.stringify(query);
}

/** No list of it was attempted yet. */
function isNew({ listing, error }: WantedQuery): boolean {
  return listing === null && error === null;
}

/** What the list of all claims says about a query; null: it does not say everything, or claims are not in their order. */
function selectClaims(
  all: WantedQuery | undefined,
  { prefix = "", key }: ListQuery,
): Omit<CurrentListing, "intervalMs"> | null {
  if (all === undefined || all.listing === null || !all.listing.isComplete) return null;
  const isWanted = (name: string): boolean => (key === undefined ? name.startsWith(prefix) : name === key);
  const views = all.listing.views.filter(({ locks }) => locks.some((lock) => isWanted(lock.key)));
  // a claim over several keys is listed with the first of them, wherever it is in the queue of this one
  if (key !== undefined && views.some(({ locks }) => locks.length > 1)) return null;
  return { ...all.listing, views, failure: all.error?.message ?? null };
}

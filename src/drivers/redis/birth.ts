/**
 * A store that forgot (option guardDataLoss). What it granted us is kept here, so that it can be placed anew; and what it
 * no longer knows is noticed, with the option and without.
 */

import { FatalDriverError } from "../../errors.ts";
import type { Answer, Claim, ClaimId, Finding } from "../../spi/driver.ts";
import type { Run } from "./connection.ts";
import { BIRTH } from "./scripts.ts";
import {
  ALL_BUCKETS,
  birthOf,
  hasMissedGrant,
  isForgotten,
  opensAtOf,
  readAnswer,
  routeOf,
  termsOf,
  wordsOf,
} from "./words.ts";

/** How a store that forgot is met. The same for every client of a prefix. */
export interface GuardOptions {
  /**
   * No claim is longer than this, in milliseconds: so long does a store that forgot grant nothing new (if it is less than 4 s,
   * up to 4 s after a restart or a promotion). Default 60 s.
   */
  readonly longestTtlMs?: number;
}

export interface BirthOptions {
  readonly root: string;
  /** Milliseconds; null: no guard. */
  readonly longestTtlMs: number | null;
  readonly label: string | undefined;
  readonly warn: (warning: string) => void;
  /** Is the grace period at the beginning not to be warned of? */
  readonly isQuiet: boolean;
  /** Whoever holds must ask now. */
  readonly forgot: () => void;
}

interface Grant {
  readonly token: bigint;
  readonly tokens: number;
}

/** One claim that came through. */
export interface Known {
  /** Null: asked for, not granted yet. */
  grant: Grant | null;
  /** Placed again under an id that was released before, as a majority does: a push may still be of the earlier place. */
  readonly isAgain: boolean;
  readonly ttlMs: number;
  /** When it was last asked or heard of. */
  heardAt: number;
}

/** So many released ids are remembered, to know one that is placed again. */
const MOST_LEFT = 4_096;

/** Claims are looked through for those whose leases are long over when there are so many, and then twice as many as are left. */
const FIRST_SWEEP = 1_000;

/** Places held claims anew, these words being theirs, and gives what the store says of each. */
export type Replace = (lost: readonly Claim[], words: (claim: Claim) => readonly string[]) => Promise<unknown>;

/** The longest ttl in milliseconds; null: no guard. */
export function longestTtlOf(option: boolean | GuardOptions | undefined): number | null {
  if (option === undefined || option === false) return null;
  return option === true ? 60_000 : (option.longestTtlMs ?? 60_000);
}

export class Birth {
  readonly #options: BirthOptions;
  /** What we asked for and have not released. Who is detached, or whose lease ends, is never released. */
  readonly #known = new Map<ClaimId, Known>();
  #sweepAt = FIRST_SWEEP;
  /** The last ids that were released, the oldest first. */
  readonly #left = new Set<ClaimId>();
  /** Until when the store grants nothing new, as it told last: a loss that we know of. */
  #opensAt = "";
  /** How many grants the store did not know any more, without any of the ends that it tells of. */
  #lost = 0;

  constructor(options: BirthOptions) {
    this.#options = options;
  }

  /** What scripts are told: the record to heed, and the longest ttl there is. On one server all buckets have one record. */
  words(route: string, isCluster: boolean): readonly [string, string] {
    const { root, longestTtlMs } = this.#options;
    if (longestTtlMs === null) return ["", "0"];
    return [isCluster ? birthOf(route) : birthOf(routeOf(root, "00")), String(longestTtlMs)];
  }

  /**
   * A claim is placed; gives what `learn` wants with its answer.
   * @throws FatalDriverError if the claim could outlast the time in which nothing new is granted
   */
  asked(claim: Claim): Known {
    const { ttlMs } = claim;
    const { longestTtlMs } = this.#options;
    if (longestTtlMs !== null && Number(ttlMs) > longestTtlMs) {
      const bound = `guardDataLoss.longestTtlMs (${longestTtlMs} ms)`;
      throw new FatalDriverError(`redis: ttl of ${ttlMs} ms is longer than ${bound} allows`);
    }
    return this.#of(claim);
  }

  /**
   * Claims are renewed; gives what `replaced` and `learn` want with the answers. A grant counts only for the place that was
   * asked about: an answer that comes after its release says nothing of a later place of the same id.
   */
  renewing(claims: readonly Claim[]): readonly Known[] {
    return claims.map((claim) => this.#of(claim));
  }

  /** A push may be for a claim that we have given up, or for an earlier place of its id. */
  pushed(id: ClaimId, answer: Answer): void {
    const known = this.#known.get(id);
    if (known !== undefined && !known.isAgain) this.#note(id, known, answer);
  }

  forget(id: ClaimId): void {
    if (!this.#known.delete(id) || this.#options.longestTtlMs === null) return;
    this.#left.add(id);
    if (this.#left.size <= MOST_LEFT) return;
    for (const oldest of this.#left) {
      this.#left.delete(oldest);
      return;
    }
  }

  /** Notes what these claims were told, and a loss of data that is seen by it. */
  learn(claims: readonly Claim[], known: readonly Known[], answers: readonly Answer[], raw: readonly unknown[]): void {
    let lost = 0;
    for (const [at, { id }] of claims.entries()) {
      if (this.#note(id, known[at] as Known, answers[at] as Answer)) lost++;
    }
    this.#lost += lost;
    if (lost > 0) {
      const what = lost === 1 ? "a lock of ours: its holder is" : `${lost} locks of ours: their holders are`;
      this.#options.warn(`redis: the server has lost ${what} told, and it may have been granted to others`);
    }
    if (this.#options.longestTtlMs === null) return;
    for (const one of raw) {
      const opensAt = opensAtOf(one);
      if (opensAt !== null) return this.#forgot(opensAt);
    }
  }

  /** What we hold and the store has forgotten is placed anew; the answers become what it says then. */
  async replaced(
    claims: readonly Claim[],
    known: readonly Known[],
    raw: readonly unknown[],
    answers: Answer[],
    replace: Replace,
  ): Promise<void> {
    const lost = new Map<Claim, readonly string[]>();
    const places: number[] = [];
    for (const [at, claim] of claims.entries()) {
      const grant = this.#known.get(claim.id) === known[at] ? (known[at] as Known).grant : null;
      if (grant === null || !(isForgotten(raw[at]) || hasMissedGrant(raw[at]))) continue;
      const { token, tokens } = grant;
      const terms = termsOf({ ...claim, tokens, floor: token }, this.#options.label);
      lost.set(claim, [...wordsOf(claim), ...terms, String(token)]);
      places.push(at);
    }
    if (lost.size === 0) return;
    const said = await replace([...lost.keys()], (claim) => lost.get(claim) as readonly string[]);
    if (!Array.isArray(said) || said.length !== lost.size)
      throw new Error("redis: a script did not answer for every claim");
    for (const [index, at] of places.entries()) answers[at] = readAnswer(said[index]);
  }

  /**
   * Has the store forgotten? Asked when a driver opens: the first use of a prefix counts as that, too.
   * @throws FatalDriverError if we may not ask
   */
  async greet(run: Run, head: (route: string) => readonly string[], isCluster: boolean): Promise<void> {
    const { root, longestTtlMs, isQuiet, warn } = this.#options;
    if (longestTtlMs === null) return;
    const routes = (isCluster ? ALL_BUCKETS : ["00"]).map((bucket) => routeOf(root, bucket));
    try {
      const said = await Promise.all(routes.map((route) => run(BIRTH, route, head(route))));
      const leftMs = Math.max(...said.map((one) => Number((one as unknown[])[0]) - Number((one as unknown[])[1])));
      if (leftMs <= 0 || isQuiet) return;
      warn(`redis: the server has forgotten what it had, or is new to us: it grants nothing new for ${leftMs} ms`);
    } catch (error) {
      if (!/\bACL\b|NOPERM|can't run this command/i.test(String(error))) throw error;
      throw new FatalDriverError("redis: guardDataLoss needs the right to INFO (+info)", { cause: error });
    }
  }

  /** What this client has lost, for tools. */
  found(): Finding[] {
    if (this.#lost === 0) return [];
    const says = `${this.#lost} locks of this client were gone from the server while they were held`;
    return [{ level: "doubtful", what: "loss", says, advice: "was it flushed, restarted, or a key deleted?" }];
  }

  /** Was it held, and is gone without any of the ends that the store tells of? `known`: as it was when it was asked about. */
  #note(id: ClaimId, known: Known, answer: Answer): boolean {
    if (this.#known.get(id) !== known) return false;
    if (answer.state === "none") {
      this.#known.delete(id);
      return known.grant !== null && answer.reason === undefined;
    }
    known.heardAt = performance.now();
    if (answer.state === "held") known.grant = answer;
    return false;
  }

  #of({ id, ttlMs }: Claim): Known {
    return this.#known.get(id) ?? this.#add(id, ttlMs);
  }

  #add(id: ClaimId, ttlMs: Claim["ttlMs"]): Known {
    const known = { grant: null, isAgain: this.#left.has(id), ttlMs: Number(ttlMs), heardAt: performance.now() };
    this.#known.set(id, known);
    if (this.#known.size < this.#sweepAt) return known;
    for (const [of, { ttlMs: length, heardAt }] of this.#known) {
      if (heardAt + 2 * length < known.heardAt) this.#known.delete(of);
    }
    this.#sweepAt = Math.max(FIRST_SWEEP, 2 * this.#known.size);
    return known;
  }

  /** Those who hold must ask now, to place their claims anew. */
  #forgot(opensAt: string): void {
    if (this.#opensAt === opensAt) return;
    this.#opensAt = opensAt;
    queueMicrotask(this.#options.forgot);
  }
}

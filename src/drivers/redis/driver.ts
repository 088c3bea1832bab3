/**
 * Locks in Redis: lines of keys that Lua scripts keep (lua/line.lua says how), one trip a verb. Whoever gives a lock back
 * grants it to the next in line in the same script, which tells the next one's process by its one inbox channel.
 */

import { newId } from "../../ids.ts";
import type {
  Answer,
  Claim,
  ClaimId,
  ClaimView,
  Driver,
  Finding,
  ListFilter,
  Notify,
  Traits,
} from "../../spi/driver.ts";
import { Birth, longestTtlOf } from "./birth.ts";
import { linkOf } from "./client/link.ts";
import type { RedisClient } from "./client/shapes.ts";
import type { Impatience, Run } from "./connection.ts";
import { Connection } from "./connection.ts";
import { eachHome } from "./homes.ts";
import { listed } from "./listing.ts";
import { opened } from "./opening.ts";
import type { RedisOptions } from "./options.ts";
import { checkRedisOptions, replicaTermsOf, warnerOf } from "./options.ts";
import type { Probed } from "./probes.ts";
import { asksOf, leaksFound, warningsOf, worstFound } from "./probes.ts";
import type { Script } from "./scripts.ts";
import { CLAIM, DETACH, RELEASE, RENEW, REPLACE, REVOKE } from "./scripts.ts";
import {
  bucketOf,
  hasMissedGrant,
  homeOf,
  isForgotten,
  LAYOUT,
  readAnswer,
  readFlags,
  readPush,
  routeOf,
  termsOf,
  wordsOf,
} from "./words.ts";

export type { GuardOptions } from "./birth.ts";
export type { RedisClient } from "./client/shapes.ts";
export type { RedisOptions, ReplicaOptions } from "./options.ts";
export type { WarningName } from "./probes.ts";

const TRAITS: Traits = {
  lease: { claim: true },
  manyKeys: true,
  permits: "any",
  fencing: true,
  fifo: true,
  survives: "restart",
};

/**
 * A driver for Redis (tested with 7.0): a single server, one that Sentinels name, or a Cluster. `client`: one of ioredis
 * (5, 6), iovalkey, redis (node-redis 5, 6) or valkey-glide (2.5, no Cluster), connected or connecting, which stays the
 * caller's and is never closed by us; or a function that makes one, which is ours and closed with the driver. Beside it the
 * driver opens one connection of its own, to hear of grants; in a Cluster, which needs Redis 7, one to each master.
 * @throws TypeError naming the argument if the client or an option is not one
 */
export function redis(
  client: RedisClient | (() => RedisClient | Promise<RedisClient>),
  options: RedisOptions = {},
): Driver {
  const isOurs = typeof client === "function";
  if (!isOurs) linkOf(client);
  checkRedisOptions(options);
  return new RedisDriver(isOurs ? client : () => client, isOurs, options.prefix ?? "holdfast", options);
}

interface Asked {
  calls: number;
  /** Released meanwhile. */
  isLeft: boolean;
}

class RedisDriver implements Driver {
  readonly name = "redis";
  traits: Traits = TRAITS;
  readonly #makeClient: () => RedisClient | Promise<RedisClient>;
  readonly #isOurs: boolean;
  readonly #options: RedisOptions;
  /** The beginning of all our names but the layout's: "holdfast:1:". */
  readonly #root: string;
  readonly #layoutKey: string;
  /** In a Cluster: its buckets, each of which one call reaches. */
  shardOf?: (claim: Claim) => string;
  readonly #birth: Birth;
  readonly #warn: (warning: string) => void;
  /** Claims with a `claim` call that may still come, however late: its client's library may keep it for long. */
  readonly #asked = new Map<ClaimId, Asked>();
  /** A release that is given up on may still grant our own waiters, and tell only here. */
  readonly #tellsGrants: Impatience = { givenUp: () => undefined, late: () => this.#notify(null) };
  #connection: Connection | null = null;
  #notify: Notify = () => undefined;

  constructor(
    makeClient: () => RedisClient | Promise<RedisClient>,
    isOurs: boolean,
    prefix: string,
    options: RedisOptions,
  ) {
    this.#makeClient = makeClient;
    this.#isOurs = isOurs;
    this.#options = options;
    this.#root = `${prefix}:${LAYOUT}:`;
    this.#warn = warnerOf(options);
    this.#layoutKey = `${prefix}:{00}:layout`;
    this.#birth = new Birth({
      root: this.#root,
      longestTtlMs: longestTtlOf(options.guardDataLoss),
      label: options.label,
      warn: this.#warn,
      isQuiet: options.silenceWarnings?.includes("guardDataLoss") === true,
      forgot: () => this.#notify(null),
    });
  }

  async open(notify: Notify): Promise<void> {
    const { connectTimeoutMs = 5_000, commandTimeoutMs = 5_000, allowEviction = false } = this.#options;
    const connection = new Connection({
      link: linkOf(await this.#makeClient()),
      isOurs: this.#isOurs,
      root: this.#root,
      inboxId: newId(),
      patienceMs: commandTimeoutMs,
      replicas: replicaTermsOf(this.#options.replicas),
      heard: (message, isAnswer) => this.#heard(message, isAnswer),
      missed: () => this.#notify(null),
    });
    try {
      const names = { root: this.#root, layoutKey: this.#layoutKey, route: routeOf(this.#root, "00") };
      const terms = { connectTimeoutMs, allowEviction, waits: this.#options.replicas !== undefined };
      await opened(connection, names, terms, async () => {
        const run: Run = (script, route, words) => connection.run(script, route, words);
        await this.#birth.greet(run, (route) => this.#head(route, connection), connection.isCluster);
        const found = await worstFound(asksOf(connection, this.#root), this.#probed(connection));
        for (const text of warningsOf(found, this.#options.silenceWarnings)) this.#warn(text);
      });
    } catch (error) {
      connection.close();
      throw error;
    }
    this.#notify = notify;
    this.#connection = connection;
    if (!connection.isCluster) return;
    this.traits = { ...TRAITS, manyKeys: false };
    this.shardOf = homeOf;
  }

  async claim(claim: Claim): Promise<Answer> {
    const { id } = claim;
    const known = this.#birth.asked(claim);
    const route = routeOf(this.#root, homeOf(claim));
    const connection = this.#ready;
    // before the first wait in a bucket its inbox is there: who cannot be told loses its turn
    const listening = claim.wait ? connection.listening(route) : null;
    if (listening !== null) await listening;
    const words = [...this.#head(route), ...wordsOf(claim), ...termsOf(claim, this.#options.label)];
    const asked = this.#asked.get(id) ?? { calls: 0, isLeft: false };
    this.#asked.set(id, asked);
    asked.isLeft = false; // a majority gives a vote back and asks for it again
    asked.calls++;
    let isGivenUp = false;
    const settled = (): void => {
      if (--asked.calls === 0) this.#asked.delete(id);
    };
    const givenUp = (): void => {
      isGivenUp = true;
    };
    const late = (): void => {
      settled();
      // released while it was on its way: it may have taken a place that nobody wants
      if (asked.isLeft) this.release([claim], new Set([id])).catch(() => undefined);
    };
    const raw = await connection.run(CLAIM, route, words, { late, givenUp }).finally(() => {
      if (!isGivenUp) settled();
    });
    const answer = readAnswer(raw);
    this.#birth.learn([claim], [known], [answer], [raw]);
    return answer;
  }

  async renew(claims: readonly Claim[]): Promise<readonly (Answer | undefined)[]> {
    if (!this.#ready.isCluster) return this.#renewed(claims);
    const { answers, failures } = await eachHome(claims, homeOf, (some) => this.#renewed(some));
    if (answers.size === 0 && failures.length > 0) throw failures[0];
    return claims.map((claim) => answers.get(claim));
  }

  /** Claims that one call reaches. */
  async #renewed(claims: readonly Claim[]): Promise<readonly Answer[]> {
    const known = this.#birth.renewing(claims);
    const raw = await this.#many(RENEW, claims, homeOf, wordsOf);
    if (!Array.isArray(raw) || raw.length !== claims.length)
      throw new Error("redis: renew did not answer for every claim");
    const answers = raw.map(readAnswer);
    if (raw.some((one) => isForgotten(one) || hasMissedGrant(one))) {
      await this.#birth.replaced(claims, known, raw, answers, (lost, words) =>
        this.#many(REPLACE, lost, homeOf, words),
      );
    }
    this.#birth.learn(claims, known, answers, raw);
    return answers;
  }

  async release(claims: readonly Claim[], unanswered?: ReadonlySet<ClaimId>): Promise<readonly boolean[]> {
    for (const { id } of claims) {
      const asked = this.#asked.get(id);
      if (asked !== undefined) asked.isLeft = true;
      this.#birth.forget(id);
    }
    const { life } = this.#ready;
    const flag = ({ id }: Claim): string => (unanswered?.has(id) === true ? "1" : "0");
    const released = await this.#flags(RELEASE, claims, homeOf, (claim) => [flag(claim), ...wordsOf(claim)]);
    // a client library may have sent it twice, and the second found nothing although all was well
    if (life !== this.#ready.life) throw new Error("redis: the connection broke while a release was under way");
    return released;
  }

  detach(claims: readonly Claim[], leftMs?: number): Promise<readonly boolean[]> {
    const left = ({ ttlMs }: Claim): string => String(leftMs === undefined ? ttlMs : Math.ceil(leftMs));
    return this.#flags(DETACH, claims, homeOf, (claim) => [left(claim), ...wordsOf(claim)]);
  }

  revoke(
    targets: readonly { readonly key: string; readonly token: bigint; readonly now: boolean }[],
  ): Promise<readonly boolean[]> {
    const home = ({ key }: { readonly key: string }): string => bucketOf(key);
    return this.#flags(REVOKE, targets, home, (target) => {
      const { key, token, now } = target;
      return [home(target), key, String(token), now ? "1" : "0"];
    });
  }

  async list(filter: ListFilter, max: number, after?: string, signal?: AbortSignal): Promise<readonly ClaimView[]> {
    const connection = this.#ready;
    const run: Run = async (script, route, words) => {
      signal?.throwIfAborted();
      return connection.run(script, route, words);
    };
    return listed(run, this.#root, { filter, max, after }, connection.isCluster);
  }

  async examine(): Promise<readonly Finding[]> {
    const asks = asksOf(this.#ready, this.#root);
    const probed = this.#probed(this.#ready);
    return [...(await worstFound(asks, probed)), await leaksFound(asks, probed), ...this.#birth.found()];
  }

  async close(): Promise<void> {
    this.#notify = () => undefined;
    this.#connection?.close();
  }

  #probed({ isCluster, address }: Connection): Probed {
    const isGuarded = (this.#options.guardDataLoss ?? false) !== false;
    const stays = (key: string): boolean => key === this.#layoutKey || /\{..\}:b$/.test(key);
    const replicas = this.#options.replicas?.atLeast ?? 0;
    const failsOver = isCluster || address.isNamed;
    return { prefix: this.#root.slice(0, -LAYOUT.length - 1), stays, failsOver, isGuarded, replicas };
  }

  get #ready(): Connection {
    if (this.#connection === null) throw new Error("redis: the driver is not open");
    return this.#connection;
  }

  /** What the scripts that change lines begin with. */
  #head(route: string, connection: Connection = this.#ready): readonly string[] {
    return [this.#root, connection.inboxOf(route), ...this.#birth.words(route, connection.isCluster)];
  }

  /** One call for many; their buckets may differ where there is but one server. */
  #many<T>(
    script: Script,
    items: readonly T[],
    home: (item: T) => string,
    words: (item: T) => readonly string[],
  ): Promise<unknown> {
    const first = items[0];
    const route = routeOf(this.#root, first === undefined ? "00" : home(first));
    const args = [...this.#head(route), String(items.length), ...items.flatMap(words)];
    return this.#ready.run(script, route, args, script === RELEASE ? this.#tellsGrants : undefined);
  }

  /** A call that answers yes or no for each; in a Cluster one a bucket. */
  async #flags<T>(
    script: Script,
    items: readonly T[],
    home: (item: T) => string,
    words: (item: T) => readonly string[],
  ): Promise<boolean[]> {
    const connection = this.#ready;
    const ask = async (some: readonly T[]): Promise<boolean[]> => {
      const { life } = connection;
      const { flags, pushes } = readFlags(await this.#many(script, some, home, words), some.length);
      for (const push of pushes) this.#heard(push, life === connection.life);
      return flags;
    };
    if (!connection.isCluster || items.length < 2) return ask(items);
    const { answers, failures } = await eachHome(items, home, ask);
    if (failures.length > 0) throw failures[0];
    return items.map((item) => answers.get(item) === true);
  }

  #heard(message: string, isAnswer: boolean): void {
    const push = readPush(message);
    if (push === null) return;
    if (push.answer !== undefined) this.#birth.pushed(push.id, push.answer);
    // with replicas to wait for a grant is asked about, which waits for them
    const isTaken = isAnswer && this.#options.replicas === undefined && this.#connection?.isSilent !== true;
    if (push.answer !== undefined && isTaken) this.#notify(push.id, push.answer);
    else this.#notify(push.id);
  }
}

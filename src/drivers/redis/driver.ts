/**
 * Locks in Redis: lines of keys that Lua scripts keep (lua/line.lua says how), one trip a verb. Whoever gives a lock back
 * grants it to the next in line in the same script, which tells the next one's process by its one inbox channel.
 */

import { newId } from "../../ids.ts";
import type { Answer, Claim, ClaimId, ClaimView, Driver, Notify, Traits } from "../../spi/driver.ts";
import { linkOf } from "./client/link.ts";
import type { RedisClient } from "./client/shapes.ts";
import { Connection } from "./connection.ts";
import { listed } from "./listing.ts";
import { opened } from "./opening.ts";
import type { Script } from "./scripts.ts";
import { CLAIM, DETACH, RELEASE, RENEW, REVOKE } from "./scripts.ts";
import { bucketOf, homeOf, LAYOUT, readAnswer, readFlags, readPush, routeOf, termsOf, wordsOf } from "./words.ts";

export type { RedisClient } from "./client/shapes.ts";

/** What may be said of a Redis store. */
export interface RedisOptions {
  /**
   * The beginning of the names of our keys and channels. Clients with the same prefix see each other's locks. The prefix
   * that a client of ioredis may have (`keyPrefix`) does not count. Default "holdfast".
   */
  readonly prefix?: string;
  /** How long the server may take to be reached for the first time, in milliseconds. Default 5 s. */
  readonly connectTimeoutMs?: number;
  /** After how many milliseconds a command is given up on; its outcome is found out by asking again. Default 5 s. */
  readonly commandTimeoutMs?: number;
  /**
   * Use a server that throws keys away when memory is full (any `maxmemory-policy` but noeviction): a lock that it throws
   * away is granted to somebody else while it is held. Default false: open() refuses such a server.
   */
  readonly allowEviction?: boolean;
  /** For claims that bring no label of their own. */
  readonly label?: string;
}

const TRAITS: Traits = {
  lease: { claim: true },
  manyKeys: true,
  permits: "any",
  fencing: true,
  fifo: true,
  survives: "restart",
};

/**
 * A driver for a single Redis server (tested with 7.0). `client`: one of ioredis (5, 6), iovalkey or redis (node-redis 5, 6),
 * connected or connecting, which stays the caller's and is never closed by us; or a function that makes one, which is
 * ours and closed with the driver. Beside it the driver opens one connection of its own, to hear of grants.
 * @throws TypeError naming the argument if the client or an option is not one
 */
export function redis(
  client: RedisClient | (() => RedisClient | Promise<RedisClient>),
  options: RedisOptions = {},
): Driver {
  const isOurs = typeof client === "function";
  if (!isOurs) linkOf(client);
  const prefix = checkedPrefix(options.prefix ?? "holdfast");
  return new RedisDriver(isOurs ? client : () => client, isOurs, prefix, options);
}

class RedisDriver implements Driver {
  readonly name = "redis";
  readonly traits: Traits = TRAITS;
  readonly #makeClient: () => RedisClient | Promise<RedisClient>;
  readonly #isOurs: boolean;
  readonly #options: RedisOptions;
  /** The beginning of all our names but the layout's: "holdfast:1:". */
  readonly #root: string;
  readonly #layoutKey: string;
  /** What the scripts that change lines begin with: root and inbox. */
  readonly #head: readonly [root: string, inbox: string];
  /** Claims whose `claim` call was given up on and may still come; true: they have been released meanwhile. */
  readonly #late = new Map<ClaimId, boolean>();
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
    this.#layoutKey = `${prefix}:layout`;
    this.#head = [this.#root, `${this.#root}inbox:${newId()}`];
  }

  async open(notify: Notify): Promise<void> {
    const { connectTimeoutMs = 5_000, commandTimeoutMs = 5_000, allowEviction = false } = this.#options;
    const connection = new Connection({
      link: linkOf(await this.#makeClient()),
      isOurs: this.#isOurs,
      channel: this.#head[1],
      patienceMs: commandTimeoutMs,
      heard: (message, isAnswer) => this.#heard(message, isAnswer),
      missed: () => this.#notify(null),
    });
    try {
      const names = { root: this.#root, layoutKey: this.#layoutKey, inbox: this.#head[1] };
      await opened(connection, names, { connectTimeoutMs, allowEviction });
    } catch (error) {
      connection.close();
      throw error;
    }
    this.#notify = notify;
    this.#connection = connection;
  }

  async claim(claim: Claim): Promise<Answer> {
    const { id } = claim;
    const words = [...this.#head, ...wordsOf(claim), ...termsOf(claim, this.#options.label)];
    const late = (): void => {
      // released while it was on its way: it may have taken a place that nobody wants
      if (this.#late.get(id) === true) this.release([claim], new Set([id])).catch(() => undefined);
      this.#late.delete(id);
    };
    const givenUp = (): void => void this.#late.set(id, false);
    return readAnswer(await this.#ready.run(CLAIM, routeOf(this.#root, homeOf(claim)), words, { late, givenUp }));
  }

  async renew(claims: readonly Claim[]): Promise<readonly Answer[]> {
    const raw = await this.#many(RENEW, claims, wordsOf);
    if (!Array.isArray(raw) || raw.length !== claims.length)
      throw new Error("redis: renew did not answer for every claim");
    return raw.map(readAnswer);
  }

  async release(claims: readonly Claim[], unanswered?: ReadonlySet<ClaimId>): Promise<readonly boolean[]> {
    for (const { id } of claims) if (this.#late.has(id)) this.#late.set(id, true);
    const connection = this.#ready;
    const { life } = connection;
    const flag = ({ id }: Claim): string => (unanswered?.has(id) === true ? "1" : "0");
    const raw = await this.#many(RELEASE, claims, (claim) => [flag(claim), ...wordsOf(claim)]);
    // a client library may have sent it twice, and the second found nothing although all was well
    if (life !== connection.life) throw new Error("redis: the connection broke while a release was under way");
    return readFlags(raw, claims.length);
  }

  async detach(claims: readonly Claim[]): Promise<readonly boolean[]> {
    return readFlags(await this.#many(DETACH, claims, wordsOf), claims.length);
  }

  async revoke(
    targets: readonly { readonly key: string; readonly token: bigint; readonly now: boolean }[],
  ): Promise<readonly boolean[]> {
    const words = targets.flatMap(({ key, token, now }) => [bucketOf(key), key, String(token), now ? "1" : "0"]);
    const route = routeOf(this.#root, words[0] ?? "00");
    const raw = await this.#ready.run(REVOKE, route, [...this.#head, String(targets.length), ...words]);
    return readFlags(raw, targets.length);
  }

  list(prefix: string, max: number, after?: string): Promise<readonly ClaimView[]> {
    const connection = this.#ready;
    return listed((script, key, words) => connection.run(script, key, words), this.#root, { prefix, max, after });
  }

  async close(): Promise<void> {
    this.#notify = () => undefined;
    this.#connection?.close();
  }

  get #ready(): Connection {
    if (this.#connection === null) throw new Error("redis: the driver is not open");
    return this.#connection;
  }

  #many(script: Script, claims: readonly Claim[], words: (claim: Claim) => readonly string[]): Promise<unknown> {
    const first = claims[0];
    const route = routeOf(this.#root, first === undefined ? "00" : homeOf(first));
    return this.#ready.run(script, route, [...this.#head, String(claims.length), ...claims.flatMap(words)]);
  }

  #heard(message: string, isAnswer: boolean): void {
    const push = readPush(message);
    if (push === null) return;
    if (push.answer !== undefined && isAnswer) this.#notify(push.id, push.answer);
    else this.#notify(push.id);
  }
}

function checkedPrefix(prefix: unknown): string {
  // braces are what Redis Cluster finds a key's slot by, and we put them where we need them
  if (typeof prefix === "string" && /^[^{}\s\p{Cc}]{1,64}$/u.test(prefix)) return prefix;
  throw new TypeError("prefix must be 1 to 64 characters without spaces, braces and control characters");
}

/**
 * The driver's connections: the link that its scripts go over, what it hears of grants by (client/hearing.ts), and what it asks
 * about replicas by (client/replicas.ts). The only places of the driver that time anything.
 *
 * Invariants
 * - A call is answered, fails, or is given up on within its time. Nothing is sent while the link is down, so no client
 *   library keeps it for later; what a library sends again by itself after a break is told by `life`.
 * - In each life of the link its database is selected before any script runs: a client that may not select it goes on in
 *   database 0, where others do not see its locks.
 * - Where replicas are waited for, no answer says that a claim is held before they have it.
 */

import { setTimeout as pause } from "node:timers/promises";
import type { Address } from "./client/address.ts";
import { Hearing } from "./client/hearing.ts";
import { Patience } from "./client/patience.ts";
import type { ReplicaTerms } from "./client/replicas.ts";
import { Replicas } from "./client/replicas.ts";
import type { Link } from "./client/shapes.ts";
import type { Script } from "./scripts.ts";
import { isHopeless, isLoading, isUnknownScript, notReached, plain } from "./trouble.ts";
import { keysOf, saysHeld, saysWaiting } from "./words.ts";

/** Milliseconds after which a client that has given up connecting, or a server that could not answer, is asked again. */
const AGAIN_MS = 100;

/** Sends a script the way that is a route: any key of its bucket. */
export type Run = (script: Script, route: string, words: readonly string[]) => Promise<unknown>;

export interface ConnectionOptions {
  readonly link: Link;
  /** Was the link's client made by us? Then it ends with us. */
  readonly isOurs: boolean;
  /** The beginning of all names that have a bucket. */
  readonly root: string;
  /** What our inbox is known by: random. */
  readonly inboxId: string;
  /** Milliseconds after which a call is given up on. */
  readonly patienceMs: number;
  /** Null: no replicas are waited for. */
  readonly replicas: ReplicaTerms | null;
  /** Something was said to our channel. `isAnswer`: it may be taken at its word. */
  readonly heard: (message: string, isAnswer: boolean) => void;
  /** Anything may have been missed. */
  readonly missed: () => void;
}

interface Selecting {
  readonly life: number;
  /** Null when it is done. */
  done: Promise<void> | null;
}

/** Told when a call is given up on, and when it is settled all the same. */
export interface Impatience {
  readonly givenUp: () => void;
  readonly late: () => void;
}

export class Connection {
  readonly #options: ConnectionOptions;
  readonly #unwatch: () => void;
  readonly #patience: Patience;
  readonly #hearing: Hearing;
  readonly #replicas: Replicas | null;
  #selecting: Selecting | null = null;
  /** Where our locks are: where the client was at first. */
  #database: number | null = null;
  #isClosed = false;
  #changed: () => void = () => undefined;
  #wasUp = false;
  readonly #channel: string;
  /** Counts the breaks of the link. */
  life = 0;

  constructor(options: ConnectionOptions) {
    this.#options = options;
    const { link, root, inboxId, heard, missed } = options;
    this.#channel = `${root}inbox:${inboxId}`;
    this.#patience = new Patience(options.patienceMs);
    this.#replicas = this.#replicasOf(options);
    this.#hearing = new Hearing({
      link,
      channelOf: (route) => this.inboxOf(route),
      send: (words, route) => this.send(words, route),
      life: () => this.life,
      heard,
      missed: () => {
        if (!this.#isClosed) missed();
      },
    });
    if (options.isOurs) options.link.own();
    this.#unwatch = options.link.watch({ up: () => this.#up(), down: () => this.#down() });
  }

  /** Several masters: the calls of each bucket go by themselves, and each bucket has an inbox. */
  get isCluster(): boolean {
    return this.#options.link.isCluster;
  }

  /** See Link. */
  get isSilent(): boolean {
    return this.#options.link.isSilent === true;
  }

  /** The channel of the inbox for claims that go this way. */
  inboxOf(route: string): string {
    return this.isCluster ? beside(route, `inbox:${this.#options.inboxId}`) : this.#channel;
  }

  /** Null if nothing said to the inbox of this route is missed; else settles when that is so. */
  listening(route: string): Promise<void> | null {
    const listening = this.#hearing.listening(route);
    if (listening !== null && this.#isClosed) return Promise.reject(new Error("redis: not connected"));
    return listening && this.#patience.within(listening, "inbox");
  }

  /** Of these routes one to each master, as far as they are known. */
  oneEach(routes: readonly string[]): readonly string[] {
    return [...new Map(routes.map((route) => [this.#options.link.nodeOf(route), route])).values()];
  }

  /** Where the link goes, for messages. */
  get address(): Address {
    return this.#options.link.address;
  }

  /**
   * Connects and does this work. What a broken connection or a restart of the server spoils is done again until the time is
   * up. @throws what the work throws, or Error saying why there is no connection
   */
  async connected(withinMs: number, work: () => Promise<void>): Promise<void> {
    const { link } = this.#options;
    const endsAt = performance.now() + withinMs;
    for (;;) {
      const { life } = this;
      try {
        if (!link.isReady) await this.#reached(withinMs, Math.max(endsAt - performance.now(), 1));
        this.#wasUp = true;
        await work();
        return;
      } catch (error) {
        const mayPass = this.life !== life || !link.isReady || isLoading(error);
        if (!mayPass || isHopeless(error) || performance.now() + AGAIN_MS >= endsAt) throw error;
        await pause(AGAIN_MS);
      }
    }
  }

  /**
   * Null if the link's database has been selected in this life; else settles when that is so. While it fails scripts fail, and
   * the next asks again.
   */
  selected(route: string): Promise<void> | null {
    const { database } = this.#options.link;
    this.#database ??= database;
    if (database !== this.#database) {
      const moved = `its client was moved from database ${this.#database} to ${database}, where others do not see its locks`;
      return Promise.reject(new Error(`redis: ${moved}`));
    }
    if (database === 0) return null;
    if (this.#selecting?.life === this.life) return this.#selecting.done;
    const selecting: Selecting = {
      life: this.life,
      done: this.send(["SELECT", String(database)], route).then(
        () => {
          selecting.done = null;
        },
        (error: unknown) => {
          if (this.#selecting === selecting) this.#selecting = null;
          throw error;
        },
      ),
    };
    this.#selecting = selecting;
    return selecting.done;
  }

  /** Runs a script, in the database that is meant. */
  async run(script: Script, route: string, words: readonly string[], impatience?: Impatience): Promise<unknown> {
    const selected = this.selected(route);
    if (selected !== null) await selected;
    const where = this.#replicas && this.#where(route);
    const reply = await this.#run(script, route, words, impatience);
    // a library that sent it again after a break may have done so in another database
    const selectedAgain = this.selected(route);
    if (selectedAgain !== null) await selectedAgain;
    const waits = saysWaiting(script, reply);
    if (waits || this.isCluster) this.#hearing.went(route, waits);
    if (this.#replicas !== null && saysHeld(script, reply)) {
      await this.#replicas.have(route);
      // another server may have taken over meanwhile, without this grant
      if (where !== this.#where(route)) throw new Error("redis: the connection changed while replicas were asked");
    }
    return reply;
  }

  send(words: string[], route: string, impatience?: Impatience): Promise<unknown> {
    const { link, patienceMs } = this.#options;
    if (this.#isClosed || !link.isReady) return Promise.reject(new Error("redis: not connected"));
    return new Promise((resolve, reject) => {
      const settled = this.#patience.begin(() => {
        impatience?.givenUp();
        reject(new Error(`redis: no answer within ${patienceMs} ms`));
      });
      const settle = (): boolean => {
        const isInTime = settled();
        if (!isInTime) impatience?.late();
        return isInTime;
      };
      link.send(words, route).then(
        (reply) => {
          if (settle()) resolve(reply);
        },
        (error: unknown) => {
          if (settle()) reject(plain(error));
        },
      );
    });
  }

  close(): void {
    this.#isClosed = true;
    this.#unwatch();
    this.#patience.end();
    this.#hearing.close();
    this.#replicas?.end();
    if (this.#options.isOurs) this.#options.link.end();
  }

  #replicasOf({ link, replicas, inboxId }: ConnectionOptions): Replicas | null {
    if (replicas === null) return null;
    let marks = 0;
    return new Replicas({
      link,
      terms: replicas,
      markOf: (route) => beside(route, `m:${inboxId}${++marks}`),
      send: (words, route) => this.send(words, route),
      within: (work, what) => this.#patience.within(work, what),
    });
  }

  /** Which life of which server answers there. */
  #where(route: string): string {
    return `${this.life} ${this.#options.link.nodeOf(route)}`;
  }

  async #run(script: Script, route: string, words: readonly string[], impatience?: Impatience): Promise<unknown> {
    const keys = keysOf(route, this.isCluster);
    try {
      return await this.send(["EVALSHA", script.sha, ...keys, ...words], route, impatience);
    } catch (error) {
      if (!isUnknownScript(error)) throw error;
      return this.send(["EVAL", script.text, ...keys, ...words], route, impatience);
    }
  }

  #up(): void {
    this.#changed();
    if (!this.#wasUp || this.#isClosed) return;
    this.#hearing.doubtAll();
    this.#options.missed();
  }

  #down(): void {
    this.life++;
  }

  /** Waits for the link, but not while its client says what waiting does not change. */
  async #reached(withinMs: number, leftMs: number): Promise<void> {
    const { link } = this.#options;
    let failure: unknown;
    const unheard = link.complaints((error) => {
      failure = error;
      this.#changed();
    });
    let again: NodeJS.Timeout | undefined;
    let isOver = false;
    // a client that has given up is asked again; one that goes on trying by itself has nothing to begin
    const start = (): void => {
      link.start().then(
        () => this.#changed(),
        (error: unknown) => {
          failure ??= error;
          if (!isOver) again = setTimeout(start, AGAIN_MS);
          this.#changed();
        },
      );
    };
    start();
    try {
      await this.#until(() => link.isReady || isHopeless(failure), leftMs);
    } catch {
      throw notReached(failure, link.address, withinMs);
    } finally {
      isOver = true;
      clearTimeout(again);
      unheard();
    }
    if (!link.isReady) throw notReached(failure, link.address);
  }

  /** Settles when a fact holds that `#changed` tells of. @throws Error if that takes too long */
  #until(fact: () => boolean, leftMs: number): Promise<void> {
    if (fact()) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#changed = () => undefined;
        reject(new Error("redis: too late"));
      }, leftMs);
      this.#changed = () => {
        if (!fact()) return;
        clearTimeout(timer);
        this.#changed = () => undefined;
        resolve();
      };
    });
  }
}

/** A name beside the keys of this bucket: its hash tag makes it theirs. */
function beside(route: string, name: string): string {
  return `${route.slice(0, route.indexOf("}") + 1)}:${name}`;
}

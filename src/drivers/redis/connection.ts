/**
 * The driver's two connections: the link that its scripts go over, and the inbox that it hears of grants by. The only
 * place of the driver that times anything.
 *
 * Invariants
 * - A call is answered, fails, or is given up on within its time. Nothing is sent while the link is down, so no client
 *   library keeps it for later; what a library sends again by itself after a break is told by `life`.
 * - A push counts as an answer only if it came over the same life of the store as the answers do: after a break of the
 *   link pushes are nudges until all that the inbox heard before has passed.
 */

import type { Inbox, Link } from "./client/shapes.ts";
import type { Script } from "./scripts.ts";

export interface ConnectionOptions {
  readonly link: Link;
  /** Was the link's client made by us? Then it ends with us. */
  readonly isOurs: boolean;
  readonly channel: string;
  /** Milliseconds after which a call is given up on. */
  readonly patienceMs: number;
  /** Something was said to our channel. `isAnswer`: it may be taken at its word. */
  readonly heard: (message: string, isAnswer: boolean) => void;
  /** Anything may have been missed. */
  readonly missed: () => void;
}

interface Pending {
  readonly givenUpAt: number;
  readonly giveUp: () => void;
}

/** Told when a call is given up on, and when it is settled all the same. */
export interface Patience {
  readonly givenUp: () => void;
  readonly late: () => void;
}

export class Connection {
  readonly #options: ConnectionOptions;
  readonly #unwatch: () => void;
  /** In the order in which they are given up on, all having the same patience. */
  readonly #pending = new Set<Pending>();
  #timer: NodeJS.Timeout | null = null;
  #inbox: Inbox | null = null;
  #pushesAnswer = true;
  #isClosed = false;
  #changed: () => void = () => undefined;
  #inboxIsUp = false;
  #wasUp = false;
  #wasHeard = false;
  /** Counts the breaks of the link. */
  life = 0;

  constructor(options: ConnectionOptions) {
    this.#options = options;
    if (options.isOurs) options.link.own();
    this.#unwatch = options.link.watch({ up: () => this.#up(), down: () => this.#down() });
  }

  /** Settles when the link is ready. @throws Error if that takes longer than `withinMs` */
  async connected(withinMs: number): Promise<void> {
    const { link } = this.#options;
    if (!link.isReady) {
      let failure: unknown;
      link.start().catch((error: unknown) => {
        failure = error;
        this.#changed();
      });
      await this.#until(
        () => link.isReady || failure !== undefined,
        withinMs,
        () => failure,
      );
      if (!link.isReady) throw withoutWords(failure);
    }
    this.#wasUp = true;
  }

  /** Begins to listen; settles when nothing more can be missed. */
  async listen(withinMs: number): Promise<void> {
    const { link, channel, heard, missed } = this.#options;
    this.#inbox = link.listen(channel, (message) => heard(message, this.#pushesAnswer), {
      up: () => {
        const again = this.#wasHeard;
        this.#inboxIsUp = true;
        this.#wasHeard = true;
        this.#changed();
        if (again && !this.#isClosed) missed();
      },
      down: () => {
        this.#inboxIsUp = false;
      },
    });
    await this.#until(
      () => this.#inboxIsUp,
      withinMs,
      () => undefined,
    );
  }

  async run(script: Script, key: string, words: readonly string[], patience?: Patience): Promise<unknown> {
    try {
      return await this.send(["EVALSHA", script.sha, "1", key, ...words], patience);
    } catch (error) {
      if (!/no_?script/i.test(String(error))) throw error;
      return this.send(["EVAL", script.text, "1", key, ...words], patience);
    }
  }

  send(words: string[], patience?: Patience): Promise<unknown> {
    const { link, patienceMs } = this.#options;
    if (this.#isClosed || !link.isReady) return Promise.reject(new Error("redis: not connected"));
    return new Promise((resolve, reject) => {
      const pending: Pending = {
        givenUpAt: performance.now() + patienceMs,
        giveUp: () => {
          patience?.givenUp();
          reject(new Error(`redis: no answer within ${patienceMs} ms`));
        },
      };
      this.#wait(pending);
      const settle = (): boolean => {
        const isInTime = this.#pending.delete(pending);
        if (!isInTime) patience?.late();
        else if (this.#pending.size === 0) this.#timer?.unref();
        return isInTime;
      };
      link.send(words).then(
        (reply) => {
          if (settle()) resolve(reply);
        },
        (error: unknown) => {
          if (settle()) reject(withoutWords(error));
        },
      );
    });
  }

  close(): void {
    this.#isClosed = true;
    this.#unwatch();
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    for (const { giveUp } of this.#pending) giveUp();
    this.#pending.clear();
    this.#inbox?.end();
    if (this.#options.isOurs) this.#options.link.end();
  }

  /** The timer keeps the process alive as long as a call is under way: the connections do not. */
  #wait(pending: Pending): void {
    if (this.#timer === null) this.#timer = setTimeout(() => this.#sweep(), this.#options.patienceMs);
    else if (this.#pending.size === 0) this.#timer.ref();
    this.#pending.add(pending);
  }

  #sweep(): void {
    this.#timer = null;
    const now = performance.now();
    for (const pending of this.#pending) {
      if (pending.givenUpAt > now) {
        this.#timer = setTimeout(() => this.#sweep(), pending.givenUpAt - now);
        return;
      }
      this.#pending.delete(pending);
      pending.giveUp();
    }
  }

  #up(): void {
    this.#changed();
    if (!this.#wasUp || this.#isClosed) return;
    this.#confirm();
    this.#options.missed();
  }

  #down(): void {
    this.life++;
    this.#pushesAnswer = false;
  }

  #confirm(): void {
    const { life } = this;
    const confirmed = (): void => {
      if (life === this.life) this.#pushesAnswer = true;
    };
    // if the inbox is down, what it hears when it is back is of this life, too
    this.#inbox?.confirm().then(confirmed, () => undefined);
  }

  /** Settles when a fact holds that `#changed` tells of. */
  #until(fact: () => boolean, withinMs: number, cause: () => unknown): Promise<void> {
    if (fact()) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#changed = () => undefined;
        reject(new Error(`redis: not reached within ${withinMs} ms`, { cause: withoutWords(cause()) }));
      }, withinMs);
      this.#changed = () => {
        if (!fact()) return;
        clearTimeout(timer);
        this.#changed = () => undefined;
        resolve();
      };
    });
  }
}

/**
 * The error of a client without what it carries of the command: ids and passwords are secrets, and ioredis hangs all words
 * of a command on the error.
 */
function withoutWords(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  const { name, message } = error;
  const { code } = error as NodeJS.ErrnoException;
  return Object.assign(new Error(message), { name }, code === undefined ? {} : { code });
}

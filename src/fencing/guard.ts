/** createFenceGuard(): the comparison of tokens for a resource that this process keeps in its memory. */

import { formatKeys } from "../errors.ts";
import { describeValue } from "../util/duration.ts";
import { validateKey } from "../util/keys.ts";
import { adoptThenable } from "../util/thenable.ts";
import type { OptionRules } from "../util/validate.ts";
import { countRule, functionRule, requireValid, validateOptions } from "../util/validate.ts";
import { StaleLockError } from "./errors.ts";

/** Options of createFenceGuard(). */
export interface FenceGuardOptions {
  /**
   * How many keys the guard remembers. When it forgets the key that was used longest ago, every key that it does not know
   * needs at least the token of that key: it may refuse a holder of a long time, but never accepts an old token. Default
   * 100,000.
   */
  readonly maxKeys?: number;
}

/** Accepts a token of a key only if it has accepted no higher one. For tokens of exclusive locks. */
export interface FenceGuard {
  /**
   * Call it right before a write that is synchronous: nothing may come between. A token may be used often.
   * @throws StaleLockError if a higher token was accepted before; TypeError for a wrong argument
   */
  check(key: string, token: bigint): void;
  /**
   * Calls `write` after check(), when no other run() call for this key is in progress: a write that takes time ends before
   * the next holder's begins. `write` must not wait for another run() of the same key, which waits for it.
   * @throws as check(), and what `write` throws
   */
  run<T>(key: string, token: bigint, write: () => T | PromiseLike<T>): Promise<T>;
}

const RULES: OptionRules<FenceGuardOptions> = { maxKeys: countRule(2 ** 24) };

/**
 * Returns a guard that has seen no token. It must live as long as the data that it guards: a new one accepts every token.
 * @throws TypeError naming the wrong option
 */
export function createFenceGuard(options: FenceGuardOptions = {}): FenceGuard {
  validateOptions("createFenceGuard", options, RULES);
  return new MemoryGuard(options.maxKeys ?? 100_000);
}

class MemoryGuard implements FenceGuard {
  readonly #maxKeys: number;
  /** The highest token of each key; the key that was used last is last. */
  readonly #highest = new Map<string, bigint>();
  /** The highest token of the keys that were forgotten. */
  #floor = 0n;
  /** The end of the last run() call of each key. */
  readonly #runs = new Map<string, Promise<void>>();

  constructor(maxKeys: number) {
    this.#maxKeys = maxKeys;
  }

  check(key: string, token: bigint): void {
    validateToken(key, token);
    if (token < (this.#highest.get(key) ?? this.#floor)) {
      const text = `a later holder of ${formatKeys([key])} has been here: token ${token} is refused`;
      throw new StaleLockError(text, { keys: [key] });
    }
    this.#highest.delete(key);
    this.#highest.set(key, token);
    if (this.#highest.size > this.#maxKeys) this.#forgetOldest();
  }

  async run<T>(key: string, token: bigint, write: () => T | PromiseLike<T>): Promise<T> {
    validateToken(key, token);
    requireValid(write, "write", functionRule);
    const previous = this.#runs.get(key);
    const result = (previous ?? Promise.resolve()).then(() => {
      this.check(key, token);
      return adoptThenable(write());
    });
    const end = result.then(ignore, ignore);
    this.#runs.set(key, end);
    try {
      return await result;
    } finally {
      if (this.#runs.get(key) === end) this.#runs.delete(key);
    }
  }

  #forgetOldest(): void {
    const [key, token] = this.#highest.entries().next().value as [string, bigint];
    this.#highest.delete(key);
    if (token > this.#floor) this.#floor = token;
  }
}

function validateToken(key: unknown, token: unknown): void {
  validateKey(key);
  if (typeof token !== "bigint") throw new TypeError(`token must be a bigint, not ${describeValue(token)}`);
}

function ignore(): void {
  // the caller of run() has the outcome
}

/**
 * The claims that hold one key, by their tokens: whoever holds with a token is found in a few steps however many hold.
 *
 * Runs of tokens of one key do not overlap, except where a client said after a restart that it held with tokens of
 * another's. Two that begin with the same token are both kept, the one that can still be revoked first.
 */

import type { Entry } from "./entry.ts";

export class Holders {
  readonly #byFirst = new Map<number, Entry | Set<Entry>>();
  /** No run is longer. */
  #longest = 1;

  add(entry: Entry): void {
    const there = this.#byFirst.get(entry.token);
    this.#longest = Math.max(this.#longest, entry.tokens);
    if (there === undefined) this.#byFirst.set(entry.token, entry);
    else if (there instanceof Set) there.add(entry);
    else this.#byFirst.set(entry.token, new Set([there, entry]));
  }

  remove(entry: Entry): void {
    const there = this.#byFirst.get(entry.token);
    if (there instanceof Set) {
      there.delete(entry);
      if (there.size === 0) this.#byFirst.delete(entry.token);
    } else if (there === entry) this.#byFirst.delete(entry.token);
  }

  /** It was revoked and keeps its place: others with its token come first from now on. */
  revoked(entry: Entry): void {
    this.remove(entry);
    this.add(entry);
  }

  /** Who holds with this token, which may be any of its run; null: nobody does. */
  find(token: number): Entry | null {
    for (let first = token; first > token - this.#longest; first--) {
      const there = this.#byFirst.get(first);
      if (there === undefined) continue;
      const entry = there instanceof Set ? (there.values().next().value as Entry) : there;
      if (token < first + entry.tokens) return entry;
    }
    return null;
  }
}

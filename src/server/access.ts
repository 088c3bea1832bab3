/**
 * Who may do what: accounts with their credentials and rules. A credential is 256 random bits; the server knows only its
 * SHA-256. Whatever no rule allows is refused.
 */

import { createHash } from "node:crypto";
import { ProtocolError } from "../protocol/hello.ts";
import { neighbourhood } from "./door.ts";
import { Failures } from "./failures.ts";
import { DEFAULT_LIMITS } from "./limits.ts";

/**
 * What a rule may allow below its prefix: to take locks; to see claims, events and figures; to revoke what others hold;
 * to reload and look at the server itself.
 */
export type Right = "acquire" | "inspect" | "force" | "admin";

/** Every right there is. */
export const RIGHTS: readonly Right[] = ["acquire", "inspect", "force", "admin"];

/** Whoever has been let in, by one credential. Its rules may change while it is connected. */
export interface Principal {
  /** The account; "" where the server asks for none. */
  readonly name: string;
  /** false: its credential, or its whole account, has been taken away. */
  readonly valid: boolean;
  /** Is it allowed this for this key? */
  may(right: Right, key: string): boolean;
  /** How long these keys may be held at most, in milliseconds; Infinity: as long as one likes. */
  maxHoldMs(keys: Iterable<string>): number;
}

/** What an account may do with the keys that begin with a prefix. */
export interface Rule {
  /** Literally, byte by byte; "" is every key. One of credentials.ts ends with a separator, so "team-a/" is not "team-ab". */
  readonly prefix: string;
  /** The prefix is one whole key. Default false. */
  readonly whole?: boolean;
  readonly rights: readonly Right[];
  /** How long a claim on such a key may be held, in milliseconds. Default: as long as it is renewed. */
  readonly maxHoldMs?: number;
}

/** One user of a server: a team, a service. */
export interface Account {
  readonly name: string;
  /** SHA-256 of each of its credentials, in hexadecimal: one, or two while the credential is being changed. */
  readonly hashes: readonly string[];
  readonly rules: readonly Rule[];
}

/** What everybody is told who is not let in, whatever the reason. */
export const NO_CREDENTIAL = "no valid credential was given";

/** Everything is allowed: whoever a server without credentials serves. */
export const ANYBODY: Principal = {
  name: "",
  valid: true,
  may: () => true,
  maxHoldMs: () => Number.POSITIVE_INFINITY,
};

/** Somebody whose account is known, but not whether it still exists: it is allowed nothing. */
export function stranger(name: string): Principal {
  return { name, valid: false, may: () => false, maxHoldMs: () => Number.POSITIVE_INFINITY };
}

/**
 * Does what was placed by `by` answer to this principal? What was placed while the server asked for no credentials is its
 * who knows the id, which is secret; a server that asks for none answers whoever knows the id, too.
 */
export function answersTo(by: string, principal: Principal): boolean {
  return by === principal.name || by === "" || principal === ANYBODY;
}

/** Decides who is let in. */
export interface Access {
  /** false: everybody is. */
  readonly required: boolean;
  /** How often somebody was not let in, since the start. */
  readonly failures: number;
  /**
   * Whom a credential stands for.
   * @param address from where it came; "" for this machine
   * @throws ProtocolError "AUTH", always the same one, if it stands for nobody; "LIMIT" instead of it for those of whom
   * there were too many in a minute
   */
  authenticate(credential: string | null, address: string): Principal;
  /** Other accounts from now on. A principal whose credential stands in them stays valid and has the new rules. */
  replace(accounts: readonly Account[]): void;
  /** Calls back after each replace(). */
  attend(changed: () => void): Disposable;
}

/** For a server that asks nobody who they are. */
export const OPEN: Access = {
  required: false,
  failures: 0,
  authenticate: () => ANYBODY,
  replace: () => undefined,
  attend: () => ({ [Symbol.dispose]: () => undefined }),
};

/** How createAccess() is to count those who fail. */
export interface AccessOptions {
  /** Wrong credentials in a minute from one address. Default: that of DEFAULT_LIMITS. */
  readonly failuresPerMinute?: number;
  /** Monotonic milliseconds; for tests. */
  readonly now?: () => number;
}

/** Lets in who shows a credential of these accounts. */
export function createAccess(accounts: readonly Account[], options: AccessOptions = {}): Access {
  const { failuresPerMinute = DEFAULT_LIMITS.failuresPerMinute, now = () => performance.now() } = options;
  const known = new Map<string, Member>();
  const failures = new Failures(failuresPerMinute, now);
  const listeners = new Set<() => void>();

  function replace(next: readonly Account[]): void {
    const found = new Map(next.flatMap((account) => account.hashes.map((hash) => [hash, account] as const)));
    for (const [hash, member] of known) {
      const account = found.get(hash);
      // a credential that has changed its account is not the one that was let in
      if (account?.name === member.name) continue;
      member.valid = false;
      known.delete(hash);
    }
    for (const [hash, account] of found) {
      const member = known.get(hash);
      if (member === undefined) known.set(hash, new Member(account));
      else member.rules = account.rules;
    }
    for (const listener of listeners) listener();
  }
  replace(accounts);

  return {
    required: true,
    get failures() {
      return failures.total;
    },
    authenticate(credential, address) {
      // A look-up by the hash, not a comparison one after another: how long it takes tells at most something of the
      // hash of what was sent. To use that, one would need other credentials whose hashes begin as a stored one does,
      // and would learn of that hash, from which 256 random bits cannot be found.
      const member = credential === null ? undefined : known.get(hashOf(credential));
      if (member !== undefined) return member;
      if (failures.add(neighbourhood(address))) throw new ProtocolError("AUTH", NO_CREDENTIAL);
      throw new ProtocolError("LIMIT", "too many wrong credentials from this address: wait a minute");
    },
    replace,
    attend(changed) {
      const listener = (): void => changed();
      listeners.add(listener);
      return { [Symbol.dispose]: () => void listeners.delete(listener) };
    },
  };
}

/**
 * What is stored of a credential. A fast hash is right here: slow ones make guessing words and names dear, and nobody
 * can try even a part of 256 random bits; but every hello would pay for it.
 */
export function hashOf(credential: string): string {
  return createHash("sha256").update(credential).digest("hex");
}

function covers({ prefix, whole }: Rule, key: string): boolean {
  return whole ? key === prefix : key.startsWith(prefix);
}

class Member implements Principal {
  readonly name: string;
  valid = true;
  rules: readonly Rule[];

  constructor({ name, rules }: Account) {
    this.name = name;
    this.rules = rules;
  }

  may(right: Right, key: string): boolean {
    if (!this.valid) return false;
    for (const rule of this.rules) {
      if (rule.rights.includes(right) && covers(rule, key)) return true;
    }
    return false;
  }

  maxHoldMs(keys: Iterable<string>): number {
    let least = Number.POSITIVE_INFINITY;
    for (const key of keys) {
      for (const rule of this.rules) {
        const { maxHoldMs = least } = rule;
        if (maxHoldMs < least && covers(rule, key)) least = maxHoldMs;
      }
    }
    return least;
  }
}

/**
 * Who may do what: accounts with their credentials and rules. A credential is 256 random bits; the server knows only its
 * SHA-256. Whatever no rule allows is refused.
 */

import { createHash } from "node:crypto";
import { ProtocolError } from "../../protocol/handshake.ts";
import { DEFAULT_LIMITS } from "../config/limits.ts";
import { clientNetwork } from "../connection/connection-limiter.ts";
import { FailureLimiter } from "./failure-limiter.ts";

/**
 * What a rule may allow below its prefix: to take locks; to see claims, events and figures; to revoke what others hold;
 * to reload and look at the server itself.
 */
export type Permission = "acquire" | "inspect" | "force" | "admin";

/** Every right there is. */
export const PERMISSIONS: readonly Permission[] = ["acquire", "inspect", "force", "admin"];

/** Whoever has been let in, by one credential. Its rules may change while it is connected. */
export interface Principal {
  /** The account; "" where the server asks for none. */
  readonly name: string;
  /** false: its credential, or its whole account, has been taken away. */
  readonly isValid: boolean;
  /** Is it allowed this for this key? */
  can(permission: Permission, key: string): boolean;
  /** How long these keys may be held at most, in milliseconds; Infinity: as long as one likes. */
  maxHoldMs(keys: Iterable<string>): number;
}

/** What an account may do with the keys that begin with a prefix. */
export interface Rule {
  /** Literally, byte by byte; "" is every key. One of accounts-file.ts ends with a separator, so "team-a/" is not "team-ab". */
  readonly prefix: string;
  /** The prefix is one whole key. Default false. */
  readonly isExactKey?: boolean;
  readonly permissions: readonly Permission[];
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
export const AUTH_FAILED = "no valid credential was given";

/** Everything is allowed: whoever a server without credentials serves. */
export const ANONYMOUS: Principal = {
  name: "",
  isValid: true,
  can: () => true,
  maxHoldMs: () => Number.POSITIVE_INFINITY,
};

/** Somebody whose account is known, but not whether it still exists: it is allowed nothing. */
export function deniedPrincipal(name: string): Principal {
  return { name, isValid: false, can: () => false, maxHoldMs: () => Number.POSITIVE_INFINITY };
}

/**
 * Does what was placed by `account` answer to this principal? What was placed while the server asked for no credentials is its
 * who knows the id, which is secret; a server that asks for none answers whoever knows the id, too.
 */
export function ownsClaim(account: string, principal: Principal): boolean {
  return account === principal.name || account === "" || principal === ANONYMOUS;
}

/** Decides who is let in. */
export interface AccessControl {
  /** false: everybody is. */
  readonly isRequired: boolean;
  /** How often somebody was not let in, since the start. */
  readonly failureCount: number;
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
  onChange(listener: () => void): Disposable;
}

/** For a server that asks nobody who they are. */
export const ALLOW_ALL: AccessControl = {
  isRequired: false,
  failureCount: 0,
  authenticate: () => ANONYMOUS,
  replace: () => undefined,
  onChange: () => ({ [Symbol.dispose]: () => undefined }),
};

/** How createAccessControl() is to count those who fail. */
export interface AccessControlOptions {
  /** Wrong credentials in a minute from one address. Default: that of DEFAULT_LIMITS. */
  readonly failuresPerMinute?: number;
  /** Monotonic milliseconds; for tests. */
  readonly now?: () => number;
}

/** Lets in who shows a credential of these accounts. */
export function createAccessControl(accounts: readonly Account[], options: AccessControlOptions = {}): AccessControl {
  const { failuresPerMinute = DEFAULT_LIMITS.failuresPerMinute, now = () => performance.now() } = options;
  const principals = new Map<string, AccountPrincipal>();
  const failureLimiter = new FailureLimiter(failuresPerMinute, now);
  const listeners = new Set<() => void>();

  function replace(nextAccounts: readonly Account[]): void {
    const accountsByHash = new Map(
      nextAccounts.flatMap((account) => account.hashes.map((hash) => [hash, account] as const)),
    );
    for (const [hash, member] of principals) {
      const account = accountsByHash.get(hash);
      // a credential that has changed its account is not the one that was let in
      if (account?.name === member.name) continue;
      member.isValid = false;
      principals.delete(hash);
    }
    for (const [hash, account] of accountsByHash) {
      const member = principals.get(hash);
      if (member === undefined) principals.set(hash, new AccountPrincipal(account));
      else member.rules = account.rules;
    }
    for (const listener of listeners) listener();
  }
  replace(accounts);

  return {
    isRequired: true,
    get failureCount() {
      return failureLimiter.total;
    },
    authenticate(credential, address) {
      // A look-up by the hash, not a comparison one after another: how long it takes tells at most something of the
      // hash of what was sent. To use that, one would need other credentials whose hashes begin as a stored one does,
      // and would learn of that hash, from which 256 random bits cannot be found.
      const member = credential === null ? undefined : principals.get(hashCredential(credential));
      if (member !== undefined) return member;
      if (failureLimiter.record(clientNetwork(address))) throw new ProtocolError("AUTH", AUTH_FAILED);
      throw new ProtocolError("LIMIT", "too many wrong credentials from this address: wait a minute");
    },
    replace,
    onChange(changed) {
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
export function hashCredential(credential: string): string {
  return createHash("sha256").update(credential).digest("hex");
}

function matchesKey({ prefix, isExactKey }: Rule, key: string): boolean {
  return isExactKey ? key === prefix : key.startsWith(prefix);
}

class AccountPrincipal implements Principal {
  readonly name: string;
  isValid = true;
  rules: readonly Rule[];

  constructor({ name, rules }: Account) {
    this.name = name;
    this.rules = rules;
  }

  can(permission: Permission, key: string): boolean {
    if (!this.isValid) return false;
    for (const rule of this.rules) {
      if (rule.permissions.includes(permission) && matchesKey(rule, key)) return true;
    }
    return false;
  }

  maxHoldMs(keys: Iterable<string>): number {
    let shortest = Number.POSITIVE_INFINITY;
    for (const key of keys) {
      for (const rule of this.rules) {
        const { maxHoldMs = shortest } = rule;
        if (maxHoldMs < shortest && matchesKey(rule, key)) shortest = maxHoldMs;
      }
    }
    return shortest;
  }
}

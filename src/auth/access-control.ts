/**
 * Access control: accounts with their credentials and rules. A credential is 256 random bits, of which the server knows
 * only the SHA-256. Everything that no rule allows is refused.
 */

import { createHash } from "node:crypto";
import { ProtocolError } from "../protocol/handshake.ts";
import { DEFAULT_LIMITS } from "../server/limits.ts";
import { clientNetwork } from "../util/client-network.ts";
import { FailureLimiter } from "./failure-limiter.ts";

/**
 * What a rule may allow below its prefix: to acquire locks; to see claims, events and metrics; to revoke locks of
 * others; to reload and inspect the server itself.
 */
export type Right = "acquire" | "inspect" | "revoke" | "admin";

/** All rights. */
export const RIGHTS: readonly Right[] = ["acquire", "inspect", "revoke", "admin"];

/** A client authenticated by one credential. Its rules may change while it is connected. */
export interface Principal {
  /** The account; "" on a server without credentials. */
  readonly name: string;
  /** false: its credential, or its account, was removed. */
  readonly isValid: boolean;
  /** Is the right granted for this key? */
  can(right: Right, key: string): boolean;
  /** The longest time that these keys may be held, in milliseconds; Infinity: no limit. */
  maxHoldMs(keys: Iterable<string>): number;
}

/** What an account may do with the keys that begin with a prefix. */
export interface Rule {
  /**
   * A literal prefix; "" matches every key. In an accounts file it ends with a separator, so that "team-a/" does not
   * match "team-ab".
   */
  readonly prefix: string;
  /** The prefix is one complete key. Default false. */
  readonly isExactKey?: boolean;
  readonly rights: readonly Right[];
  /** The longest time that a claim on such a key may be held, in milliseconds. Default: as long as it is renewed. */
  readonly maxHoldMs?: number;
}

/** One user of a server: a team or a service. */
export interface Account {
  readonly name: string;
  /** SHA-256 of each of its credentials, in hexadecimal: one, or two while the credential is being replaced. */
  readonly hashes: readonly string[];
  readonly rules: readonly Rule[];
}

/** The message for every failed authentication, whatever the cause. */
export const AUTH_FAILED = "no valid credential was given";

/** The principal on a server without credentials: everything is allowed. */
export const ANONYMOUS: Principal = {
  name: "",
  isValid: true,
  can: () => true,
  maxHoldMs: () => Number.POSITIVE_INFINITY,
};

/** A principal whose account is known, but not whether it still exists: nothing is allowed. */
export function deniedPrincipal(name: string): Principal {
  return { name, isValid: false, can: () => false, maxHoldMs: () => Number.POSITIVE_INFINITY };
}

/**
 * True if the principal may use a claim created by `account`. A claim created while the server required no credentials
 * belongs to every client that knows its id, which is secret; a server without credentials accepts every such client,
 * too.
 */
export function ownsClaim(account: string, principal: Principal): boolean {
  return account === principal.name || account === "" || principal === ANONYMOUS;
}

/** Authenticates clients. */
export interface AccessControl {
  /** false: the server requires no credentials. */
  readonly isRequired: boolean;
  /** Failed authentication attempts since the start. */
  readonly failureCount: number;
  /**
   * The principal of a credential.
   * @param address the client's address; "" for this machine
   * @throws ProtocolError "AUTH", always with the same message, if the credential is not valid; "LIMIT" instead after
   * too many failures in a minute
   */
  authenticate(credential: string | null, address: string): Principal;
  /**
   * The principal of an account, whichever of its credentials are in use: valid as long as the account exists. For
   * clients that have been authenticated already.
   */
  forAccount(name: string): Principal;
  /** Replaces the accounts. A principal whose credential is among the new ones stays valid and gets the new rules. */
  replace(accounts: readonly Account[]): void;
  /** Calls the listener after each replace(). */
  onChange(listener: () => void): Disposable;
}

/** For a server without credentials. */
export const ALLOW_ALL: AccessControl = {
  isRequired: false,
  failureCount: 0,
  authenticate: () => ANONYMOUS,
  forAccount: () => ANONYMOUS,
  replace: () => undefined,
  onChange: () => ({ [Symbol.dispose]: () => undefined }),
};

/** How createAccessControl() counts failures. */
export interface AccessControlOptions {
  /** Wrong credentials in a minute from one address. Default: that of DEFAULT_LIMITS. */
  readonly failuresPerMinute?: number;
  /** Monotonic milliseconds; for tests. */
  readonly now?: () => number;
}

/** Authenticates clients by the credentials of these accounts. */
export function createAccessControl(accounts: readonly Account[], options: AccessControlOptions = {}): AccessControl {
  const { failuresPerMinute = DEFAULT_LIMITS.failuresPerMinute, now = () => performance.now() } = options;
  const principals = new Map<string, AccountPrincipal>();
  /** By account. */
  const accountPrincipals = new Map<string, AccountPrincipal>();
  let currentAccounts: readonly Account[] = [];
  const failureLimiter = new FailureLimiter(failuresPerMinute, now);
  const listeners = new Set<() => void>();

  function replace(nextAccounts: readonly Account[]): void {
    const accountsByHash = new Map(
      nextAccounts.flatMap((account) => account.hashes.map((hash) => [hash, account] as const)),
    );
    for (const [hash, principal] of principals) {
      const account = accountsByHash.get(hash);
      // a credential that moved to another account is not the one that was authenticated
      if (account?.name === principal.name) continue;
      principal.isValid = false;
      principals.delete(hash);
    }
    for (const [hash, account] of accountsByHash) {
      const principal = principals.get(hash);
      if (principal === undefined) principals.set(hash, new AccountPrincipal(account));
      else principal.rules = account.rules;
    }
    currentAccounts = nextAccounts;
    for (const [name, principal] of accountPrincipals) {
      const account = findAccount(name);
      if (account !== undefined) principal.rules = account.rules;
      else {
        principal.isValid = false;
        accountPrincipals.delete(name);
      }
    }
    for (const listener of listeners) listener();
  }
  const findAccount = (name: string): Account | undefined => currentAccounts.find((account) => account.name === name);
  replace(accounts);

  return {
    isRequired: true,
    get failureCount() {
      return failureLimiter.total;
    },
    authenticate(credential, address) {
      // A lookup by hash instead of a constant-time comparison: its duration reveals at most part of the hash of what
      // was sent. An attacker would need other credentials whose hashes begin like a stored one, and would learn
      // something about that hash, which does not lead to 256 random bits.
      const principal = credential === null ? undefined : principals.get(hashCredential(credential));
      if (principal !== undefined) return principal;
      if (failureLimiter.record(clientNetwork(address))) throw new ProtocolError("AUTH", AUTH_FAILED);
      throw new ProtocolError("LIMIT", "too many wrong credentials from this address: wait a minute");
    },
    forAccount(name) {
      const existing = accountPrincipals.get(name);
      if (existing !== undefined) return existing;
      const account = findAccount(name);
      if (account === undefined) return deniedPrincipal(name);
      const principal = new AccountPrincipal(account);
      accountPrincipals.set(name, principal);
      return principal;
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
 * The stored form of a credential. A fast hash is right here: slow ones make guessing passwords expensive, but 256
 * random bits cannot be guessed, and every handshake would pay for it.
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

  can(right: Right, key: string): boolean {
    if (!this.isValid) return false;
    for (const rule of this.rules) {
      if (rule.rights.includes(right) && matchesKey(rule, key)) return true;
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

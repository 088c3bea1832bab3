/**
 * Who looks at the pages of the dashboard. A browser shows a start token or the credential of an account once, and then
 * has a session: a cookie that only it sends, and a secret that its pages send with each change.
 *
 *   start token   created -> used | expired (START_TOKEN_MS)
 *   session       open -> ended by its viewer | expired (SESSION_MS) | its account's credential was removed
 *
 * Invariants: a start token opens at most one session. Neither tokens, cookies nor secrets are kept, only their hashes.
 * The cookie alone is worth nothing: browsers send cookies to every port of a host, so another program of this machine
 * could learn it, but not the secret, which the pages keep for their own origin.
 */

import { createHash, randomBytes } from "node:crypto";
import type { Principal } from "../../auth/access-control.ts";
import type { Clock } from "../../util/clock.ts";
import { randomId } from "../../util/ids.ts";

/** How long a link of `holdfast dashboard` can be opened. */
export const START_TOKEN_MS = 60_000;
export const SESSION_MS: number = 12 * 3_600_000;
/** Of one account: beyond it its oldest session ends. */
const MAX_SESSIONS_PER_ACCOUNT = 100;
/** Beyond it the oldest link is invalid. */
const MAX_START_TOKENS = 100;

/** A viewer who has signed in. */
export interface Viewer {
  readonly principal: Principal;
  /** Does this request have the secret of the session? */
  hasSecret(secret: string | undefined): boolean;
}

/** What a browser gets, once. */
export interface NewSession {
  readonly cookie: string;
  readonly secret: string;
}

interface OpenSession {
  readonly principal: Principal;
  readonly secretHash: string;
  readonly expiresAt: number;
}

export class ViewerSessions {
  readonly #clock: Clock;
  /** By the hash of the token: when it expires. */
  readonly #startTokens = new Map<string, number>();
  /** By the hash of the cookie. */
  readonly #sessions = new Map<string, OpenSession>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  createStartToken(): string {
    // printed in a link, unlike ids and other secrets
    const token = randomBytes(32).toString("base64url");
    this.#startTokens.set(hash(token), this.#clock.now() + START_TOKEN_MS);
    dropOldest(this.#startTokens, MAX_START_TOKENS);
    return token;
  }

  /** False: there is no such token, it has expired, or a session was opened with it before. */
  useStartToken(token: string): boolean {
    const key = hash(token);
    const expiresAt = this.#startTokens.get(key);
    this.#startTokens.delete(key);
    return expiresAt !== undefined && this.#clock.now() < expiresAt;
  }

  open(principal: Principal): NewSession {
    const [cookie, secret] = [randomSecret(), randomSecret()];
    const expiresAt = this.#clock.now() + SESSION_MS;
    this.#dropExpired();
    this.#sessions.set(hash(cookie), { principal, secretHash: hash(secret), expiresAt });
    const own = [...this.#sessions].filter(([, session]) => session.principal.name === principal.name);
    for (const [key] of own.slice(0, -MAX_SESSIONS_PER_ACCOUNT)) this.#sessions.delete(key);
    return { cookie, secret };
  }

  /** The viewer with this cookie; null: there is no such session any more. */
  find(cookie: string): Viewer | null {
    const key = hash(cookie);
    const session = this.#sessions.get(key);
    if (session === undefined) return null;
    const { principal, secretHash, expiresAt } = session;
    if (this.#clock.now() < expiresAt && principal.isValid) {
      return { principal, hasSecret: (secret) => secret !== undefined && hash(secret) === secretHash };
    }
    this.#sessions.delete(key);
    return null;
  }

  #dropExpired(): void {
    const now = this.#clock.now();
    for (const [key, { expiresAt, principal }] of this.#sessions)
      if (now >= expiresAt || !principal.isValid) this.#sessions.delete(key);
  }

  end(cookie: string): void {
    this.#sessions.delete(hash(cookie));
  }
}

/** 260 random bits. */
function randomSecret(): string {
  return `${randomId()}${randomId()}`;
}

/** Hashes are compared and looked up, so that the time of an answer says nothing about a secret. */
function hash(secret: string): string {
  return createHash("sha256").update(secret).digest("hex");
}

function dropOldest(map: Map<string, unknown>, max: number): void {
  for (const key of map.keys()) {
    if (map.size <= max) return;
    map.delete(key);
  }
}

/**
 * The verbs on the tables of SQLite. Each runs inside a write transaction, which excludes all other writers of the
 * database (it takes the place of the bucket's row lock); the `peek` functions run inside a read transaction.
 *
 * Life of a row: absent -> waiting (token 0) -> held -> [detached | revoked] -> absent.
 */

import { fits } from "../../../lock-table/admission.ts";
import type { ClaimRow, ReleaseReply, ReleaseRow, RevokeRow } from "../dialect.ts";
import type { SqliteRows, StoredClaim } from "./rows.ts";
import { toRemainingMs } from "./rows.ts";

/** A floor further ahead of the clock is refused: it would use up the tokens of its bucket (microseconds). */
const MAX_FLOOR_LEAD = 86_400_000_000;
/** The shortest life of a tombstone, in microseconds: the call that it refuses may have been held up for long. */
const MIN_TOMBSTONE_LIFE = 60_000_000;
/** Rows of a queue read at once. */
const QUEUE_PAGE_SIZE = 32;

/** What a waiting claim was told, so that it can be told so again while nothing has changed. Times are microseconds. */
export interface Wait {
  readonly expires: number;
  readonly ttl: number;
  /** When the first of the admitted claims ahead expires. */
  readonly firstExpires: number;
}

/** The reply to a claim or a renewal. */
export interface ClaimReply {
  readonly reply: string;
  /** Set if the claim waits. */
  readonly wait?: Wait;
}

/** What a write transaction granted to claims of this process that are not those of the call. */
export type Pushes = string[];

/** The front of a queue after it was walked. */
interface Front {
  readonly admitted: ReadonlyMap<string, StoredClaim>;
  readonly usedPermits: number;
  /** Whether every claim of the queue is admitted. */
  readonly isWhole: boolean;
  /** When the first of the admitted claims expires. */
  readonly firstExpires: number;
}

export class Routines {
  readonly #rows: SqliteRows;
  /** Identifies this process's claims. */
  readonly #inbox: string;

  constructor(rows: SqliteRows, inbox: string) {
    this.#rows = rows;
    this.#inbox = inbox;
  }

  claim(row: ClaimRow, pushes: Pushes): ClaimReply {
    const { now, lastToken } = this.#rows.readBucket(row.bucket);
    if (row.floor > now + MAX_FLOOR_LEAD && row.floor > lastToken + 1n) return { reply: "f" };
    const reason = this.#rows.readTombstone(row.id, now);
    if (reason !== null) return { reply: `n ${reason}` };
    if (this.#rows.readClaim(row.id) !== null) return this.renew([row], pushes)[0] as ClaimReply;
    const front = this.#walk(row.key, now, new Set(), pushes);
    const isAdmitted = front.isWhole && fits(front.usedPermits, row);
    if (!isAdmitted && !row.wait) return { reply: "n" };
    const token = isAdmitted ? this.#issueTokens(row, now) : 0n;
    this.#rows.insertClaim(row, token, this.#inbox, now);
    const ttl = row.ttlMs * 1_000;
    const stored = { ...row, ttl, expires: now + ttl, token };
    return isAdmitted ? formatHeld(stored, now) : formatWaiting(stored, front, now);
  }

  /** In the order of the rows. */
  renew(rows: readonly ClaimRow[], pushes: Pushes): ClaimReply[] {
    const now = this.#rows.readNow();
    const ownIds = new Set(rows.map(({ id }) => id));
    const renewed = rows.map((row) => this.#extend(row.id, now));
    const fronts = new Map<string, Front>();
    for (const { key } of rows) if (!fronts.has(key)) fronts.set(key, this.#walk(key, now, ownIds, pushes));
    return renewed.map((outcome) => {
      if (typeof outcome === "string") return { reply: outcome };
      const front = fronts.get(outcome.key) as Front;
      const admitted = front.admitted.get(outcome.id);
      return admitted === undefined ? formatWaiting(outcome, front, now) : formatHeld(admitted, now);
    });
  }

  release(rows: readonly ReleaseRow[]): ReleaseReply {
    const now = this.#rows.readNow();
    const touchedKeys = new Set<string>();
    const flags = rows.map(({ id, key, ttlMs, hasUnansweredClaim }) => {
      const stored = this.#rows.readClaim(id);
      if (stored !== null) {
        this.#rows.deleteClaim(id);
        touchedKeys.add(key);
      }
      const isRevoked = stored?.state === "r";
      if (hasUnansweredClaim || (stored !== null && stored.state !== "o"))
        this.#bury(id, isRevoked ? "revoked" : "released", ttlMs * 1_000, now);
      return stored !== null && stored.expires > now && !isRevoked;
    });
    const pushes: Pushes = [];
    for (const key of touchedKeys) this.#walk(key, now, new Set(), pushes);
    return { flags, pushes };
  }

  detach(rows: readonly ClaimRow[], leftMs: number | null): boolean[] {
    const now = this.#rows.readNow();
    return rows.map(({ id }) => {
      const stored = this.#rows.readClaim(id);
      if (stored === null || stored.expires <= now || stored.token === 0n || stored.state === "r") return false;
      this.#rows.setState(id, "d", now + Math.min(stored.ttl, (leftMs ?? Number.POSITIVE_INFINITY) * 1_000));
      return true;
    });
  }

  revoke(rows: readonly RevokeRow[], pushes: Pushes): boolean[] {
    const now = this.#rows.readNow();
    return rows.map(({ key, token, now: isRemoval }) => {
      const holder = this.#findHolder(key, token, now);
      if (holder === null || (holder.state === "r" && !isRemoval)) return false;
      if (isRemoval) {
        this.#rows.deleteClaim(holder.id);
        this.#bury(holder.id, "revoked", holder.ttl, now);
        this.#walk(key, now, new Set(), pushes);
      } else this.#rows.setState(holder.id, "r", holder.expires);
      if (holder.inbox === this.#inbox) pushes.push(holder.id);
      return true;
    });
  }

  /**
   * The answer to a renewal that needs no write; null: it needs one. A lease that was restarted within the last quarter of
   * its ttl is long enough, and nothing at the front of the queue must be due to change.
   */
  peek(id: string, now: number): ClaimReply | null {
    const stored = this.#rows.readClaim(id);
    if (stored === null) return { reply: formatNone(this.#rows.readTombstone(id, now)) };
    if (stored.expires <= now) return null;
    if (stored.state === "r") return { reply: "n revoked" };
    if (!isFresh(stored, now)) return null;
    if (stored.token > 0n) return formatHeld(stored, now);
    const front = this.#peekFront(stored.key, now);
    return front === null || front.admitted.has(id) ? null : formatWaiting(stored, front, now);
  }

  /** Restarts the lease of a claim. Returns the reply if it is none. */
  #extend(id: string, now: number): StoredClaim | string {
    const stored = this.#rows.readClaim(id);
    if (stored === null) return formatNone(this.#rows.readTombstone(id, now));
    if (stored.expires <= now) {
      this.#expire(stored, now);
      return stored.state === "r" ? "n revoked" : "n expired";
    }
    if (stored.state === "r") return "n revoked";
    stored.expires = now + stored.ttl;
    this.#rows.extendLease(id, stored.expires, this.#inbox);
    return stored;
  }

  /**
   * Deletes the expired claims at the front of a queue and grants those that are admitted, in order of arrival; stops at the
   * first that does not fit, behind which everything waits (I1). Costs O(admitted + expired). `ownIds`: claims that the
   * caller answers itself.
   */
  #walk(key: string, now: number, ownIds: ReadonlySet<string>, pushes: Pushes): Front {
    const admitted = new Map<string, StoredClaim>();
    let usedPermits = 0;
    let firstExpires = Number.POSITIVE_INFINITY;
    for (const stored of this.#queue(key)) {
      if (stored.expires <= now) {
        this.#expire(stored, now);
        continue;
      }
      if (!fits(usedPermits, stored)) return { admitted, usedPermits, isWhole: false, firstExpires };
      this.#capLease(stored, now);
      if (stored.token === 0n) {
        stored.token = this.#issueTokens(stored, now);
        this.#rows.grantClaim(stored.id, stored.token, now);
        if (stored.inbox === this.#inbox && !ownIds.has(stored.id)) pushes.push(formatPush(stored, now));
      }
      usedPermits += stored.permits;
      firstExpires = Math.min(firstExpires, stored.expires);
      admitted.set(stored.id, stored);
    }
    return { admitted, usedPermits, isWhole: true, firstExpires };
  }

  /** Like #walk(), but null if a walk would change something. */
  #peekFront(key: string, now: number): Front | null {
    const admitted = new Map<string, StoredClaim>();
    let usedPermits = 0;
    let firstExpires = Number.POSITIVE_INFINITY;
    for (const stored of this.#queue(key)) {
      if (stored.expires <= now || stored.expires > now + stored.ttl) return null;
      if (!fits(usedPermits, stored)) return { admitted, usedPermits, isWhole: false, firstExpires };
      if (stored.token === 0n) return null;
      usedPermits += stored.permits;
      firstExpires = Math.min(firstExpires, stored.expires);
      admitted.set(stored.id, stored);
    }
    return { admitted, usedPermits, isWhole: true, firstExpires };
  }

  *#queue(key: string): Generator<StoredClaim, void> {
    let arrival: number | bigint = 0;
    for (;;) {
      const page = this.#rows.readQueue(key, arrival, QUEUE_PAGE_SIZE);
      yield* page;
      const last = page.at(-1);
      if (last === undefined || page.length < QUEUE_PAGE_SIZE) return;
      arrival = last.arrival;
    }
  }

  #findHolder(key: string, token: bigint, now: number): StoredClaim | null {
    for (const stored of this.#queue(key)) {
      if (stored.token === 0n) return null; // what waits is behind all that is held
      const isInRange = token >= stored.token && token < stored.token + BigInt(stored.tokenCount);
      if (isInRange && stored.expires > now) return stored;
    }
    return null;
  }

  #expire({ id, state, ttl }: StoredClaim, now: number): void {
    this.#rows.deleteClaim(id);
    // another process may ask how it ended
    if (state !== "o") this.#bury(id, state === "r" ? "revoked" : "expired", ttl, now);
  }

  /** After the clock has stepped back, the lease of a dead holder would last longer by that step. */
  #capLease(stored: StoredClaim, now: number): void {
    if (stored.expires <= now + stored.ttl) return;
    stored.expires = now + stored.ttl;
    this.#rows.extendLease(stored.id, stored.expires, stored.inbox);
  }

  #bury(id: string, reason: "released" | "expired" | "revoked", ttl: number, now: number): void {
    this.#rows.writeTombstone(id, reason, now + Math.max(ttl, MIN_TOMBSTONE_LIFE), now);
  }

  /** The first token of a grant, higher than all that were granted before in this bucket (I2). */
  #issueTokens(claim: { readonly bucket: number; readonly floor: bigint; readonly tokenCount: number }, now: number) {
    const { lastToken } = this.#rows.readBucket(claim.bucket);
    const token = [lastToken + 1n, claim.floor, BigInt(now)].reduce((high, next) => (next > high ? next : high));
    this.#rows.writeLastToken(claim.bucket, token + BigInt(claim.tokenCount) - 1n);
    return token;
  }
}

/** Was the lease restarted within the last quarter of its ttl? A clock that stepped back makes it look younger than new. */
export function isFresh({ expires, ttl }: { readonly expires: number; readonly ttl: number }, now: number): boolean {
  return expires - now > 0.75 * ttl && expires - now <= ttl;
}

export function formatWaitReply({ expires, ttl, firstExpires }: Wait, now: number): string {
  const remainingMs = toRemainingMs(expires, ttl, now);
  const recheckMs = Math.max(Math.ceil((Math.min(expires, firstExpires) - now) / 1_000), 1);
  return `w ${remainingMs} ${recheckMs} ${Math.floor(now / 1_000)}`;
}

type Lease = Pick<StoredClaim, "expires" | "ttl">;

function formatWaiting({ expires, ttl }: Lease, { firstExpires }: Front, now: number): ClaimReply {
  const wait = { expires, ttl, firstExpires };
  return { reply: formatWaitReply(wait, now), wait };
}

function formatHeld(claim: Lease & Pick<StoredClaim, "token" | "tokenCount">, now: number): ClaimReply {
  const { token, tokenCount, expires, ttl } = claim;
  return { reply: `h ${token} ${tokenCount} ${toRemainingMs(expires, ttl, now)} ${Math.floor(now / 1_000)}` };
}

function formatPush({ id, token, tokenCount, expires, ttl }: StoredClaim, now: number): string {
  return `${id} ${token} ${tokenCount} ${toRemainingMs(expires, ttl, now)}`;
}

function formatNone(reason: string | null): string {
  return reason === null ? "n" : `n ${reason}`;
}

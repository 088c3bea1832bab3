/**
 * The verbs on the tables of SQLite. Each runs inside a write transaction, which excludes all other writers of the
 * database (it takes the place of the bucket's row lock); the `peek` functions run inside a read transaction.
 *
 * Life of a row: absent -> waiting (token 0) -> held -> [detached | revoked] -> absent.
 */

import { fits } from "../../../lock-table/admission.ts";
import { acceptsFloor } from "../../../lock-table/token-rule.ts";
import { ALL_PERMITS } from "../../../spi/driver.ts";
import type { ClaimRow, ReleaseReply, ReleaseRow, RestoreRow, RevokeRow } from "../dialect.ts";
import type { IdentityCheck } from "./identity.ts";
import type { SqliteRows, StoredClaim, Totals } from "./rows.ts";
import { toRemainingMs } from "./rows.ts";

/** The shortest life of a tombstone, in microseconds: the call that it refuses may have been held up for long. */
const MIN_TOMBSTONE_LIFE = 60_000_000;
/** Expired tombstones that one claim deletes: some milliseconds. */
const PURGE_SIZE = 500;
/** Rows of a queue read at once. */
const QUEUE_PAGE_SIZE = 32;

/** What a waiting claim was told, so that it can be told so again while nothing has changed. Times are microseconds. */
export interface Wait {
  readonly expires: number;
  readonly ttl: number;
  /** No admitted claim ahead expires before. */
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
  /** What the walk granted. */
  readonly granted: ReadonlyMap<string, StoredClaim>;
  readonly usedPermits: number;
  /** Whether every claim of the queue is admitted. */
  readonly isWhole: boolean;
  /** No admitted claim expires before. */
  readonly firstExpires: number;
}

/** Of a key without claims. */
const EMPTY_FRONT: Front = {
  granted: new Map(),
  usedPermits: 0,
  isWhole: true,
  firstExpires: Number.POSITIVE_INFINITY,
};

export class Routines {
  readonly #rows: SqliteRows;
  /** Identifies this process's claims. */
  readonly #inbox: string;
  /** null: guardDataLoss is off. */
  readonly #identity: IdentityCheck | null;

  constructor(rows: SqliteRows, inbox: string, identity: IdentityCheck | null) {
    this.#rows = rows;
    this.#inbox = inbox;
    this.#identity = identity;
  }

  /** How long a grace period still lasts, in milliseconds; 0: none is running. */
  checkDataLoss(): number {
    const now = this.#rows.readNow();
    return Math.ceil(Math.max(this.#checkIdentity(now) - now, 0) / 1_000);
  }

  claim(row: ClaimRow, pushes: Pushes): ClaimReply {
    const { now, lastToken, reason, isKnown, isQueued } = this.#rows.readEntry(row);
    if (reason !== null) return { reply: `n ${reason}` };
    if (isKnown) return this.renew([row], pushes)[0] as ClaimReply;
    if (!acceptsFloor(Number(lastToken), row.floor, now)) return { reply: "f" };
    // those of a burst, after which no others are written; one claim in 32
    if (row.id.endsWith("a")) this.#rows.purgeTombstones(now, PURGE_SIZE);
    const graceEnds = this.#checkIdentity(now);
    const front = isQueued ? this.#walk(row.key, now, graceEnds, new Set(), pushes) : EMPTY_FRONT;
    const isFree = fits(front.usedPermits, row);
    const isAdmitted = front.isWhole && isFree && graceEnds === 0;
    if (!isAdmitted && !row.wait) {
      // unknown is not busy: the holder may not have restored its claim yet
      const isUnknown = graceEnds > 0 && isFree;
      return { reply: isUnknown ? `p ${Math.ceil(graceEnds / 1_000)} ${Math.floor(now / 1_000)}` : "n" };
    }
    const token = isAdmitted ? this.#issueTokens(row, now, isQueued ? undefined : lastToken) : 0n;
    this.#rows.insertClaim(row, token, this.#inbox, now);
    const ttl = row.ttlMs * 1_000;
    const stored = { ...row, ttl, expires: now + ttl, token };
    if (isAdmitted && row.permits < ALL_PERMITS) {
      const firstExpires = Math.min(front.firstExpires, stored.expires);
      this.#rows.writeTotals(row.key, { usedPermits: front.usedPermits + row.permits, firstExpires, written: now });
    }
    return isAdmitted ? formatHeld(stored, graceEnds, now) : formatWaiting(stored, front, graceEnds, now);
  }

  /** In the order of the rows. */
  renew(rows: readonly ClaimRow[], pushes: Pushes): ClaimReply[] {
    const now = this.#rows.readNow();
    const graceEnds = this.#checkIdentity(now);
    const ownIds = new Set(rows.map(({ id }) => id));
    const renewed = rows.map((row) => this.#extend(row.id, graceEnds, now));
    const fronts = new Map<string, Front>();
    for (const { key } of rows)
      if (!fronts.has(key)) fronts.set(key, this.#walk(key, now, graceEnds, ownIds, pushes, true));
    return renewed.map((outcome, index) => {
      if (typeof outcome === "string") return { reply: outcome };
      const front = fronts.get(outcome.key) as Front;
      const held = front.granted.get(outcome.id) ?? outcome;
      return held.token === 0n
        ? formatWaiting(held, front, graceEnds, now)
        : formatHeld(held, graceEnds, now, this.#isRecalled(rows[index] as ClaimRow, held));
    });
  }

  /** `mustFlush`: it may have granted something, or a tombstone was written. */
  release(rows: readonly ReleaseRow[]): ReleaseReply & { readonly mustFlush: boolean } {
    const now = this.#rows.readNow();
    const graceEnds = this.#checkIdentity(now);
    const touchedKeys = new Set<string>();
    let mustFlush = false;
    const flags = rows.map(({ id, key, ttlMs, hasUnansweredClaim }) => {
      const stored = this.#rows.deleteClaim(id);
      if (stored !== null) touchedKeys.add(key);
      const isRevoked = stored?.state === "r";
      if (hasUnansweredClaim || (stored !== null && stored.state !== "o")) {
        mustFlush = true;
        this.#bury(id, isRevoked ? "revoked" : "released", ttlMs * 1_000, now);
      }
      return stored !== null && stored.expires > now && !isRevoked;
    });
    const pushes: Pushes = [];
    for (const key of touchedKeys) {
      if (!this.#rows.hasClaims(key)) continue;
      mustFlush = true;
      this.#walk(key, now, graceEnds, new Set(), pushes);
    }
    return { flags, pushes, mustFlush };
  }

  detach(rows: readonly ClaimRow[], remainingMs: number | null): boolean[] {
    const now = this.#rows.readNow();
    return rows.map(({ id }) => {
      const stored = this.#rows.readClaim(id);
      if (stored === null || stored.expires <= now || stored.token === 0n || stored.state === "r") return false;
      this.#rows.forgetTotals(stored.key); // its lease may end earlier now
      this.#rows.setState(id, "d", now + Math.min(stored.ttl, (remainingMs ?? Number.POSITIVE_INFINITY) * 1_000));
      return true;
    });
  }

  revoke(rows: readonly RevokeRow[], pushes: Pushes): boolean[] {
    const now = this.#rows.readNow();
    const graceEnds = this.#checkIdentity(now);
    return rows.map(({ key, token, removesRow }) => {
      const holder = this.#findHolder(key, token, now);
      if (holder === null || (holder.state === "r" && !removesRow)) return false;
      if (removesRow) {
        this.#rows.deleteClaim(holder.id);
        this.#bury(holder.id, "revoked", holder.ttl, now);
        this.#walk(key, now, graceEnds, new Set(), pushes);
      } else this.#rows.setState(holder.id, "r", holder.expires);
      if (holder.inbox === this.#inbox) pushes.push(holder.id);
      return true;
    });
  }

  /**
   * Puts claims back that were held when data was lost, with their tokens. The caller knows that it held them and that
   * their leases had not ended: if no grace period is running, that proves a loss, and one begins. A claim that waits
   * here is restored, too: its grant may be what was lost.
   */
  restore(rows: readonly RestoreRow[], pushes: Pushes): ClaimReply[] {
    const now = this.#rows.readNow();
    this.#checkIdentity(now, true);
    for (const row of rows) {
      const isHeld = (this.#rows.readClaim(row.id)?.token ?? 0n) > 0n;
      const isPlausible = acceptsFloor(Number(this.#rows.readLastToken(row.bucket)), row.token, now);
      if (isHeld || !isPlausible || this.#rows.readTombstone(row.id, now) !== null) continue;
      this.#rows.deleteClaim(row.id);
      this.#rows.insertClaim(row, row.token, this.#inbox, now);
      const lastToken = row.token + BigInt(row.tokenCount) - 1n;
      if (this.#rows.readLastToken(row.bucket) < lastToken) this.#rows.writeLastToken(row.bucket, lastToken);
      this.#orderHolders(row.key, now);
    }
    return this.renew(rows, pushes);
  }

  /**
   * Ends held claims that conflict with a restored one, and puts the others in front, in order of their tokens: in this
   * order each fits beside those before it, as when it was granted. Claims that do not were not held at the same time:
   * those with the lowest tokens had ended when the others were granted, and end here.
   */
  #orderHolders(key: string, now: number): void {
    const holders = this.#rows.readHolders(key).filter(({ expires }) => expires > now);
    while (!fitsInOrder(holders)) {
      const { id, ttl } = holders.shift() as StoredClaim;
      this.#rows.deleteClaim(id);
      this.#bury(id, "expired", ttl, now);
    }
    const front = this.#rows.readFront(key);
    let { lowest, lowestWaiting: next } = front;
    for (const { id, arrival } of this.#rows.readHolders(key).reverse()) {
      if (Number(arrival) < next) next = Number(arrival);
      else {
        next = --lowest;
        this.#rows.moveClaim(id, next);
      }
    }
    this.#rows.forgetTotals(key);
  }

  /** When a grace period ends; 0: none is running, or guardDataLoss is off. */
  #checkIdentity(now: number, isLost = false): number {
    return this.#identity?.check(now, isLost) ?? 0;
  }

  /**
   * The answer to a renewal that needs no write; null: it needs one. A lease that was restarted within the last eighth
   * of its ttl is long enough, and nothing at the front of the queue must be due to change.
   */
  peek(row: ClaimRow, now: number): ClaimReply | null {
    const { id } = row;
    if (this.#identity?.isQuiet(now) === false) return null;
    const stored = this.#rows.readClaim(id);
    if (stored === null) return { reply: formatNone(this.#rows.readTombstone(id, now)) };
    if (stored.expires <= now) return null;
    if (stored.state === "r") return { reply: "n revoked" };
    if (!isFresh(stored, now)) return null;
    if (stored.token > 0n) return formatHeld(stored, 0, now, this.#isRecalled(row, stored));
    const front = this.#peekFront(stored.key, now);
    return front === null ? null : formatWaiting(stored, front, 0, now);
  }

  /**
   * Does the claim, which is held, ask to be recalled, and another one wait for it? Claims that wait are behind all
   * others.
   */
  #isRecalled({ key, recall }: ClaimRow, { state }: StoredClaim): boolean {
    return recall && state === "o" && this.#rows.isLastWaiting(key);
  }

  /** Restarts the lease of a claim. Returns the reply if it is none. */
  #extend(id: string, graceEnds: number, now: number): StoredClaim | string {
    const stored = this.#rows.readClaim(id);
    if (stored === null) {
      const reason = this.#rows.readTombstone(id, now);
      return reason === null && graceEnds > 0 ? formatForgotten(graceEnds) : formatNone(reason);
    }
    if (stored.expires <= now && stored.state === "o" && graceEnds > 0) {
      // the last renewals may be lost: the holder may still restore it
      this.#rows.deleteClaim(id);
      return formatForgotten(graceEnds);
    }
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
   * Grants the waiting claims that are admitted, in order of arrival, and deletes those that have expired; stops at the
   * first that does not fit, behind which everything waits (I1). What is in use is known by the totals of the key,
   * unless a lease may have ended or the clock has stepped back: then the admitted claims are counted again. `ownIds`:
   * claims that the caller answers itself. `isRenewed`: it has written leases. In a grace period nothing is granted:
   * holders that are not in the tables may exist.
   */
  #walk(
    key: string,
    now: number,
    graceEnds: number,
    ownIds: ReadonlySet<string>,
    pushes: Pushes,
    isRenewed: boolean = false,
  ): Front {
    const found = this.#rows.readTotals(key);
    const known = found !== null && isTrue(found, now) ? found : null;
    const granted = new Map<string, StoredClaim>();
    let { usedPermits, firstExpires } = known ?? EMPTY_FRONT;
    let isWhole = true;
    for (const stored of this.#queue(key, known !== null)) {
      if (stored.expires <= now) {
        this.#expire(stored, now);
        continue;
      }
      if (stored.token === 0n && (graceEnds > 0 || !fits(usedPermits, stored))) {
        isWhole = false;
        break;
      }
      this.#capLease(stored, now);
      if (stored.token === 0n) {
        stored.token = this.#issueTokens(stored, now);
        this.#rows.grantClaim(stored.id, stored.token, now);
        granted.set(stored.id, stored);
        if (stored.inbox === this.#inbox && !ownIds.has(stored.id)) pushes.push(formatPush(stored, now));
      }
      usedPermits += stored.permits;
      firstExpires = Math.min(firstExpires, stored.expires);
    }
    const isShared = usedPermits > 0 && usedPermits < ALL_PERMITS;
    if (isShared && (known === null || isRenewed || granted.size > 0))
      this.#rows.writeTotals(key, { usedPermits, firstExpires, written: now });
    else if (!isShared && found !== null) this.#rows.forgetTotals(key);
    return { granted, usedPermits, isWhole, firstExpires };
  }

  /** What a walk would find, for a claim that waits; null if it would change something. */
  #peekFront(key: string, now: number): Front | null {
    const totals = this.#rows.readTotals(key);
    if (totals !== null && !isTrue(totals, now)) return null;
    let { usedPermits, firstExpires } = totals ?? EMPTY_FRONT;
    for (const stored of this.#queue(key, totals !== null)) {
      if (stored.expires <= now || stored.expires > now + stored.ttl) return null;
      if (stored.token === 0n)
        return fits(usedPermits, stored) ? null : { ...EMPTY_FRONT, usedPermits, isWhole: false, firstExpires };
      usedPermits += stored.permits;
      firstExpires = Math.min(firstExpires, stored.expires);
    }
    return null;
  }

  /** The claims of a queue in order of arrival: all, or those that wait, which are behind those that hold the key. */
  *#queue(key: string, isWaitingOnly: boolean = false): Generator<StoredClaim, void> {
    let arrival: number | bigint = Number.MIN_SAFE_INTEGER;
    for (;;) {
      const page: readonly StoredClaim[] = isWaitingOnly
        ? this.#rows.readWaiting(key, arrival, QUEUE_PAGE_SIZE)
        : this.#rows.readQueue(key, arrival, QUEUE_PAGE_SIZE);
      yield* page;
      const last: StoredClaim | undefined = page.at(-1);
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

  /**
   * Restates the token rule: the first token of a grant, higher than all that were granted before in this bucket (I2).
   * `lastToken`: the bucket's, if it was read and nothing was granted since.
   */
  #issueTokens(
    claim: Pick<StoredClaim, "bucket" | "floor" | "tokenCount">,
    now: number,
    lastToken: bigint = this.#rows.readLastToken(claim.bucket),
  ): bigint {
    const token = [lastToken + 1n, claim.floor, BigInt(now)].reduce((high, next) => (next > high ? next : high));
    this.#rows.writeLastToken(claim.bucket, token + BigInt(claim.tokenCount) - 1n);
    return token;
  }
}

/** Whether the totals are still true: no lease has ended, and the clock has not stepped back. */
function isTrue({ firstExpires, written }: Totals, now: number): boolean {
  return written <= now && now < firstExpires;
}

/**
 * Was the lease restarted within the last eighth of its ttl? A clock that stepped back makes it look younger than new.
 */
export function isFresh({ expires, ttl }: { readonly expires: number; readonly ttl: number }, now: number): boolean {
  return expires - now > 0.875 * ttl && expires - now <= ttl;
}

export function formatWaitReply({ expires, ttl, firstExpires }: Wait, now: number, graceEnds = 0): string {
  const remainingMs = toRemainingMs(expires, ttl, now);
  const dueAt = Math.min(expires, firstExpires, graceEnds || Number.POSITIVE_INFINITY);
  const recheckMs = Math.max(Math.ceil((dueAt - now) / 1_000), 1);
  return `w ${remainingMs} ${recheckMs} ${Math.floor(now / 1_000)}${formatGrace(graceEnds)}`;
}

type Lease = Pick<StoredClaim, "expires" | "ttl">;

function formatWaiting({ expires, ttl }: Lease, { firstExpires }: Front, graceEnds: number, now: number): ClaimReply {
  const wait = { expires, ttl, firstExpires };
  // in a grace period the next answer may be another one although nothing was written
  return { reply: formatWaitReply(wait, now, graceEnds), ...(graceEnds === 0 && { wait }) };
}

function formatHeld(
  claim: Lease & Pick<StoredClaim, "token" | "tokenCount">,
  graceEnds: number,
  now: number,
  isRecalled = false,
): ClaimReply {
  const { token, tokenCount, expires, ttl } = claim;
  const remainingMs = toRemainingMs(expires, ttl, now);
  const state = isRecalled ? "r" : "h";
  return {
    reply: `${state} ${token} ${tokenCount} ${remainingMs} ${Math.floor(now / 1_000)}${formatGrace(graceEnds)}`,
  };
}

/** The last field of an answer in a grace period. */
function formatGrace(graceEnds: number): string {
  return graceEnds === 0 ? "" : ` ${Math.ceil(graceEnds / 1_000)}`;
}

/** The claim is unknown in a grace period: if it was held, its client may restore it. */
function formatForgotten(graceEnds: number): string {
  return `b${formatGrace(graceEnds)}`;
}

/** Whether each claim fits beside those before it. */
function fitsInOrder(claims: readonly StoredClaim[]): boolean {
  let usedPermits = 0;
  return claims.every((claim) => {
    const isFitting = fits(usedPermits, claim);
    usedPermits += claim.permits;
    return isFitting;
  });
}

function formatPush({ id, token, tokenCount, expires, ttl }: StoredClaim, now: number): string {
  return `${id} ${token} ${tokenCount} ${toRemainingMs(expires, ttl, now)}`;
}

function formatNone(reason: string | null): string {
  return reason === null ? "n" : `n ${reason}`;
}

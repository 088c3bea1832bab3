/**
 * What the SQL driver needs of a database: the one file to read before adding a dialect. The driver (driver.ts) does
 * what is the same for all: options, batches, replies, pushes, recheck times, lists and diagnosis. A dialect contains
 * the statements and what its database does differently. docs/design/sql.md describes the tables and the algorithm.
 *
 * All times are microseconds of the database's clock. A dialect has one source of them, which the head of its file
 * names: a clock that neither stands still in a transaction nor follows a setting of the session.
 */

import type { Check } from "../../spi/driver.ts";
import type { RecheckIntervals } from "./recheck.ts";

/** A claim as a dialect stores it: one key each (traits.manyKeys is false). */
export interface ClaimRow {
  readonly id: string;
  readonly key: string;
  /** The lock row that serializes all changes to this key's queue: 0 to BUCKET_COUNT - 1. */
  readonly bucket: number;
  readonly permits: number;
  readonly limit: number;
  readonly ttlMs: number;
  readonly tokenCount: number;
  readonly floor: bigint;
  readonly wait: boolean;
  readonly label: string;
  /** While the claim is held, replies to renewals say whether another claim waits for it. */
  readonly recall: boolean;
}

/** A claim that the database has lost, and its grant. */
export interface RestoreRow extends ClaimRow {
  readonly token: bigint;
}

/** A claim of this process that is neither detached nor revoked, as the database has it. */
export type OwnedRow = Pick<ClaimRow, "id" | "key" | "bucket" | "ttlMs">;

/** A claim to release. */
export interface ReleaseRow extends OwnedRow {
  /** A `claim` call may still arrive: keep a tombstone. */
  readonly hasUnansweredClaim: boolean;
}

/** A grant to revoke. */
export interface RevokeRow {
  readonly key: string;
  readonly bucket: number;
  readonly token: bigint;
  /** The row goes at once; false: when its holder releases it, or its lease ends. */
  readonly removesRow: boolean;
}

/** Which claims to read: in order of key and arrival, the first `max` after the cursor. */
export interface ListRequest {
  /** Keys that begin with it; or the one key. */
  readonly prefix?: string | undefined;
  readonly key?: string | undefined;
  readonly max: number;
  /** The last claim of the page before. */
  readonly after?: { readonly key: string; readonly arrival: bigint };
}

/** A live claim. Numbers are text, since libraries round large ones. */
export interface ListedRow {
  readonly id: string;
  readonly key: string;
  readonly arrival: string;
  readonly permits: string;
  readonly limit: string;
  readonly ttlMs: string;
  readonly tokenCount: string;
  readonly floor: string;
  readonly wait: boolean;
  readonly label: string;
  /** "0": it waits. */
  readonly token: string;
  readonly remainingMs: string;
  readonly ageMs: string;
  /** "": it waits. */
  readonly heldMs: string;
}

/**
 * The reply to a release: a flag for each claim, and the grants to claims of this process (see DialectEvents.pushed).
 */
export interface ReleaseReply {
  readonly flags: readonly boolean[];
  readonly pushes: readonly string[];
}

/** The driver's side. Never called from within a call of the dialect. */
export interface DialectEvents {
  /**
   * "<id> <token> <tokens> <remaining ms>" is a grant, "<id> recalled" a recall, "<id>" asks for a recheck. `isAnswer`:
   * the push came over a connection that has been open without a break since the claim was last answered.
   */
  pushed(message: string, isAnswer: boolean): void;
  /** A connection broke: that for pushes, one of the pool, or that of a call. */
  disconnected(): void;
  /** Pushes may have been lost. */
  missed(): void;
}

/**
 * An open database. Rows of a batch come sorted by bucket, so that locks are taken in one order; the reply has their
 * order.
 */
export interface DialectSession {
  /** Do pushes arrive now? If not, the driver rechecks waiting claims at short intervals. */
  readonly hasPush: boolean;
  /** Are recalls pushed to held claims that ask for it? If not, they stand in replies only. */
  readonly pushesRecalls: boolean;
  /** The reply as text, see reply-codec.ts. */
  claim(row: ClaimRow): Promise<string>;
  renew(rows: readonly ClaimRow[]): Promise<readonly string[]>;
  release(rows: readonly ReleaseRow[]): Promise<ReleaseReply>;
  /** `remainingMs`: the lease ends after this time, if that is less than the ttl; null: after the ttl. */
  detach(rows: readonly ClaimRow[], remainingMs: number | null): Promise<readonly boolean[]>;
  revoke(rows: readonly RevokeRow[]): Promise<readonly boolean[]>;
  list(request: ListRequest): Promise<readonly ListedRow[]>;
  /** Reads the claims, waiting and held, that this session has claimed or renewed. Reads all rows. */
  readOwned(): Promise<readonly OwnedRow[]>;
  /**
   * With guardDataLoss: looks whether data was lost. What is left of a grace period, in milliseconds; 0: none is
   * running.
   */
  checkDataLoss(): Promise<number>;
  /** With guardDataLoss: puts held claims back that the database has lost. Replies as those of renew(). */
  restore(rows: readonly RestoreRow[]): Promise<readonly string[]>;
  /**
   * What of the database matters to locks: version, role, durability, isolation, connections, old row versions,
   * leftovers.
   */
  diagnose(): Promise<readonly Check[]>;
  close(): Promise<void>;
}

/** A database that is not open yet. */
export interface Dialect {
  /** "postgres", "mysql", "sqlite": the driver's name, which begins its error messages. */
  readonly name: string;
  /**
   * How often waiting claims are rechecked if pushes do not arrive. Default: every 3 to 25 ms in the first second, then
   * 250 ms.
   */
  readonly recheckIntervals?: RecheckIntervals;
  /** What an acknowledged grant survives. */
  readonly durability: "restart" | "failover";
  /**
   * Connects, creates or verifies the tables, and refuses what cannot work.
   * @throws StoreRefusedError if a retry cannot succeed: another layout, missing permissions, an unsupported version
   */
  open(events: DialectEvents): Promise<DialectSession>;
}

/** What stands behind the sessions of a server: the keeper (our own table) or the relay (any driver). */

import type { ReclaimItem } from "../protocol/frames.ts";
import type { StateEpoch } from "../protocol/handshake.ts";
import type { Answer, Claim, ClaimId, ClaimView, ListFilter, Traits } from "../spi/driver.ts";
import type { Session } from "./session/session.ts";

/** A result at once where it can be had: the hot path makes no promise. */
export type MaybePromise<T> = T | Promise<T>;

/** One call is refused; the connection goes on. `code` is in the table of docs/reference/protocol.md. */
export class RequestError extends Error {
  readonly code: string;
  constructor(code: string, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "Refusal";
    this.code = code;
  }
}

/** Nothing is changed any more: the table is about to be saved, or the store let go of. */
export function drainingError(): RequestError {
  return new RequestError("DRAINING", "the server is going away");
}

/** A claim to renew: by its id, or whole if its client has no answer for it from this start of the server. */
export interface RenewRequest {
  readonly id: ClaimId;
  readonly claim: Claim | null;
}

/** An id to release; with the ttl of its claim if a `claim` call of it was never answered. */
export interface ReleaseRequest {
  readonly id: ClaimId;
  readonly unansweredTtl: number | "session" | undefined;
}

/** What an operator asks to go. */
export interface RevokeRequest {
  readonly key: string;
  /** Any of the grant's run. */
  readonly token: bigint;
  readonly now: boolean;
  /** For people; "" if none was given. */
  readonly reason: string;
}

/** A claim that a backend knows, as far as it matters who may see it. */
export interface OwnedClaim {
  readonly claim: Claim;
  /** The account that placed it; "" for none. */
  readonly account: string;
}

/** A page of a listing. */
export interface ClaimPage {
  readonly views: readonly ClaimView[];
  /** There is more behind it. */
  readonly hasMore: boolean;
}

/** A page ends when about this much text is in it. */
const MAX_PAGE_CHARS = 1_000_000;

/** A page of at most `max` of these, cut short where it would become too long. */
export function truncatePage(views: readonly ClaimView[], max: number): ClaimPage {
  let chars = 0;
  let count = 0;
  for (const view of views) {
    chars += view.label.length + 100;
    for (const { key } of view.holds) chars += key.length + 20;
    if (count === max || (count > 0 && chars > MAX_PAGE_CHARS)) return { views: views.slice(0, count), hasMore: true };
    count++;
  }
  return { views, hasMore: false };
}

/** Which claims of a session end. */
export type EndScope = "all" | "waiting" | "session";

/** What stands behind the sessions of a server: a table of its own (local-backend.ts), or another store (proxy-backend.ts). */
export interface Backend {
  /** Its calls take our own time: large ones are made in parts. Those of another store are better made whole. */
  readonly isInProcess: boolean;
  /** `listener` is called when something has changed outside a call, so that somebody calls endBatch(). */
  onChange(listener: () => void): void;
  /** What a client of this transport may rely on. local: a Unix socket. */
  traits(isLocal: boolean): Traits;
  /** Milliseconds until new grants are made again; 0: they are. */
  recoveryRemainingMs(): number;
  /** Which state it keeps; null or missing: none that outlives it. */
  readonly identity?: StateEpoch | null;
  /** A client has seen a later state: others may hold what this one knows nothing of. */
  reportOutdatedState?(): void;
  /** @throws RequestError */
  claim(session: Session, claim: Claim): MaybePromise<Answer>;
  /** undefined: where this one stands is not known now. */
  renew(session: Session, items: readonly RenewRequest[]): MaybePromise<readonly (Answer | undefined)[]>;
  release(session: Session, items: readonly ReleaseRequest[]): MaybePromise<readonly boolean[]>;
  /** `leftMs`: see Driver.detach. */
  detach(session: Session, ids: readonly ClaimId[], leftMs?: number): MaybePromise<readonly boolean[]>;
  revoke(session: Session, targets: readonly RevokeRequest[]): MaybePromise<readonly boolean[]>;
  /** Only what the session's principal may inspect: what it may not is left out before the page is cut. */
  list(session: Session, filter: ListFilter, max: number, cursor: string | undefined): MaybePromise<ClaimPage>;
  /** last: the session has told everything it had. */
  reclaim(
    session: Session,
    items: readonly ReclaimItem[],
    isLast: boolean,
  ): MaybePromise<readonly (Answer | undefined)[]>;
  /** The claim with that id; undefined: there is none, or not any more. */
  findClaim(id: ClaimId): OwnedClaim | undefined;
  /** Where a waiting claim stands among all that have come; 0 if that is not known. */
  arrivalOf(id: ClaimId): number;

  /** Ends claims of a session. */
  endClaims(session: Session, scope: EndScope): void;
  /** The session cannot be reached: grants pass over its waiting places until it is back. */
  suspend(session: Session): void;
  resume(session: Session): void;
  /** Does it still have claims? */
  hasClaims(session: Session): boolean;

  /** When advance() has work, on the clock's scale; Infinity: it has none. */
  nextDueAt(): number;
  /** Lets time pass. */
  advance(now: number): void;
  /** Calls that come until endBatch() are made in one go. Default: it does not matter. */
  beginBatch?(): void;
  /** After a batch of calls: passes on what they brought about. */
  endBatch(): void;
}

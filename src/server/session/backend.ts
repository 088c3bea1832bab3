/** The interface between sessions and what keeps their claims. */

import type { ReclaimItem } from "../../protocol/frames.ts";
import type { StateEpoch } from "../../protocol/handshake.ts";
import type { Answer, Claim, ClaimId, ClaimView, ListQuery, Page, Traits } from "../../spi/driver.ts";
import type { MaybePromise } from "../../util/maybe-promise.ts";
import type { Session } from "./session.ts";

/** A claim to renew: only its id, or all of it if its client has had no answer for it from this run of the server. */
export interface RenewRequest {
  readonly id: ClaimId;
  readonly claim: Claim | null;
  /** How many tokens it should have in all, if it is held. Default: as many as it has. */
  readonly tokenCount?: number;
}

/** An id to release; with the ttl of its claim if a `claim` call for it is still unanswered. */
export interface ReleaseRequest {
  readonly id: ClaimId;
  readonly unansweredTtl: number | "session" | undefined;
}

/** A lock that an operator takes away. */
export interface RevokeRequest {
  readonly key: string;
  /** Any token of the grant's token range. */
  readonly token: bigint;
  readonly now: boolean;
  /** Free text for people; "" for none. */
  readonly reason: string;
}

/** What an access check needs to know about a claim. */
export interface OwnedClaim {
  readonly claim: Claim;
  /** The account that created it; "" for none. */
  readonly account: string;
}

/** Which claims of a session to end. */
export type EndScope = "all" | "waiting" | "held" | "session";

/** What clients request. Each call is made for a session, whose principal authorized-calls.ts checks. */
export interface ClientCalls {
  /** @throws RequestError */
  claim(session: Session, claim: Claim): MaybePromise<Answer>;
  /** undefined: the state of this claim is currently unknown. */
  renew(session: Session, items: readonly RenewRequest[]): MaybePromise<readonly (Answer | undefined)[]>;
  release(session: Session, items: readonly ReleaseRequest[]): MaybePromise<readonly boolean[]>;
  /** `remainingMs`: see Driver.detach. */
  detach(session: Session, ids: readonly ClaimId[], remainingMs?: number): MaybePromise<readonly boolean[]>;
  /** Grants pass over these waiting claims of the session, or no longer. */
  setSuspended(session: Session, ids: readonly ClaimId[], isSuspended: boolean): void;
  revoke(session: Session, targets: readonly RevokeRequest[]): MaybePromise<readonly boolean[]>;
  /** Returns only claims that the session's principal may inspect. The others are removed before the page is cut. */
  list(session: Session, query: ListQuery, max: number, cursor: string | undefined): MaybePromise<Page<ClaimView>>;
  /** isLast: the session has reported all its claims. */
  reclaim(
    session: Session,
    items: readonly ReclaimItem[],
    isLast: boolean,
  ): MaybePromise<readonly (Answer | undefined)[]>;
}

/** Keeps the claims of a server's sessions: local/local-backend.ts. */
export interface Backend extends BackendControl, ClientCalls {}

/** What the server itself does with its backend; no authorization is needed. */
export interface BackendControl {
  /** `listener` is called after a change outside a call, so that the caller can run endBatch(). */
  onChange(listener: () => void): void;
  /** The guarantees for a client of this transport. isLocal: a Unix socket. */
  traits(isLocal: boolean): Traits;
  /** Held and waiting claims. */
  readonly claimCount: number;
  /** Why new locks cannot be granted, judged by the most recent attempt; null if no problem is known. */
  unhealthyReason(): string | null;
  /** Milliseconds until new locks are granted again; 0 when not recovering. */
  recoveryRemainingMs(): number;
  /** Identifies the saved state; null if nothing is saved. */
  readonly identity: StateEpoch | null;
  /** A client has seen a later state than ours: there may be holders that this server does not know. */
  reportOutdatedState(): void;
  /** The claim with that id; undefined if there is none, or it has ended. */
  findClaim(id: ClaimId): OwnedClaim | undefined;
  /** The arrival of a waiting claim; 0 if unknown. */
  arrivalOf(id: ClaimId): number;

  /** Ends claims of a session. */
  endClaims(session: Session, scope: EndScope): void;
  /** The session is unreachable: grants pass over its waiting claims until it is back. */
  suspend(session: Session): void;
  resume(session: Session): void;
  /**
   * The rules of accounts have changed, or a client has returned: ends the waiting claims of connected sessions whose
   * account may no longer acquire their keys, and makes the holders of such claims ask again. `session`: only those of
   * this one.
   */
  revalidateClaims(session?: Session): void;
  /** True if the session still has claims. */
  hasClaims(session: Session): boolean;

  /** When advance() has work to do, on the clock's scale; Infinity: never. */
  nextDueAt(): number;
  /** Performs everything that is due at `now`. */
  advance(now: number): void;
  /** Combines the calls until endBatch() into one batch. */
  beginBatch(): void;
  /** After a batch of calls: delivers the resulting notifications. */
  endBatch(): void;
}

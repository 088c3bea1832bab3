/**
 * What the pages of the dashboard receive: the bodies of the responses below /ui/api, without tokens as bigint. The pages
 * (src/dashboard/) and the routes (routes.ts) share these types. Times with "Ms" are durations in whole milliseconds;
 * those with "At" are points in time, in milliseconds since 1970.
 *
 *   GET    /ui/session/methods         SessionMethods, without a session
 *   POST   /ui/session                 SessionRequest -> Session, and the cookie
 *   DELETE /ui/session                 204: the session has ended
 *   GET    /ui/api/overview            Overview
 *   GET    /ui/api/claims?prefix=TEXT  Reading; ?key=KEY: only the queue of this key. &after=SEQUENCE: 204 if it has not changed,
 *                                      nor `failure` and `paused`
 *   GET    /ui/api/history             History
 *   GET    /ui/api/store               StoreReport
 *   GET    /ui/api/events              server-sent events: EventsStart, then DashboardEvent[] each time; ?key=KEY: only those of this key
 *   POST   /ui/api/revoke              RevokeBody -> {}
 *
 * An error is a Problem, as that of the HTTP API: { status, code, reason, detail, field?, retryMs? }. 401 means: sign in again.
 */

import type { ClaimInfo } from "../../spi/claim-info.ts";
import type { Check, Pause, Traits } from "../../spi/driver.ts";

/** A start token is that of the link of `holdfast dashboard`; a credential is that of an account. */
export type SessionRequest = { readonly start: string } | { readonly credential: string };

/** How to sign in. */
export interface SessionMethods {
  /** True: with the credential of an account; false: with the link of `holdfast dashboard`. */
  readonly accounts: boolean;
}

export interface Session {
  /** To be sent in the header `holdfast-ui` with each request below /ui/api, and with the end of the session. */
  readonly secret: string;
  readonly expiresInMs: number;
}

/** What does not change while the gateway runs, but for the rights. */
export interface Overview {
  /** The store, as messages name it: never with a password. */
  readonly store: string;
  readonly version: string;
  readonly startedAt: number;
  /** The account; "" without accounts. */
  readonly account: string;
  /** False: nothing can be revoked, because of --read-only or the store. `revokeRefusal` says why. */
  readonly canRevoke: boolean;
  readonly revokeRefusal: string | null;
  /** False: the account may see only some of the keys. */
  readonly seesAllKeys: boolean;
  readonly fencing: boolean;
}

/** A claim in a list, as JSON has it. */
export interface ListedClaim extends Omit<ClaimInfo, "token"> {
  /** The fencing token of a holder as a decimal number; null while it waits, and where the store does not list it. */
  readonly token: string | null;
  /** The length of its lease, if the gateway knows it; the pages estimate it otherwise from what they have seen to remain. */
  readonly leaseMs?: number;
}

/** One list of the store, which all viewers share. */
export interface Reading {
  /** Rises with each list. */
  readonly sequence: number;
  /** The time since the store answered. */
  readonly ageMs: number;
  /** The time between two lists at present. */
  readonly intervalMs: number;
  readonly claims: readonly ListedClaim[];
  /** False: the store has more than the 2,000 claims that are loaded. */
  readonly isComplete: boolean;
  /** Why the newest attempt to list failed; the claims are those of the last one that succeeded. */
  readonly failure: string | null;
  /** The store grants no new locks for the time being. */
  readonly paused: Pause | null;
  /** Why the viewer cannot revoke locks on the `key` of the request; null: it is possible, or there was none. */
  readonly revokeRefusal: string | null;
}

export interface DashboardEvent {
  /** Rises with each event. */
  readonly sequence: number;
  readonly at: number;
  /** The kind of an event of the HTTP API; "ended": the list has a holder no more, for an unknown reason; "left": the same of a waiter. */
  readonly kind: string;
  readonly keys: readonly string[];
  readonly tag: string;
  readonly label: string;
  readonly token: string | null;
  /** The account of the claim; "" if there are none. */
  readonly account: string;
  /** For a revocation: the account of the operator, and the reason. */
  readonly operator?: string;
  readonly reason?: string;
  /** How the gateway learned of it: the source of events reported it, or two consecutive lists differ. */
  readonly source: "reported" | "sampled";
}

/** The first message of the stream of events, which is named "start". The others are named "events". */
export interface EventsStart {
  /** Identifies the run of the gateway: sequence numbers of another run mean nothing in this one. */
  readonly run: string;
  /** Since when events are kept, at most 10,000 of them. */
  readonly since: number;
  /** "server": all events of the store. "gateway": those of claims through this gateway, and for others what lists differ by. */
  readonly origin: "server" | "gateway";
  /** The time between two lists at present. */
  readonly intervalMs: number;
}

/** A moment of the charts. */
export interface Sample {
  readonly at: number;
  /** null: the store did not answer. */
  readonly held: number | null;
  readonly waiting: number | null;
  readonly longestWaitMs: number | null;
  /** Since the previous sample, per second. Both sources together. */
  readonly grantsPerSecond: number;
  readonly endsPerSecond: number;
}

/** The number of claims by how long something took. */
export interface TimeHistogram {
  /** The upper bound of each bucket in milliseconds; the last bucket has none. */
  readonly boundsMs: readonly number[];
  /** One more than bounds. */
  readonly counts: readonly number[];
}

export interface History {
  /** Since when samples are kept. */
  readonly since: number;
  readonly samples: readonly Sample[];
  readonly origin: "server" | "gateway";
  /** Of claims with reported events, since the first viewer; null: there were none. */
  readonly waits: TimeHistogram | null;
  readonly holds: TimeHistogram | null;
}

export interface StoreReport {
  readonly traits: Traits;
  /** What `holdfast doctor` says; null: only `holdfast doctor` itself can say it. */
  readonly checks: readonly Check[] | null;
  /** Names and values: versions, and when the checks were made. */
  readonly facts: readonly { readonly name: string; readonly value: string }[];
}

export interface RevokeBody {
  readonly key: string;
  readonly token: string;
  readonly reason: string;
  /** Free the key at once, although its holder may still be working. */
  readonly now: boolean;
}

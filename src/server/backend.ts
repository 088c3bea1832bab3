/** What stands behind the sessions of a server: the keeper (our own table) or the relay (any driver). */

import type { Reclaimed } from "../protocol/frames.ts";
import type { StateName } from "../protocol/hello.ts";
import type { Answer, Claim, ClaimId, ClaimView, ListFilter, Traits } from "../spi/driver.ts";
import type { Session } from "./session.ts";

/** A result at once where it can be had: the hot path makes no promise. */
export type Soon<T> = T | Promise<T>;

/** One call is refused; the connection goes on. `code` is in the table of docs/reference/protocol.md. */
export class Refusal extends Error {
  readonly code: string;
  constructor(code: string, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "Refusal";
    this.code = code;
  }
}

/** Nothing is changed any more: the table is about to be saved, or the store let go of. */
export function goingAway(): Refusal {
  return new Refusal("DRAINING", "the server is going away");
}

/** A claim to renew: by its id, or whole if its client has no answer for it from this start of the server. */
export interface Renewal {
  readonly id: ClaimId;
  readonly claim: Claim | null;
}

/** An id to release; with the ttl of its claim if a `claim` call of it was never answered. */
export interface Leave {
  readonly id: ClaimId;
  readonly unanswered: number | "session" | undefined;
}

/** What an operator asks to go. */
export interface Revocation {
  readonly key: string;
  /** Any of the grant's run. */
  readonly token: bigint;
  readonly now: boolean;
  /** For people; "" if none was given. */
  readonly reason: string;
}

/** A claim that a backend knows, as far as it matters who may see it. */
export interface Owned {
  readonly claim: Claim;
  /** The account that placed it; "" for none. */
  readonly by: string;
}

/** A page of a listing. */
export interface Page {
  readonly views: readonly ClaimView[];
  /** There is more behind it. */
  readonly more: boolean;
}

/** A page ends when about this much text is in it. */
const PAGE_CHARS = 1_000_000;

/** A page of at most `max` of these, cut short where it would become too long. */
export function cutPage(views: readonly ClaimView[], max: number): Page {
  let chars = 0;
  let fit = 0;
  for (const view of views) {
    chars += view.label.length + 100;
    for (const { key } of view.holds) chars += key.length + 20;
    if (fit === max || (fit > 0 && chars > PAGE_CHARS)) return { views: views.slice(0, fit), more: true };
    fit++;
  }
  return { views, more: false };
}

/** Which claims of a session end. */
export type Which = "all" | "waiting" | "session";

/** What stands behind the sessions of a server: a table of its own (keeper.ts), or another store (relay.ts). */
export interface Backend {
  /** Its calls take our own time: large ones are made in parts. Those of another store are better made whole. */
  readonly isOurs: boolean;
  /** `changed` is called when something has changed outside a call, so that somebody calls settle(). */
  attend(changed: () => void): void;
  /** What a client of this transport may rely on. local: a Unix socket. */
  traits(local: boolean): Traits;
  /** Milliseconds until new grants are made again; 0: they are. */
  reclaimMs(): number;
  /** Which state it keeps; null or missing: none that outlives it. */
  readonly identity?: StateName | null;
  /** A client has seen a later state: others may hold what this one knows nothing of. */
  outdated?(): void;
  /** @throws Refusal */
  claim(session: Session, claim: Claim): Soon<Answer>;
  /** undefined: where this one stands is not known now. */
  renew(session: Session, items: readonly Renewal[]): Soon<readonly (Answer | undefined)[]>;
  release(session: Session, items: readonly Leave[]): Soon<readonly boolean[]>;
  /** `leftMs`: see Driver.detach. */
  detach(session: Session, ids: readonly ClaimId[], leftMs?: number): Soon<readonly boolean[]>;
  revoke(session: Session, targets: readonly Revocation[]): Soon<readonly boolean[]>;
  /** Only what the session's principal may inspect: what it may not is left out before the page is cut. */
  list(session: Session, filter: ListFilter, max: number, after: string | undefined): Soon<Page>;
  /** last: the session has told everything it had. */
  reclaim(session: Session, items: readonly Reclaimed[], last: boolean): Soon<readonly (Answer | undefined)[]>;
  /** The claim with that id; undefined: there is none, or not any more. */
  owned(id: ClaimId): Owned | undefined;
  /** Where a waiting claim stands among all that have come; 0 if that is not known. */
  arrivalOf(id: ClaimId): number;

  /** Ends claims of a session. */
  end(session: Session, which: Which): void;
  /** The session cannot be reached: grants pass over its waiting places until it is back. */
  park(session: Session): void;
  unpark(session: Session): void;
  /** Does it still have claims? */
  owns(session: Session): boolean;

  /** When advance() has work, on the clock's scale; Infinity: it has none. */
  nextDue(): number;
  /** Lets time pass. */
  advance(now: number): void;
  /** Calls that come until settle() are made in one go. Default: it does not matter. */
  begin?(): void;
  /** After a batch of calls: passes on what they brought about. */
  settle(): void;
}

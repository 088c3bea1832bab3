/** One claim that came over HTTP, until it is held and belongs to nobody but its reference. */

import { newId } from "../../ids.ts";
import type { Answer, Claim, ClaimId, LostReason } from "../../spi/driver.ts";
import type { Principal } from "../access.ts";
import type { Soon } from "../backend.ts";
import { goingAway, Refusal } from "../backend.ts";
import type { Hub } from "../hub.ts";
import type { Inbox } from "../session.ts";
import { Session } from "../session.ts";

/**
 * It is a session of its own, with no more than one claim: nobody is at the other end but the request that waits for it
 * now, if there is one, so it can be parked, ended and taken up again alone.
 */
export class Place implements Inbox {
  readonly claim: Claim;
  readonly session: Session;
  /** Wakes the request that waits for it; null: nobody does, and it is kept until dropAt. */
  watcher: (() => void) | null = null;
  /** When the store was asked last: a lease that it told of in its answer runs from then at the earliest. */
  askedAt = 0;
  /** When it is given up if nobody comes back to wait for it. */
  dropAt = 0;
  /** What the store said by itself, and nobody has looked at yet; "ask": it has something to say. */
  news: Answer | "ask" | null = null;
  /** It was given back by another request, or otherwise lost; null: not that anybody knows. */
  lost: LostReason | null = null;
  // for the schedule
  dueAt = 0;
  heapIndex = -1;

  constructor(principal: Principal, claim: Claim, now: number) {
    this.claim = claim;
    this.session = visitor(principal, now, claim.label);
    this.session.link = this;
  }

  push(_id: ClaimId, answer: Answer): void {
    this.news = answer;
    this.watcher?.();
  }

  nudge(): void {
    this.news ??= "ask";
    this.watcher?.();
  }

  refuse(): void {
    this.nudge();
  }
}

/** A session for what one request asks. */
export function visitor(principal: Principal, now: number, label = ""): Session {
  const session = new Session({ session: newId(), label, pid: null, pidStart: null }, false, now);
  session.principal = principal;
  // a restart need not wait for it: what it holds was either never told to anybody or stands in the journal
  session.noted = true;
  return session;
}

/** A call of the backend, and what it brings about. @throws Refusal DRAINING: the server is going away */
export async function asked<T>(hub: Hub, call: () => Soon<T>): Promise<T> {
  if (hub.draining) throw goingAway();
  try {
    const soon = call();
    // what it waits for may need the timer: a long list is made a little at a time
    if (soon instanceof Promise) hub.settle();
    return await soon;
  } finally {
    hub.settle();
  }
}

/** Where these claims stand, renewed. @throws Refusal RECLAIMING or STORE where that is not known of one */
export async function renewed(hub: Hub, session: Session, claims: readonly Claim[]): Promise<readonly Answer[]> {
  const items = claims.map((claim) => ({ id: claim.id, claim }));
  return (await asked(hub, () => hub.backend.renew(session, items))).map((answer) => {
    if (answer !== undefined) return answer;
    if (hub.backend.reclaimMs() === 0)
      throw new Refusal("STORE", "the server could not ask its store about this claim");
    throw new Refusal("RECLAIMING", "the server was restarted and does not know yet what was held");
  });
}

/** One claim that came over HTTP, until it is held and belongs to nobody but its reference. */

import type { Answer, Claim, ClaimId, LostReason } from "../../spi/driver.ts";
import { randomId } from "../../util/ids.ts";
import type { Principal } from "../auth/access-control.ts";
import type { MaybePromise } from "../backend.ts";
import { drainingError, RequestError } from "../backend.ts";
import type { LockService } from "../service.ts";
import type { NotificationSink } from "../session/session.ts";
import { Session } from "../session/session.ts";

/**
 * It is a session of its own, with no more than one claim: nobody is at the other end but the request that waits for it
 * now, if there is one, so it can be parked, ended and taken up again alone.
 */
export class PendingClaim implements NotificationSink {
  readonly claim: Claim;
  readonly session: Session;
  /** Wakes the request that waits for it; null: nobody does, and it is kept until expiresAt. */
  wake: (() => void) | null = null;
  /** When the store was asked last: a lease that it told of in its answer runs from then at the earliest. */
  lastCallAt = 0;
  /** When it is given up if nobody comes back to wait for it. */
  expiresAt = 0;
  /** What the store said by itself, and nobody has looked at yet; "ask": it has something to say. */
  notification: Answer | "ask" | null = null;
  /** It was given back by another request, or otherwise lost; null: not that anybody knows. */
  lossReason: LostReason | null = null;
  // for the schedule
  dueAt = 0;
  heapIndex = -1;

  constructor(principal: Principal, claim: Claim, now: number) {
    this.claim = claim;
    this.session = createRequestSession(principal, now, claim.label);
    this.session.sink = this;
  }

  pushAnswer(_id: ClaimId, answer: Answer): void {
    this.notification = answer;
    this.wake?.();
  }

  pushRecheck(): void {
    this.notification ??= "ask";
    this.wake?.();
  }

  fail(): void {
    this.pushRecheck();
  }
}

/** A session for what one request asks. */
export function createRequestSession(principal: Principal, now: number, label = ""): Session {
  const session = new Session({ session: randomId(), label, pid: null, pidStart: null }, false, now);
  session.principal = principal;
  // a restart need not wait for it: what it holds was either never told to anybody or stands in the journal
  session.isPersisted = true;
  return session;
}

/** A call of the backend, and what it brings about. @throws RequestError DRAINING: the server is going away */
export async function callBackend<T>(service: LockService, call: () => MaybePromise<T>): Promise<T> {
  if (service.isDraining) throw drainingError();
  try {
    const result = call();
    // what it waits for may need the timer: a long list is made a little at a time
    if (result instanceof Promise) service.endTurn();
    return await result;
  } finally {
    service.endTurn();
  }
}

/** Where these claims stand, renewed. @throws RequestError RECLAIMING or STORE where that is not known of one */
export async function renewAll(
  service: LockService,
  session: Session,
  claims: readonly Claim[],
): Promise<readonly Answer[]> {
  const items = claims.map((claim) => ({ id: claim.id, claim }));
  return (await callBackend(service, () => service.backend.renew(session, items))).map((answer) => {
    if (answer !== undefined) return answer;
    if (service.backend.recoveryRemainingMs() === 0)
      throw new RequestError("STORE", "the server could not ask its store about this claim");
    throw new RequestError("RECLAIMING", "the server was restarted and does not know yet what was held");
  });
}

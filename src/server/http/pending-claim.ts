/** A claim made over HTTP, until it is granted and detached. */

import type { LostReason } from "../../errors.ts";
import type { Answer, Claim, ClaimId } from "../../spi/driver.ts";
import { randomId } from "../../util/ids.ts";
import type { Principal } from "../auth/access-control.ts";
import type { MaybePromise } from "../backend.ts";
import { drainingError, RequestError } from "../backend.ts";
import type { LockService } from "../service.ts";
import type { NotificationSink } from "../session/session.ts";
import { Session } from "../session/session.ts";

/**
 * Each pending claim has its own session. So it can be suspended, resumed and ended on its own: it is connected only while
 * a request waits for it.
 */
export class PendingClaim implements NotificationSink {
  readonly claim: Claim;
  readonly session: Session;
  /** Wakes the request that waits for the claim; null: no request waits, and the claim is kept until `expiresAt`. */
  wake: (() => void) | null = null;
  /** When the last call to the store was sent: the lease in its answer runs from then at the earliest. */
  lastCallAt = 0;
  /** When the claim leaves the queue unless a request waits for it again. */
  expiresAt = 0;
  /** The last push of the store that has not been handled yet; "ask": a recheck. */
  notification: Answer | "ask" | null = null;
  /** Why the claim was lost, for example released by another request; null: not as far as known. */
  lossReason: LostReason | null = null;
  // for the DeadlineHeap
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

/** A session for one request. */
export function createRequestSession(principal: Principal, now: number, label = ""): Session {
  const session = new Session({ session: randomId(), label, pid: null, pidStart: null }, false, now);
  session.principal = principal;
  // Not saved: recovery need not wait for this session. Its grant is either in the journal, or no client was told of it.
  session.isPersisted = true;
  return session;
}

/** Calls the backend and sends the notifications that result. @throws RequestError DRAINING: the server is stopping */
export async function callBackend<T>(service: LockService, call: () => MaybePromise<T>): Promise<T> {
  if (service.isDraining) throw drainingError();
  try {
    const result = call();
    // the call may need the timer to finish: a long list is built in slices
    if (result instanceof Promise) service.endTurn();
    return await result;
  } finally {
    service.endTurn();
  }
}

/** Renews these claims and gives the answers. @throws RequestError RECLAIMING or STORE if the status of one is unknown */
export async function renewAll(
  service: LockService,
  session: Session,
  claims: readonly Claim[],
): Promise<readonly Answer[]> {
  const items = claims.map((claim) => ({ id: claim.id, claim }));
  return (await callBackend(service, () => service.calls.renew(session, items))).map((answer) => {
    if (answer !== undefined) return answer;
    if (service.backend.recoveryRemainingMs() === 0)
      throw new RequestError("STORE", "the server could not query its store about this claim");
    throw new RequestError(
      "RECLAIMING",
      "the server is recovering after a restart and does not know yet which locks are held",
    );
  });
}

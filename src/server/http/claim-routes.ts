/** The routes to acquire a lock, to wait for it, to renew it and to release it. */

import type { LostReason } from "../../errors.ts";
import { describePause } from "../../errors.ts";
import type { DetachedClaim } from "../../protocol/lock-reference.ts";
import { encodeReference } from "../../protocol/lock-reference.ts";
import type { Claim, Pause } from "../../spi/driver.ts";
import { publicTag } from "../../util/ids.ts";
import type { Principal } from "../auth/access-control.ts";
import type { LockService } from "../service.ts";
import { callBackend, createRequestSession } from "./pending-claim.ts";
import type { ClaimOutcome, PendingClaims } from "./pending-claims.ts";
import { WAIT_GRACE_MS } from "./pending-claims.ts";
import { invalidField, Problem } from "./problem.ts";
import { readBody } from "./read-request.ts";
import { ReferenceOperations } from "./reference-operations.ts";
import type { HttpReply, RequestContext, Route } from "./request-context.ts";
import { jsonReply } from "./request-context.ts";
import { parseClaimRequest, parseReleaseRequest, parseRenewRequest, parseWaitRequest, WAIT_PREFIX } from "./schemas.ts";

/** For a refused claim with many keys, the holders of at most this many keys are looked up. */
const MAX_HOLDER_LOOKUPS = 4;
const NOT_FREE = "the lock is not free";

export function claimRoutes(service: LockService, pendingClaims: PendingClaims): readonly Route[] {
  const { backend, calls, limits, clock } = service;
  const parseBody = ({ incoming }: RequestContext): Promise<object> =>
    readBody(incoming, limits.lineBytes, limits.depth);
  const references = new ReferenceOperations(service, pendingClaims);
  const hasFencing = (): boolean => backend.traits(false).fencing;

  async function claim(call: RequestContext): Promise<HttpReply> {
    const startedAt = clock.now();
    const { principal, disconnected } = call;
    const defaultLabel = call.address === "" ? "http" : `http ${call.address}`;
    const request = parseClaimRequest(await parseBody(call), limits, backend.traits(false), defaultLabel);
    const outcome = await pendingClaims.claim(principal, request.claim, startedAt + request.waitMs, disconnected);
    if (outcome.state === "none" && request.waitMs === 0) {
      throw outcome.paused === undefined
        ? await findBusyProblem(principal, request.claim)
        : pausedProblem(outcome.paused);
    }
    return toReply(outcome, principal);
  }

  async function wait(call: RequestContext): Promise<HttpReply> {
    const startedAt = clock.now();
    const { reference, waitMs } = parseWaitRequest(await parseBody(call));
    const [{ claim: waitingClaim }] = reference.parts as readonly [DetachedClaim];
    const { principal, disconnected } = call;
    const outcome = await pendingClaims.wait(
      principal,
      { ...waitingClaim, wait: true },
      startedAt + waitMs,
      disconnected,
    );
    return toReply(outcome, principal);
  }

  async function renew(call: RequestContext): Promise<HttpReply> {
    const { parts, text } = parseRenewRequest(await parseBody(call));
    if (parts.some((part) => part.claim.ttlMs === "session")) {
      throw invalidField("reference", "session", "this lock lasts as long as its session and needs no renewal");
    }
    const outcome = await references.renew(call.principal, parts);
    if (outcome.state !== "held") throw lossProblem(outcome);
    const { remainingMs, token } = outcome;
    return jsonReply(200, {
      state: "held",
      ...describeParts(parts),
      reference: text,
      token: formatToken(token),
      remainingMs,
    });
  }

  async function release(call: RequestContext): Promise<HttpReply> {
    const { parts } = parseReleaseRequest(await parseBody(call));
    const outcome = await references.release(call.principal, parts);
    if (outcome.state !== "held") throw lossProblem(outcome, "release");
    return jsonReply(200, { state: "released", ...describeParts(parts) });
  }

  function formatToken(token: bigint): string | null {
    return hasFencing() ? String(token) : null;
  }

  function toReply(outcome: ClaimOutcome, principal: Principal): HttpReply {
    if (outcome.state === "none") throw principal.isValid ? lossProblem(outcome) : authProblem();
    const { claim } = outcome;
    const keys = claim.locks.map(({ key }) => key);
    const tag = publicTag(claim.id);
    if (outcome.state === "waiting") {
      const reference = WAIT_PREFIX + encodeReference([{ claim, firstToken: 0n, token: 0n, prefix: "" }]);
      const { paused } = outcome;
      return jsonReply(202, {
        state: "waiting",
        tag,
        keys,
        reference,
        graceMs: WAIT_GRACE_MS,
        ...(paused && { paused }),
      });
    }
    const { token, remainingMs } = outcome;
    const reference = encodeReference([{ claim, firstToken: token, token, prefix: "" }]);
    return jsonReply(201, { state: "held", tag, keys, reference, token: formatToken(token), remainingMs });
  }

  /** The problem for a claim that was not granted at once. It names a holder if the client may inspect the key. */
  async function findBusyProblem(principal: Principal, { locks }: Claim): Promise<Problem> {
    for (const { key } of locks.slice(0, MAX_HOLDER_LOOKUPS)) {
      if (!principal.can("inspect", key)) continue;
      const { views } = await callBackend(service, () =>
        calls.list(createRequestSession(principal, clock.now()), { key }, MAX_HOLDER_LOOKUPS, undefined),
      );
      const holder = views.find(({ answer }) => answer.state === "held");
      if (holder !== undefined) return new Problem("BUSY", "held", NOT_FREE, { holder: holder.label });
    }
    return new Problem("BUSY", "held", NOT_FREE);
  }

  return [
    { method: "POST", path: "/v1/claims", handle: claim },
    { method: "POST", path: "/v1/claims/wait", handle: wait },
    { method: "POST", path: "/v1/claims/renew", handle: renew },
    { method: "POST", path: "/v1/claims/release", handle: release },
  ];
}

/** Not BUSY: during a pause it is unknown whether the lock is held. */
function pausedProblem(pause: Pause): Problem {
  const message = describePause(pause);
  return new Problem("PAUSED", pause.reason, message, { retryMs: pause.remainingMs });
}

function describeParts(parts: readonly DetachedClaim[]): { readonly tag: string; readonly keys: readonly string[] } {
  const [first] = parts as readonly [DetachedClaim];
  return { tag: publicTag(first.claim.id), keys: parts.flatMap(({ claim }) => claim.locks.map(({ key }) => key)) };
}

const LOSS_TEXTS: Readonly<Record<LostReason, string>> = {
  expired: "its lease has ended, or no request waited for it any more",
  released: "it was released already",
  revoked: "an operator has revoked it",
  maxHold: "it was held for longer than allowed",
  unknown: "the server does not know it: it was released, expired long ago, or belongs to another server",
};

/** A claim lost for one of these reasons keeps its queue entry until it is released. */
const STILL_QUEUED: ReadonlySet<LostReason> = new Set(["revoked", "maxHold"]);

function lossProblem(outcome: ClaimOutcome, operation?: "release"): Problem {
  const reason = outcome.state === "none" ? outcome.reason : "unknown";
  const effect = operation === "release" && STILL_QUEUED.has(reason) ? "it is released now" : "nothing was changed";
  return new Problem("LOCK_LOST", reason, `not held by this reference: ${LOSS_TEXTS[reason]}; ${effect}`);
}

/** The credential was removed while the request waited. */
function authProblem(): Problem {
  return new Problem("AUTH", "credential", "no valid credential was given");
}

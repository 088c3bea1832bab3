/** The routes to acquire a lock, to wait for it, to renew it and to release it. */

import { createRoute } from "@hono/zod-openapi";
import type { Principal } from "../../auth/access-control.ts";
import { authorizeAcquire } from "../../auth/authorize.ts";
import type { LostReason } from "../../errors.ts";
import { describePause } from "../../errors.ts";
import type { DetachedClaim } from "../../protocol/lock-reference.ts";
import { encodeReference } from "../../protocol/lock-reference.ts";
import { drainingError } from "../../server/request-error.ts";
import type { Claim, Pause } from "../../spi/driver.ts";
import { publicTag } from "../../util/ids.ts";
import type { ClaimOutcome } from "../claim-outcome.ts";
import { unknownOutcome } from "../claim-outcome.ts";
import { WAIT_GRACE_MS } from "../place.ts";
import type { References } from "../references.ts";
import type { GatewayService } from "../service.ts";
import type { HttpContext } from "./context.ts";
import { clientAddress, jsonResponse, readBody } from "./context.ts";
import { invalidField, Problem } from "./problem.ts";
import type { Routes } from "./route-parts.ts";
import { jsonRequest, postProblemResponses, response } from "./route-parts.ts";
import type { ParsedReference } from "./schemas.ts";
import {
  Held,
  parseClaimRequest,
  parseReleaseRequest,
  parseRenewRequest,
  parseWaitRequest,
  REQUESTS,
  Released,
  WAIT_PREFIX,
  Waiting,
} from "./schemas.ts";

/** For a refused claim with many keys, the holders of at most this many keys are looked up. */
const MAX_HOLDER_LOOKUPS = 4;
const NOT_FREE = "the lock is not free";
/** For the examples. */
const REFERENCE = "hf1.eyJwIjoiIiwiYyI6W1tdXX0.k3vq7m2a";

export const CLAIM_ROUTES: Routes<keyof ClaimRoutes> = {
  claim: createRoute({
    method: "post",
    path: "/v1/claims",
    summary: "Acquire a lock",
    request: jsonRequest(REQUESTS.claim, { key: "invoice:42", ttl: "30s", wait: "10s", label: "nightly report" }),
    responses: {
      201: response("The lock is held by its reference until it is released or its lease ends.", Held),
      202: response(
        "The claim is still waiting. POST its reference to /v1/claims/wait within graceMs, or it leaves the queue.",
        Waiting,
      ),
      ...postProblemResponses("BUSY", "LOCK_LOST", "LIMIT", "UNSUPPORTED", "PAUSED"),
    },
  }),
  wait: createRoute({
    method: "post",
    path: "/v1/claims/wait",
    summary: "Continue to wait for a lock",
    request: jsonRequest(REQUESTS.wait, { reference: WAIT_PREFIX + REFERENCE, wait: "25s" }),
    responses: {
      201: response("The lock is held.", Held),
      202: response("The claim is still waiting.", Waiting),
      ...postProblemResponses("LOCK_LOST"),
    },
  }),
  renew: createRoute({
    method: "post",
    path: "/v1/claims/renew",
    summary: "Renew a lease",
    request: jsonRequest(REQUESTS.renew, { reference: REFERENCE }),
    responses: { 200: response("The lease is renewed.", Held), ...postProblemResponses("LOCK_LOST") },
  }),
  release: createRoute({
    method: "post",
    path: "/v1/claims/release",
    summary: "Release a lock, or withdraw a waiting claim",
    request: jsonRequest(REQUESTS.release, { reference: REFERENCE }),
    responses: {
      200: response("The claim was held or waiting until now, and is released.", Released),
      ...postProblemResponses("LOCK_LOST"),
    },
  }),
};

export class ClaimRoutes {
  readonly #service: GatewayService;
  readonly #references: References;
  /** Called when a claim waits because the store grants nothing new for a while. */
  readonly #onPause: (pause: Pause) => void;

  constructor(service: GatewayService, references: References, onPause: (pause: Pause) => void) {
    this.#service = service;
    this.#references = references;
    this.#onPause = onPause;
  }

  async claim(c: HttpContext): Promise<Response> {
    const { store, places, limits, clock } = this.#service;
    const startedAt = clock.now();
    const principal = c.get("principal");
    const address = clientAddress(c);
    const defaultLabel = address === "" ? "http" : `http ${address}`;
    const { traits } = await store.open(principal);
    const request = parseClaimRequest(await this.#readBody(c), limits, traits, defaultLabel);
    authorizeAcquire(principal, request.claim);
    const deadline = startedAt + request.waitMs;
    const outcome = await places.claim(principal, request.claim, deadline, c.get("disconnected"));
    this.#notePause(outcome);
    if (outcome.state === "none" && request.waitMs === 0) {
      this.#checkStillServed(principal, request.claim);
      throw outcome.paused === undefined
        ? await this.#findBusyProblem(principal, request.claim)
        : pausedProblem(outcome.paused);
    }
    return this.#toResponse(c, outcome, request.claim);
  }

  async wait(c: HttpContext): Promise<Response> {
    const startedAt = this.#service.clock.now();
    const { reference, waitMs } = parseWaitRequest(await this.#readBody(c));
    this.#checkSeal(c, reference);
    const [{ claim }] = reference.parts as readonly [DetachedClaim];
    authorizeAcquire(c.get("principal"), claim);
    const deadline = startedAt + waitMs;
    const waiting = { ...claim, wait: true };
    const outcome = await this.#service.places.wait(c.get("principal"), waiting, deadline, c.get("disconnected"));
    this.#notePause(outcome);
    return this.#toResponse(c, outcome, waiting);
  }

  async renew(c: HttpContext): Promise<Response> {
    const parsed = parseRenewRequest(await this.#readBody(c));
    this.#checkSeal(c, parsed);
    const { parts, text } = parsed;
    if (parts.some((part) => part.claim.ttlMs === "session")) {
      throw invalidField("reference", "session", "this lock lasts as long as its session and needs no renewal");
    }
    const outcome = await this.#references.renew(c.get("principal"), parts);
    if (outcome.state !== "held") throw lossProblem(outcome);
    const { remainingMs, token } = outcome;
    const grant = { reference: text, token: await this.#formatToken(c, token), remainingMs };
    return jsonResponse(c, { state: "held", ...describeParts(parts), ...grant });
  }

  async release(c: HttpContext): Promise<Response> {
    const parsed = parseReleaseRequest(await this.#readBody(c));
    this.#checkSeal(c, parsed);
    const { parts } = parsed;
    const outcome = await this.#references.release(c.get("principal"), parts);
    if (outcome.state !== "held") throw lossProblem(outcome, "release");
    return jsonResponse(c, { state: "released", ...describeParts(parts) });
  }

  #notePause(outcome: ClaimOutcome): void {
    if (outcome.state !== "held" && outcome.paused !== undefined) this.#onPause(outcome.paused);
  }

  #readBody(c: HttpContext): Promise<object> {
    return readBody(c, this.#service.limits.lineBytes);
  }

  /** The reference of a claim, which only the account of this request may use. */
  #toReference(c: HttpContext, claim: Claim, token: bigint): string {
    const reference = encodeReference([{ claim, firstToken: token, token, prefix: "" }]);
    return this.#service.seal?.seal(reference, c.get("principal").name) ?? reference;
  }

  /** @throws Problem LOCK_LOST unless the reference was made for this account */
  #checkSeal(c: HttpContext, { text, isWaiting }: ParsedReference): void {
    const { seal } = this.#service;
    if (seal === null) return;
    const account = seal.accountOf(isWaiting ? text.slice(WAIT_PREFIX.length) : text);
    if (account !== c.get("principal").name) throw lossProblem(unknownOutcome());
  }

  async #formatToken(c: HttpContext, token: bigint): Promise<string | null> {
    const { traits } = await this.#service.store.open(c.get("principal"));
    return traits.fencing ? String(token) : null;
  }

  async #toResponse(c: HttpContext, outcome: ClaimOutcome, claim: Claim): Promise<Response> {
    const principal = c.get("principal");
    if (outcome.state === "none") {
      this.#checkStillServed(principal, claim);
      throw lossProblem(outcome);
    }
    const keys = claim.locks.map(({ key }) => key);
    const tag = publicTag(outcome.claim.id);
    if (outcome.state === "waiting") {
      const reference = WAIT_PREFIX + this.#toReference(c, outcome.claim, 0n);
      const { paused } = outcome;
      const body = { state: "waiting", tag, keys, reference, graceMs: WAIT_GRACE_MS, ...(paused && { paused }) };
      return jsonResponse(c, body, 202);
    }
    const { token, remainingMs } = outcome;
    const reference = this.#toReference(c, outcome.claim, token);
    const grant = { reference, token: await this.#formatToken(c, token), remainingMs };
    return jsonResponse(c, { state: "held", tag, keys, ...grant }, 201);
  }

  /** What may have changed while the request waited. @throws Problem or RequestError: AUTH, FORBIDDEN, DRAINING */
  #checkStillServed(principal: Principal, claim: Claim): void {
    if (!principal.isValid) throw authProblem();
    authorizeAcquire(principal, claim);
    if (this.#service.isDraining) throw drainingError();
  }

  /** The problem for a claim that was not granted at once. It names a holder if the client may inspect the key. */
  async #findBusyProblem(principal: Principal, { locks }: Claim): Promise<Problem> {
    const { store } = this.#service;
    for (const { key } of locks.slice(0, MAX_HOLDER_LOOKUPS)) {
      if (!principal.can("inspect", key)) continue;
      const { items } = await store.list(principal, { key }, MAX_HOLDER_LOOKUPS);
      const holder = items.find(({ answer }) => answer.state === "held");
      if (holder !== undefined) return new Problem("BUSY", "held", NOT_FREE, { holder: holder.label });
    }
    return new Problem("BUSY", "held", NOT_FREE);
  }
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

/** Acquire, wait, renew and release with nothing but HTTP. */

import { pauseText } from "../../errors.ts";
import { tagOf } from "../../ids.ts";
import { readReference } from "../../read-reference.ts";
import type { Referenced } from "../../reference.ts";
import { makeReference } from "../../reference.ts";
import type { Claim, LostReason, Pause } from "../../spi/driver.ts";
import type { Principal } from "../access.ts";
import type { Hub } from "../hub.ts";
import type { Call, Reply, Route } from "./call.ts";
import { json } from "./call.ts";
import type { Body } from "./fields.ts";
import { neededText, readBody } from "./fields.ts";
import { Holding } from "./holding.ts";
import { asked, visitor } from "./place.ts";
import type { Outcome, Places } from "./places.ts";
import { GRACE_MS } from "./places.ts";
import { invalid, Problem } from "./problem.ts";
import { checkReferenced } from "./referenced.ts";
import { waitFrom, wantedFrom } from "./wanted.ts";

/** Stands before the reference of a claim that still waits: commands and libraries take only the ones that are held. */
const WAITING = "wait.";
/** Of how many keys of a claim that was refused the holder is looked up. */
const MOST_LOOKS = 4;

export function claimRoutes(hub: Hub, places: Places): readonly Route[] {
  const { backend, limits, clock } = hub;
  const bodyOf = ({ incoming }: Call): Promise<Body> => readBody(incoming, limits.lineBytes, limits.depth);
  const holding = new Holding(hub, places);
  const fencing = (): boolean => backend.traits(false).fencing;

  async function claim(call: Call): Promise<Reply> {
    const startedAt = clock.now();
    const { principal, gone } = call;
    const from = call.address === "" ? "http" : `http ${call.address}`;
    const wanted = wantedFrom(await bodyOf(call), limits, backend.traits(false), from);
    checkRights(principal, wanted.claim);
    const outcome = await places.claim(principal, wanted.claim, startedAt + wanted.waitMs, gone);
    if (outcome.state === "none" && wanted.waitMs === 0) {
      throw outcome.paused === undefined ? await busy(principal, wanted.claim) : pausedProblem(outcome.paused);
    }
    return told(outcome, principal);
  }

  async function wait(call: Call): Promise<Reply> {
    const startedAt = clock.now();
    const body = await bodyOf(call);
    const { parts, waits } = referenceIn(body);
    if (!waits) throw invalid("reference", "held", "the reference is of a claim that was held, not of one that waits");
    const until = startedAt + waitFrom(body);
    const [{ claim: placed }] = parts as readonly [Referenced];
    return told(await places.wait(call.principal, { ...placed, wait: true }, until, call.gone), call.principal);
  }

  async function renew(call: Call): Promise<Reply> {
    const { parts, waits, text } = referenceIn(await bodyOf(call));
    if (waits) throw invalid("reference", "waiting", "the claim still waits: POST it to /v1/claims/wait");
    if (parts.some((part) => part.claim.ttlMs === "session")) {
      throw invalid("reference", "session", "this lock ends with its session and needs no renewal");
    }
    const outcome = await holding.renew(call.principal, parts);
    if (outcome.state !== "held") throw lost(outcome);
    const { ttlMs, token } = outcome;
    return json(200, { state: "held", ...named(parts), reference: text, token: shown(token), ttlMs });
  }

  async function release(call: Call): Promise<Reply> {
    const { parts } = referenceIn(await bodyOf(call));
    const outcome = await holding.release(call.principal, parts);
    if (outcome.state !== "held") throw lost(outcome, "release");
    return json(200, { state: "released", ...named(parts) });
  }

  function shown(token: bigint): string | null {
    return fencing() ? String(token) : null;
  }

  function told(outcome: Outcome, principal: Principal): Reply {
    if (outcome.state === "none") throw principal.valid ? lost(outcome) : gone();
    const { claim: of } = outcome;
    const keys = of.holds.map(({ key }) => key);
    const tag = tagOf(of.id);
    if (outcome.state === "waiting") {
      const reference = WAITING + makeReference([{ claim: of, run: 0n, token: 0n, prefix: "" }]);
      const { paused } = outcome;
      return json(202, { state: "waiting", tag, keys, reference, graceMs: GRACE_MS, ...(paused && { paused }) });
    }
    const { token, ttlMs } = outcome;
    const reference = makeReference([{ claim: of, run: token, token, prefix: "" }]);
    return json(201, { state: "held", tag, keys, reference, token: shown(token), ttlMs });
  }

  /** Why a claim that does not wait was not granted, as far as its sender may know. */
  async function busy(principal: Principal, { holds }: Claim): Promise<Problem> {
    for (const { key } of holds.slice(0, MOST_LOOKS)) {
      if (!principal.may("inspect", key)) continue;
      const { views } = await asked(hub, () =>
        backend.list(visitor(principal, clock.now()), { key }, MOST_LOOKS, undefined),
      );
      const holder = views.find(({ answer }) => answer.state === "held");
      if (holder !== undefined) return new Problem(409, "BUSY", "held", "not free", { holder: holder.label });
    }
    return new Problem(409, "BUSY", "held", "not free");
  }

  return [
    { method: "POST", path: "/v1/claims", handle: claim },
    { method: "POST", path: "/v1/claims/wait", handle: wait },
    { method: "POST", path: "/v1/claims/renew", handle: renew },
    { method: "POST", path: "/v1/claims/release", handle: release },
  ];
}

/** Unknown is not busy. */
function pausedProblem(pause: Pause): Problem {
  const why = pauseText(pause);
  return new Problem(503, "PAUSED", pause.reason, why, { retryMs: pause.remainingMs });
}

function checkRights(principal: Principal, { holds }: Claim): void {
  if (holds.every(({ key }) => principal.may("acquire", key))) return;
  throw new Problem(403, "FORBIDDEN", "rights", "this credential may not take such a lock");
}

function referenceIn(body: Body): { parts: readonly Referenced[]; waits: boolean; text: string } {
  const text = neededText(body, "reference").trim();
  const waits = text.startsWith(WAITING);
  try {
    const parts = readReference(waits ? text.slice(WAITING.length) : text);
    checkReferenced(parts);
    return { parts, waits, text };
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw invalid("reference", "malformed", error.message);
  }
}

function named(parts: readonly Referenced[]): { readonly tag: string; readonly keys: readonly string[] } {
  const [first] = parts as readonly [Referenced];
  return { tag: tagOf(first.claim.id), keys: parts.flatMap(({ claim }) => claim.holds.map(({ key }) => key)) };
}

const WHY: Readonly<Record<LostReason, string>> = {
  expired: "its lease has ended, or nobody came back to wait for it",
  released: "it was given back already",
  revoked: "an operator has taken it back",
  maxHold: "it was held for longer than it may",
  unknown: "the server knows nothing of it: it was given back, or ended long ago, or is another server's",
};

/** What was lost so keeps its place until it is given back. */
const KEPT_PLACE: ReadonlySet<LostReason> = new Set(["revoked", "maxHold"]);

function lost(outcome: Outcome, asked?: "release"): Problem {
  const why = outcome.state === "none" ? outcome.reason : "unknown";
  const done = asked === "release" && KEPT_PLACE.has(why) ? "it is given back now" : "nothing was changed";
  return new Problem(409, "LOCK_LOST", why, `not held by this reference: ${WHY[why]}; ${done}`);
}

/** Its credential was taken away while it waited. */
function gone(): Problem {
  return new Problem(401, "AUTH", "credential", "no valid credential was given");
}

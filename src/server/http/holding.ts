/** What may be done with a reference: whoever has it holds the lock, over HTTP or by another way. */

import type { Referenced } from "../../reference.ts";
import type { Answer } from "../../spi/driver.ts";
import type { Principal } from "../access.ts";
import { Refusal } from "../backend.ts";
import type { Hub } from "../hub.ts";
import { asked, Place, renewed } from "./place.ts";
import type { Outcome, Places } from "./places.ts";
import { heldUntil, unknown } from "./places.ts";

type Lost = Outcome & { readonly state: "none" };

export class Holding {
  readonly #hub: Hub;
  readonly #places: Places;

  constructor(hub: Hub, places: Places) {
    this.#hub = hub;
    this.#places = places;
  }

  /** Restarts the leases of a reference. */
  async renew(principal: Principal, parts: readonly Referenced[]): Promise<Outcome> {
    const [first] = parts as readonly [Referenced];
    const { backend, clock } = this.#hub;
    const place = new Place(principal, first.claim, clock.now());
    const answers = await this.#ask(place, parts);
    if (isAnother(answers, parts)) return unknown();
    const lost = lossOf(answers);
    if (lost !== null) return lost;
    // whoever held it by a session of its own has given the reference away
    if (backend.owns(place.session)) {
      const ids = parts.map(({ claim }) => claim.id);
      const there = await asked(this.#hub, () => backend.detach(place.session, ids));
      if (there.includes(false)) return unknown();
    }
    const leftMs = Math.min(...answers.map((answer) => (answer.state === "held" ? answer.ttlMs : 0)));
    return heldUntil(place.askedAt + leftMs, clock.now(), first.claim, first.token);
  }

  /** Gives back what a reference stands for, waiting or held. "held" means that it was, until now. */
  async release(principal: Principal, parts: readonly Referenced[]): Promise<Outcome> {
    const [first] = parts as readonly [Referenced];
    const { backend, clock } = this.#hub;
    const known = this.#places.of(principal, first.claim.id);
    if (known === null) return unknown();
    const place = known ?? new Place(principal, first.claim, clock.now());
    const answers = await this.#standing(place, parts);
    if (isAnother(answers, parts)) return unknown();
    // a revoked claim keeps its place until it is released
    const items = parts.map(({ claim }) => ({ id: claim.id, unanswered: undefined }));
    const there = await asked(this.#hub, () => backend.release(place.session, items));
    if (known !== undefined) this.#places.forget(known, "released");
    const lost = lossOf(answers);
    // an account that may not renew any more may still give back what it placed
    const isGone = lost !== null && (lost.reason !== "unknown" || there.includes(false));
    if (isGone) return lost;
    if (there.includes(false)) return unknown();
    return { state: "held", claim: first.claim, token: first.token, ttlMs: 0 };
  }

  /** Where the parts stand; nothing if that cannot be known, and need not be. */
  async #standing(place: Place, parts: readonly Referenced[]): Promise<readonly Answer[]> {
    // asking for a session's claim would make it ours
    if (parts.some(({ claim }) => claim.ttlMs === "session")) return [];
    try {
      return await this.#ask(place, parts);
    } catch (error) {
      // while the server learns who held what, a release is taken as said (design A.15)
      if (error instanceof Refusal && error.code === "RECLAIMING") return [];
      throw error;
    }
  }

  async #ask(place: Place, parts: readonly Referenced[]): Promise<readonly Answer[]> {
    place.askedAt = this.#hub.clock.now();
    const claims = parts.map(({ claim }) => claim);
    return renewed(this.#hub, place.session, claims);
  }
}

/** Why these are not held, or waiting, any more; null: they are. */
function lossOf(answers: readonly Answer[]): Lost | null {
  for (const answer of answers) {
    if (answer.state === "none") return { state: "none", reason: answer.reason ?? "unknown" };
  }
  return null;
}

/** Is one of them held by another grant than the reference says? */
function isAnother(answers: readonly Answer[], parts: readonly Referenced[]): boolean {
  return answers.some((answer, at) => {
    const { run } = parts[at] as Referenced;
    // a place that waited when its reference was made had no token yet
    return answer.state === "held" && run !== 0n && answer.token !== run;
  });
}

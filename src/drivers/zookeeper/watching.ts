/** Whom a claim watches: who stands in its way while it waits, its own node while it is held. */

import { blockerOf } from "../../core/line.ts";
import type { ClaimId } from "../../spi/driver.ts";
import { isRefusal } from "./client/errors.ts";
import type { ZooKeeper } from "./client/zookeeper.ts";
import { REVOKE } from "./data.ts";
import type { Seat } from "./names.ts";
import type { NodePlace, Places } from "./places.ts";

export class Watching {
  readonly #zk: ZooKeeper;
  readonly #places: Places;
  readonly #changed: (id: ClaimId) => void;

  /** changed: a claim's answer may have changed. */
  constructor(zk: ZooKeeper, places: Places, changed: (id: ClaimId) => void) {
    this.#zk = zk;
    this.#places = places;
    this.#changed = changed;
  }

  /**
   * Exactly one watch a waiting claim. It is set behind the look on the same connection: if the blocker has gone in
   * between, the answer says so, and the claim is asked about again.
   */
  blocker(place: NodePlace, line: readonly Seat[], mine: number): void {
    const blocker = blockerOf(line, mine);
    const target = blocker === "line" ? "line" : (line[blocker] as Seat).name;
    if (place.watching === target) return;
    place.watching = target;
    const again = (): void => {
      if (place.watching !== target) return;
      place.watching = "";
      place.isWoken = true;
      if (place.at !== "gone") this.#changed(place.claim.id);
    };
    const fired = (event: unknown): void => {
      if (event !== null) again();
    };
    if (target === "line") {
      const before = line.length;
      this.#zk
        .children(place.folder, fired)
        .then(({ names }) => (names.length < before ? again() : undefined))
        .catch(again);
    } else {
      this.#zk
        .exists(`${place.folder}/${target}`, fired)
        .then((stat) => (stat === null ? again() : undefined))
        .catch(again);
    }
  }

  /** As own(), when this turn of the event loop is over: a lock that was released by then costs no request more. */
  ownSoon(place: NodePlace): void {
    setImmediate(() => {
      if (!place.isWatched && place.checking === null) this.own(place);
    });
  }

  /**
   * Tells when our node is deleted, or revoked by its data (Curator's convention). Nobody but who revokes changes it: one
   * that was changed and is gone was revoked, and removed at once.
   */
  own(place: NodePlace, isChanged = false): void {
    if (place.at !== "there") return;
    const told = this.#zk.get(place.path, (event) => {
      // there is nothing left to ask about
      if (event?.kind === "deleted") this.#isDeleted(place);
      else if (event !== null) this.own(place, true);
    });
    const checking = told.then(
      ({ data }) => {
        place.isWatched = true;
        if (data.equals(REVOKE)) this.#isRevoked(place);
      },
      (error: unknown) => {
        // where it could not be asked, the next renewal does
        place.isWatched = false;
        if (place.at !== "there" || !isRefusal(error, "NO_NODE")) return;
        if (isChanged) this.#isRevoked(place);
        this.#isDeleted(place);
      },
    );
    place.checking = checking;
    void checking.finally(() => {
      if (place.checking === checking) place.checking = null;
    });
  }

  #isDeleted(place: NodePlace): void {
    if (place.at !== "there") return;
    this.#places.end(place, null);
    this.#changed(place.claim.id);
  }

  #isRevoked(place: NodePlace): void {
    if (place.revoked || place.at !== "there") return;
    place.revoked = true;
    this.#changed(place.claim.id);
  }
}

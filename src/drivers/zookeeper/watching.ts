/** Whom a claim watches: who stands in its way while it waits, its own node while it is held. */

import { blockerOf } from "../../core/line.ts";
import type { ClaimId } from "../../spi/driver.ts";
import { isRefusal } from "./client/errors.ts";
import { turnOver } from "./client/recipes.ts";
import type { ZooKeeper } from "./client/zookeeper.ts";
import { REVOKE } from "./data.ts";
import type { Seat } from "./names.ts";
import type { NodePlace, Places } from "./places.ts";

/** A watch of a whole line. */
interface LineWatch {
  /** With the line as each has seen it. */
  readonly waiting: Map<NodePlace, readonly Seat[]>;
  /** What stood there when it was set; null: that is not known yet. */
  there: ReadonlySet<string> | null;
  /** Has any of that line gone? Hundreds have seen the same one. */
  readonly checked: WeakMap<readonly Seat[], boolean>;
}

/** Had some of this line gone when the watch was set? Nobody is told of those. */
function misses({ there, checked }: LineWatch, line: readonly Seat[]): boolean {
  if (there === null) return false;
  let isOld = checked.get(line);
  if (isOld === undefined) {
    isOld = line.some(({ name }) => name !== "" && !there.has(name));
    checked.set(line, isOld);
  }
  return isOld;
}

export class Watching {
  readonly #zk: ZooKeeper;
  readonly #places: Places;
  readonly #changed: (id: ClaimId) => void;
  /** By the path of the node that must go first. */
  readonly #waiting = new Map<string, Set<NodePlace>>();
  /** By the folder of the line. */
  readonly #lines = new Map<string, LineWatch>();
  #turn = 0;

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
    const target = blocker === "line" ? place.folder : `${place.folder}/${(line[blocker] as Seat).name}`;
    if (place.watching === target) return;
    this.leave(place);
    place.watching = target;
    if (blocker === "line") this.#line(place, line);
    else this.#node(place, target);
  }

  /** It waits no more. What was asked of the servers for it they tell nobody. */
  leave(place: NodePlace): void {
    this.#waiting.get(place.watching)?.delete(place);
    this.#lines.get(place.watching)?.waiting.delete(place);
    place.watching = "";
  }

  /** All that wait for one node share its watch, however many come and go while it stands. */
  #node(place: NodePlace, path: string): void {
    const others = this.#waiting.get(path);
    if (others !== undefined) {
      others.add(place);
      return;
    }
    const waiting = new Set([place]);
    this.#waiting.set(path, waiting);
    const gone = (): void => {
      if (this.#waiting.get(path) === waiting) this.#waiting.delete(path);
      for (const one of waiting) this.#wake(one, path);
    };
    const fired = (event: unknown): void => {
      // with the session all places end
      if (event === null) this.#waiting.delete(path);
      else gone();
    };
    this.#zk
      .exists(path, fired)
      .then((stat) => {
        if (stat !== null) return;
        gone();
        // where that cannot be said, the connection is lost, and with it what it was about
        this.#zk.forget(path).catch(() => undefined);
      })
      .catch(gone);
  }

  /** Any removal counts: the first change of the list ends it. All that wait for one in a line share its watch. */
  #line(place: NodePlace, line: readonly Seat[]): void {
    const path = place.folder;
    const known = this.#lines.get(path);
    const watch = known ?? { waiting: new Map(), there: null, checked: new WeakMap() };
    watch.waiting.set(place, line);
    if (known === undefined) this.#watchLine(path, watch);
    // its look may be older than the watch
    else if (misses(watch, line)) queueMicrotask(() => this.#wake(place, path));
  }

  #watchLine(path: string, watch: LineWatch): void {
    this.#lines.set(path, watch);
    const again = (): void => {
      if (this.#lines.get(path) === watch) this.#lines.delete(path);
      for (const place of watch.waiting.keys()) this.#wake(place, path);
    };
    const fired = (event: unknown): void => {
      // with the session all places end
      if (event === null) this.#lines.delete(path);
      else again();
    };
    this.#zk
      .children(path, fired)
      .then(({ names }) => {
        watch.there = new Set(names);
        for (const [place, line] of watch.waiting) if (misses(watch, line)) this.#wake(place, path);
      })
      .catch(again);
  }

  #wake(place: NodePlace, path: string): void {
    if (place.watching !== path) return;
    place.watching = "";
    place.isWoken = true;
    if (place.at !== "gone") this.#changed(place.claim.id);
  }

  /** As own(), when this turn of the event loop is over: a lock that was released by then costs no request more. */
  ownSoon(place: NodePlace): void {
    void turnOver().then(() => {
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

  /**
   * Asks whether the node of one of these is there: of the one that was not asked about for longest. Events are what tells
   * that a node is gone; should one be lost, for whatever reason, its holder learns of it all the same, by renewals.
   */
  async confirmOne(held: readonly NodePlace[]): Promise<void> {
    let next: NodePlace | undefined;
    for (const place of held) if (next === undefined || place.confirmedIn < next.confirmedIn) next = place;
    if (next === undefined) return;
    next.confirmedIn = ++this.#turn;
    if ((await this.#zk.exists(next.path)) === null) this.#isDeleted(next);
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

/** Making a claim's node and taking it away again: what a claim, its polls and its release have in common. */

import type { Answer } from "../../spi/driver.ts";
import { FatalDriverError } from "../../spi/driver.ts";
import { isRefusal, SessionExpiredError } from "./client/errors.ts";
import type { ZooKeeper } from "./client/zookeeper.ts";
import { fatalOf } from "./fatal.ts";
import type { Folders } from "./folders.ts";
import type { Lines } from "./lines.ts";
import type { NodePlace, Places } from "./places.ts";
import type { Watching } from "./watching.ts";

/** Those who wait aside try again within so long, each at a moment of its own, when the holder has gone. */
const SPREAD_MS = 20;

export interface PlacingOptions {
  readonly zk: ZooKeeper;
  readonly lines: Lines;
  readonly places: Places;
  readonly folders: Folders;
  readonly watching: Watching;
  /** Does a waiting claim keep its place? */
  readonly fair: boolean;
  readonly random: () => number;
}

export class Placing {
  readonly #options: PlacingOptions;

  constructor(options: PlacingOptions) {
    this.#options = options;
  }

  /** Places the claim if it is not placed yet, and says where it stands. */
  placed(place: NodePlace): Promise<Answer> {
    return this.#alone(place, () => this.#placed(place));
  }

  /** Where the claim stands among these children of its folder, read when its node was there. */
  stood(place: NodePlace, names: readonly string[]): Promise<Answer> {
    return this.#alone(place, async () => this.#kept(place, this.#options.lines.stand(place, names)));
  }

  /**
   * Invariant: of an unfair claim only one look is under way. What one call finds and leaves, as it cannot hold, another
   * must not find free in between: it would say "held" of a node that is about to be deleted.
   */
  #alone(place: NodePlace, look: () => Promise<Answer>): Promise<Answer> {
    if (this.#options.fair) return look();
    place.looking ??= look().finally(() => {
      place.looking = null;
    });
    return place.looking;
  }

  async #placed(place: NodePlace): Promise<Answer> {
    const { zk, lines, folders } = this.#options;
    place.isAside = false;
    if (place.at === "there") return place.revoked ? place.none : this.#kept(place, await lines.look(place));
    if (!folders.isReady(place.folder)) {
      await folders.ready(place.folder);
      // it was left meanwhile, when there was nothing to delete yet
      if (place.at !== "new") return place.none;
    }
    // both leave in one write: a free lock costs one round trip
    const [made, seen] = await Promise.allSettled([lines.place(place), zk.children(place.folder)]);
    if (made.status === "rejected") throw made.reason;
    const names = seen.status === "fulfilled" ? seen.value.names : [];
    return this.#kept(place, names.includes(place.name) ? lines.stand(place, names) : await lines.look(place));
  }

  /** Unfair claims leave the line again as long as they cannot hold. */
  async #kept(place: NodePlace, answer: Answer): Promise<Answer> {
    const { zk, fair } = this.#options;
    if (fair || answer.state !== "waiting" || !place.claim.wait) return answer;
    try {
      await zk.delete(place.path);
    } catch (error) {
      if (!isRefusal(error, "NO_NODE")) throw error;
    }
    place.name = "";
    if (place.at === "there") place.at = "new";
    place.isAside = true;
    return place.at === "gone" ? place.none : answer;
  }

  /** What a poll finds of a claim that waits without a node. */
  async tried(place: NodePlace): Promise<Answer> {
    const { lines, random } = this.#options;
    if (place.isWoken) {
      // all that wait for the same holder are told at once
      place.isWoken = false;
      return lines.waiting(1 + random() * SPREAD_MS);
    }
    const isFree = await lines.isFree(place);
    if (place.at !== "new") return place.none;
    return isFree ? this.placed(place) : lines.waiting();
  }

  /** Deletes the claim's node, wherever a create of it may have got to. Says whether it was ours until then. */
  async removed(place: NodePlace): Promise<boolean> {
    const { zk, lines, places, watching } = this.#options;
    const isOurs = place.isAside || (place.at === "there" && !place.revoked);
    const hasNone = place.name === "" && place.placing === null && !place.isUnsure;
    // from now on nobody else answers for it
    places.end(place, "released");
    watching.leave(place);
    place.isAside = false;
    if (hasNone) return isOurs;
    try {
      await place.placing?.catch(() => undefined);
      if (place.name === "" && !(await lines.find(place))) return false;
      await zk.delete(place.path);
      place.name = "";
      return isOurs;
    } catch (error) {
      if (error instanceof SessionExpiredError) return false;
      if (!isRefusal(error, "NO_NODE")) throw error;
      place.name = "";
      return false;
    }
  }

  /** What cannot get better is fatal, and its place is not kept. Should that fail, the core's release comes again. */
  async explained(error: unknown, place: NodePlace): Promise<unknown> {
    const fatal = fatalOf(error);
    if (fatal instanceof FatalDriverError) await this.removed(place).catch(() => undefined);
    return fatal;
  }
}

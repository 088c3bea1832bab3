/** Lines of the store: placing a node, looking where it stands, and what that means. */

import { admittedCount } from "../../core/line.ts";
import type { Answer } from "../../spi/driver.ts";
import { FatalDriverError } from "../../spi/driver.ts";
import { isRefusal } from "./client/errors.ts";
import { childrenOf, createBelow } from "./client/recipes.ts";
import type { Acl, Stat } from "./client/records.ts";
import type { ZooKeeper } from "./client/zookeeper.ts";
import { isUnknown } from "./client/zookeeper.ts";
import { dataOf } from "./data.ts";
import type { Family, Seat } from "./names.ts";
import { lineOf, nameFor, ofClaim, refusalOf } from "./names.ts";
import type { NodePlace, Places } from "./places.ts";
import type { Watching } from "./watching.ts";

/** Room in a token for the run of a local hand-off. */
const RUN = 1_024n;

export interface LinesOptions {
  readonly zk: ZooKeeper;
  readonly places: Places;
  /** Who may do what with new nodes. */
  readonly acl: () => readonly Acl[];
  readonly tokenBase: bigint;
  readonly family: Family;
  readonly watching: Watching;
}

export class Lines {
  readonly #zk: ZooKeeper;
  readonly #places: Places;
  readonly #options: LinesOptions;
  /** Hundreds of a client may wait in one line, which is read for all of them. */
  readonly #read = new WeakMap<readonly string[], ReturnType<typeof lineOf>>();

  constructor(options: LinesOptions) {
    this.#options = options;
    this.#zk = options.zk;
    this.#places = options.places;
  }

  /**
   * Makes the claim's node, if it is not there. A create whose reply was lost is found by the claim's own id, in this
   * session: a node of an earlier session of ours is about to go.
   */
  place(place: NodePlace): Promise<void> {
    place.placing ??= this.#place(place).finally(() => {
      place.placing = null;
    });
    return place.placing;
  }

  async #place(place: NodePlace): Promise<void> {
    if (place.isUnsure && (await this.find(place))) return;
    const { folder, claim } = place;
    const { acl, family } = this.#options;
    try {
      const mode = "ephemeralSequential";
      const { path, czxid } = await createBelow(this.#zk, folder, nameFor(claim.id, claim.holds[0], family), {
        mode,
        data: dataOf(claim),
        acl: acl(),
      });
      this.#isThere(place, path.slice(folder.length + 1), czxid);
    } catch (error) {
      if (isUnknown(error)) place.isUnsure = true;
      throw error;
    }
  }

  #isThere(place: NodePlace, name: string, czxid: bigint): void {
    place.name = name;
    place.czxid = czxid;
    place.isUnsure = false;
    // who left meanwhile looks for the node itself, behind us on the same connection
    if (place.at !== "gone") place.at = "there";
  }

  /** Is the node of a create without an answer there, in our session? */
  async find(place: NodePlace): Promise<boolean> {
    const { folder, claim } = place;
    // this server may not have heard yet of what another one has done for us
    const [, names] = await Promise.all([this.#synced(folder), childrenOf(this.#zk, folder)]);
    const ours = names.filter((one) => one.startsWith(ofClaim(claim.id)));
    const stats = await Promise.all(ours.map((name) => this.#zk.exists(`${folder}/${name}`)));
    place.isUnsure = false;
    const at = stats.findIndex((stat) => stat?.ephemeralOwner === this.#zk.sessionId);
    if (at === -1) return false;
    this.#isThere(place, ours[at] as string, (stats[at] as Stat).czxid);
    return true;
  }

  async #synced(folder: string): Promise<void> {
    await this.#zk.sync(folder).catch((error: unknown) => {
      if (!isRefusal(error, "NO_NODE")) throw error;
    });
  }

  /** Reads the line and says where the claim stands. */
  async look(place: NodePlace): Promise<Answer> {
    try {
      return this.stand(place, (await this.#zk.children(place.folder)).names);
    } catch (error) {
      if (isRefusal(error, "NO_NODE")) return this.#missing(place);
      throw error;
    }
  }

  /** Where the claim stands among these children of its folder. */
  stand(place: NodePlace, names: readonly string[]): Answer {
    if (place.at !== "there") return place.none;
    const line = this.#lineOf(place, names);
    const mine = line.findIndex(({ name }) => name === place.name);
    if (mine === -1) return this.#missing(place);
    if (mine < admittedCount(line)) return this.#granted(place);
    this.#options.watching.blocker(place, line, mine);
    return this.waiting();
  }

  /** recheckMs: when to ask again, if nothing is told before. */
  waiting(recheckMs: number = this.#zk.sessionMs): Answer {
    return { state: "waiting", ttlMs: this.#zk.leftMs(), recheckMs };
  }

  /** Would a claim that has no node be held if it got one now? If not, it watches who stands in its way. */
  async isFree(place: NodePlace): Promise<boolean> {
    const line = this.#lineOf(place, await childrenOf(this.#zk, place.folder));
    const [{ permits, limit }] = place.claim.holds;
    const withUs = [...line, { name: "", id: place.claim.id, number: 0, permits, limit }];
    if (admittedCount(withUs) === withUs.length) return true;
    this.#options.watching.blocker(place, withUs, line.length);
    return false;
  }

  /** @throws FatalDriverError if a place of another recipe stands there */
  #lineOf({ folder }: NodePlace, names: readonly string[]): readonly Seat[] {
    const { family } = this.#options;
    let read = this.#read.get(names);
    if (read === undefined) {
      read = lineOf(names, family);
      this.#read.set(names, read);
    }
    const { line, stranger } = read;
    if (stranger !== null) throw new FatalDriverError(refusalOf(stranger, folder, family));
    return line;
  }

  /** What is known of a held claim without asking: its watch tells when that changes. */
  held(place: NodePlace): Answer {
    const { token, claim } = place;
    const tokens = Math.min(claim.tokens, Number(RUN));
    return { state: "held", token, tokens, ttlMs: this.#zk.leftMs() };
  }

  /** The token of a node that was made by this transaction. */
  tokenOf(czxid: bigint): bigint {
    return czxid * RUN + this.#options.tokenBase;
  }

  /** Is that token one of those that were granted with this node, whose claim wanted so many? */
  hasToken(czxid: bigint, wanted: number, token: bigint): boolean {
    const first = this.tokenOf(czxid);
    return token >= first && token < first + BigInt(Math.min(wanted, Number(RUN)));
  }

  #granted(place: NodePlace): Answer {
    if (!place.isHeld) {
      const token = this.tokenOf(place.czxid);
      if (token < place.claim.floor) {
        throw new FatalDriverError(
          "zookeeper: its tokens lie below those seen on this key before: set tokenBase, for the store was moved",
        );
      }
      place.token = token;
      this.#options.watching.ownSoon(place);
    }
    return this.held(place);
  }

  /** Our node is not in its line: somebody has deleted it. */
  #missing(place: NodePlace): Answer {
    this.#places.end(place, null);
    return place.none;
  }
}

/** Lines of the store: placing a node, looking where it stands, watching who stands in its way. */

import { admittedCount, blockerOf } from "../../core/line.ts";
import type { Answer, ClaimId } from "../../spi/driver.ts";
import { FatalDriverError } from "../../spi/driver.ts";
import { isRefusal } from "./client/errors.ts";
import { childrenOf, createBelow } from "./client/recipes.ts";
import type { Acl, Stat } from "./client/records.ts";
import type { ZooKeeper } from "./client/zookeeper.ts";
import { isUnknown } from "./client/zookeeper.ts";
import { dataOf, REVOKE } from "./data.ts";
import type { Seat } from "./names.ts";
import { lineOf, nameFor, ofClaim } from "./names.ts";
import type { NodePlace, Places } from "./places.ts";

/** Room in a token for the run of a local hand-off. */
const RUN = 1_024n;

export interface LinesOptions {
  readonly zk: ZooKeeper;
  readonly places: Places;
  readonly acl: readonly Acl[];
  readonly tokenBase: bigint;
  /** A claim's answer may have changed. */
  readonly changed: (id: ClaimId) => void;
}

export class Lines {
  readonly #zk: ZooKeeper;
  readonly #places: Places;
  readonly #options: LinesOptions;

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
    const { acl } = this.#options;
    try {
      const mode = "ephemeralSequential";
      const { path, czxid } = await createBelow(this.#zk, folder, nameFor(claim.id, claim.holds[0]), {
        mode,
        data: dataOf(claim),
        acl,
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
    const { line, stranger } = lineOf(names);
    if (stranger !== null) {
      throw new FatalDriverError(
        `zookeeper: ${place.folder} holds ${stranger}, which is no place of a mutex: two recipes on one path do not exclude each other`,
      );
    }
    const mine = line.findIndex(({ name }) => name === place.name);
    if (mine === -1) return this.#missing(place);
    if (mine < admittedCount(line)) return this.#granted(place);
    this.#watch(place, line, mine);
    const ttlMs = this.#zk.leftMs();
    return { state: "waiting", ttlMs, recheckMs: this.#zk.sessionMs };
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
      this.watchOwn(place);
    }
    return this.held(place);
  }

  /** Our node is not in its line: somebody has deleted it. */
  #missing(place: NodePlace): Answer {
    this.#places.end(place, null);
    return place.none;
  }

  /**
   * Exactly one watch a waiting claim. It is set behind the look on the same connection: if the blocker has gone in
   * between, the answer says so, and the claim is asked about again.
   */
  #watch(place: NodePlace, line: readonly Seat[], mine: number): void {
    const blocker = blockerOf(line, mine);
    const target = blocker === "line" ? "line" : (line[blocker] as Seat).name;
    if (place.watching === target) return;
    place.watching = target;
    const again = (): void => {
      if (place.watching !== target) return;
      place.watching = "";
      if (place.at === "there") this.#options.changed(place.claim.id);
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

  /**
   * Tells when our node is deleted, or revoked by its data (Curator's convention). Nobody but who revokes changes it: one
   * that was changed and is gone was revoked, and removed at once.
   */
  watchOwn(place: NodePlace, isChanged = false): void {
    if (place.at !== "there") return;
    const told = this.#zk.get(place.path, (event) => {
      if (event !== null) this.watchOwn(place, event.kind === "changed");
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
        this.#places.end(place, null);
        this.#options.changed(place.claim.id);
      },
    );
    place.checking = checking;
    void checking.finally(() => {
      if (place.checking === checking) place.checking = null;
    });
  }

  #isRevoked(place: NodePlace): void {
    if (place.revoked || place.at !== "there") return;
    place.revoked = true;
    this.#options.changed(place.claim.id);
  }
}

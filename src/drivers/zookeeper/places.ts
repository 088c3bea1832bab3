/** What the driver knows of its own claims in this session. */

import type { Answer, Claim, ClaimId, Ending } from "../../spi/driver.ts";
import { folderOf } from "./names.ts";

/**
 * One claim's node.
 *
 *   new    there is none, as far as we know: not made yet, or given up to wait aside
 *   there  it is there, as far as we know: waiting, or held when its token is known
 *   gone   released, deleted by somebody else, or ended with its session: it never comes back
 */
export class NodePlace {
  readonly claim: Claim;
  readonly folder: string;
  at: "new" | "there" | "gone" = "new";
  /** A create has left and was not answered: the node may be there all the same. */
  isUnsure = false;
  ending: Ending | null = null;
  /** Its node's name, once it is there. */
  name = "";
  czxid = 0n;
  /** 0n while it waits. */
  token = 0n;
  /** In which turn its node was asked about last (Watching.confirmOne). */
  confirmedIn = 0;
  /** Asked to go, but its node stays until it has. */
  revoked = false;
  /** While it is held: we are told when somebody touches its node. */
  isWatched = false;
  /** Somebody has touched its node: a look at it is under way. */
  checking: Promise<void> | null = null;
  /** The create that is under way. */
  placing: Promise<void> | null = null;
  /** fair: false: the look that is under way. */
  looking: Promise<Answer> | null = null;
  /** Whose end it waits for: the path of a node, or its own folder for any of the line; "": nobody is watched. */
  watching = "";
  /** It waits without a node, having found others before it (fair: false). */
  isAside = false;
  /** Who was in its way has gone. */
  isWoken = false;

  constructor(claim: Claim, root: string) {
    this.claim = claim;
    this.folder = folderOf(claim.holds[0].key, root);
  }

  get path(): string {
    return `${this.folder}/${this.name}`;
  }

  get isHeld(): boolean {
    return this.token !== 0n;
  }

  /** It was given up, and its node may be there still: a delete of it has failed. */
  get isLeaving(): boolean {
    return this.at === "gone" && this.ending === "released" && this.name !== "";
  }

  get none(): Answer {
    const reason = this.revoked ? "revoked" : this.ending;
    return reason === null ? { state: "none" } : { state: "none", reason };
  }
}

export class Places {
  readonly #root: string;
  readonly #byId = new Map<ClaimId, NodePlace>();
  /** A claim keeps its object, so what became of it is known as long as anybody can ask. */
  readonly #ended = new WeakMap<Claim, NodePlace>();

  constructor(root: string) {
    this.#root = root;
  }

  get size(): number {
    return this.#byId.size;
  }

  /** Those that are not gone; a copy. */
  all(): NodePlace[] {
    return [...this.#byId.values()];
  }

  /** The claim's place, made if there is none; one that is gone stays gone. */
  of(claim: Claim): NodePlace {
    const known = this.find(claim);
    if (known !== null) return known;
    const place = new NodePlace(claim, this.#root);
    this.#byId.set(claim.id, place);
    return place;
  }

  find(claim: Claim): NodePlace | null {
    return this.#byId.get(claim.id) ?? this.#ended.get(claim) ?? null;
  }

  /** The place of a claim of this client that is not gone. */
  known(id: ClaimId): NodePlace | undefined {
    return this.#byId.get(id);
  }

  end(place: NodePlace, ending: Ending | null): void {
    place.at = "gone";
    place.ending ??= ending;
    this.#byId.delete(place.claim.id);
    this.#ended.set(place.claim, place);
  }

  /** The session is over, and all nodes with it. */
  endAll(): void {
    for (const place of this.all()) this.end(place, "expired");
  }
}

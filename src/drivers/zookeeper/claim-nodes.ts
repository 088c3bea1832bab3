/** What the driver knows of its own claims in this session. */

import type { Answer, Claim, ClaimId, EndReason } from "../../spi/driver.ts";
import { toKeyPath } from "./node-names.ts";

/**
 * One claim's node.
 *
 *   new    there is none, as far as we know: not made yet, or given up to wait aside
 *   there  it is there, as far as we know: waiting, or held when its token is known
 *   gone   released, deleted by somebody else, or ended with its session: it never comes back
 */
export class ClaimNode {
  readonly claim: Claim;
  readonly keyPath: string;
  status: "new" | "there" | "gone" = "new";
  /** A create has left and was not answered: the node may be there all the same. */
  isOutcomeUnknown = false;
  endReason: EndReason | null = null;
  /** Its node's name, once it is there. */
  name = "";
  czxid = 0n;
  /** 0n while it waits. */
  token = 0n;
  /** In which turn its node was asked about last (Watching.confirmOne). */
  confirmedAtTurn = 0;
  /** Asked to go, but its node stays until it has. */
  isRevoked = false;
  /** While it is held: we are told when somebody touches its node. */
  isWatched = false;
  /** Somebody has touched its node: a look at it is under way. */
  pendingCheck: Promise<void> | null = null;
  /** The create that is under way. */
  pendingCreation: Promise<void> | null = null;
  /** fair: false: the look that is under way. */
  pendingRead: Promise<Answer> | null = null;
  /** Whose end it waits for: the path of a node, or its own folder for any of the line; "": nobody is watched. */
  watchedPath = "";
  /** It waits without a node, having found others before it (fair: false). */
  isWaitingWithoutNode = false;
  /** Who was in its way has gone. */
  isBlockerGone = false;

  constructor(claim: Claim, root: string) {
    this.claim = claim;
    this.keyPath = toKeyPath(claim.holds[0].key, root);
  }

  get path(): string {
    return `${this.keyPath}/${this.name}`;
  }

  get isHeld(): boolean {
    return this.token !== 0n;
  }

  /** It was given up, and its node may be there still: a delete of it has failed. */
  get isDeletePending(): boolean {
    return this.status === "gone" && this.endReason === "released" && this.name !== "";
  }

  get noneAnswer(): Answer {
    const reason = this.isRevoked ? "revoked" : this.endReason;
    return reason === null ? { state: "none" } : { state: "none", reason };
  }
}

export class ClaimNodes {
  readonly #root: string;
  readonly #byId = new Map<ClaimId, ClaimNode>();
  /** A claim keeps its object, so what became of it is known as long as anybody can ask. */
  readonly #ended = new WeakMap<Claim, ClaimNode>();

  constructor(root: string) {
    this.#root = root;
  }

  get size(): number {
    return this.#byId.size;
  }

  /** Those that are not gone; a copy. */
  all(): ClaimNode[] {
    return [...this.#byId.values()];
  }

  /** The claim's place, made if there is none; one that is gone stays gone. */
  getOrCreate(claim: Claim): ClaimNode {
    const existing = this.find(claim);
    if (existing !== null) return existing;
    const node = new ClaimNode(claim, this.#root);
    this.#byId.set(claim.id, node);
    return node;
  }

  find(claim: Claim): ClaimNode | null {
    return this.#byId.get(claim.id) ?? this.#ended.get(claim) ?? null;
  }

  /** The place of a claim of this client that is not gone. */
  findById(id: ClaimId): ClaimNode | undefined {
    return this.#byId.get(id);
  }

  end(node: ClaimNode, endReason: EndReason | null): void {
    node.status = "gone";
    node.endReason ??= endReason;
    this.#byId.delete(node.claim.id);
    this.#ended.set(node.claim, node);
  }

  /** The session is over, and all nodes with it. */
  endSession(): void {
    for (const node of this.all()) this.end(node, "expired");
  }
}

/** The driver's own claims in this session, and their nodes. */

import type { Answer, Claim, ClaimId, EndReason } from "../../spi/driver.ts";
import { toKeyPath } from "./node-names.ts";

/**
 * One claim's node.
 *
 *   unplaced  no node is known: not created yet
 *   outside   it waits without a node, since others are before it (fair: false)
 *   present   a node is known
 *   ended     released, deleted by another client, or ended with its session: final
 */
export class ClaimNode {
  readonly claim: Claim;
  readonly keyPath: string;
  status: "unplaced" | "outside" | "present" | "ended" = "unplaced";
  /** revoked: the node stays until the holder releases it. */
  grant: "waiting" | "held" | "revoked" = "waiting";
  /** A create was sent and not answered: the node may exist. */
  isOutcomeUnknown = false;
  endReason: EndReason | null = null;
  /** The node's name, once it exists. */
  name = "";
  czxid = 0n;
  /** 0n while it waits. */
  token = 0n;
  /** The turn in which the node was last confirmed (NodeWatches.confirmOne). */
  confirmedAtTurn = 0;
  /** While it is held: a watch on its node is set. */
  isWatched = false;
  /** The check of its node that is in flight, after a change by another client. */
  pendingCheck: Promise<void> | null = null;
  /** The create in flight. */
  pendingCreation: Promise<void> | null = null;
  /** The deletion in flight, and whether the claim had its entry. */
  pendingDeletion: Promise<boolean> | null = null;
  /** fair: false: the read in flight. */
  pendingRead: Promise<Answer> | null = null;
  /**
   * The watched path: a node that must be deleted first, or the key's node if any removal in the queue counts; "":
   * none.
   */
  watchedPath = "";
  /** The node that blocked it has been deleted. */
  isBlockerGone = false;
  /** It is held only for later use. */
  isIdle = false;

  constructor(claim: Claim, root: string) {
    this.claim = claim;
    this.keyPath = toKeyPath(claim.locks[0].key, root);
  }

  get path(): string {
    return `${this.keyPath}/${this.name}`;
  }

  /** Granted, and perhaps revoked since. */
  get isGranted(): boolean {
    return this.grant !== "waiting";
  }

  /** Released, but a delete of its node has failed: the node may still exist. */
  get isDeletePending(): boolean {
    return this.status === "ended" && this.endReason === "released" && this.name !== "";
  }

  get noneAnswer(): Answer {
    const reason = this.grant === "revoked" ? "revoked" : this.endReason;
    return reason === null ? { state: "none" } : { state: "none", reason };
  }
}

export class ClaimNodes {
  readonly #root: string;
  readonly #byId = new Map<ClaimId, ClaimNode>();
  /**
   * Ended claims, by the identity of the claim object: their outcome is known as long as the client can ask about them.
   */
  readonly #ended = new WeakMap<Claim, ClaimNode>();
  readonly #onEnded: (node: ClaimNode) => void;
  #idleCount = 0;

  /** onEnded: called for each node that ends. */
  constructor(root: string, onEnded: (node: ClaimNode) => void) {
    this.#root = root;
    this.#onEnded = onEnded;
  }

  /** Are there claims that are not idle? */
  get isBusy(): boolean {
    return this.#byId.size > this.#idleCount;
  }

  setIdle(node: ClaimNode, isIdle: boolean): void {
    if (node.isIdle === isIdle) return;
    node.isIdle = isIdle;
    this.#idleCount += isIdle ? 1 : -1;
  }

  /** The nodes that have not ended; a copy. */
  all(): ClaimNode[] {
    return [...this.#byId.values()];
  }

  /** The claim's node, created if there is none. An ended one is returned as it is. */
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

  /** The node of a claim of this client, if it has not ended. */
  findById(id: ClaimId): ClaimNode | undefined {
    return this.#byId.get(id);
  }

  end(node: ClaimNode, endReason: EndReason | null): void {
    node.status = "ended";
    node.endReason ??= endReason;
    this.#byId.delete(node.claim.id);
    this.setIdle(node, false);
    this.#onEnded(node);
    this.#ended.set(node.claim, node);
  }

  /** The session has ended, and all nodes with it. */
  endSession(): void {
    for (const node of this.all()) this.end(node, "expired");
  }
}

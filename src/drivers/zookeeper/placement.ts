/** Making a claim's node and taking it away again: what a claim, its polls and its release have in common. */

import type { Answer } from "../../spi/driver.ts";
import { FatalDriverError } from "../../spi/driver.ts";
import type { ClaimNode, ClaimNodes } from "./claim-nodes.ts";
import { hasCode, SessionExpiredError } from "./client/errors.ts";
import type { ZooKeeper } from "./client/zookeeper.ts";
import { toFatalError } from "./fatal-error.ts";
import type { KeyNodes } from "./key-nodes.ts";
import type { NodeWatches } from "./node-watches.ts";
import type { NodeQueues } from "./queue.ts";

/** Those who wait aside try again within so long, each at a moment of its own, when the holder has gone. */
const RETRY_SPREAD_MS = 20;

export interface PlacementOptions {
  readonly zk: ZooKeeper;
  readonly queues: NodeQueues;
  readonly claimNodes: ClaimNodes;
  readonly keyNodes: KeyNodes;
  readonly watches: NodeWatches;
  /** Does a waiting claim keep its place? */
  readonly isFair: boolean;
  readonly random: () => number;
}

export class Placement {
  readonly #options: PlacementOptions;

  constructor(options: PlacementOptions) {
    this.#options = options;
  }

  /** Places the claim if it is not placed yet, and says where it stands. */
  ensureQueued(node: ClaimNode): Promise<Answer> {
    return this.#serialize(node, () => this.#ensureQueued(node));
  }

  /** Where the claim stands among these children of its folder, read when its node was there. */
  statusFrom(node: ClaimNode, names: readonly string[]): Promise<Answer> {
    return this.#serialize(node, async () => this.#leaveIfUnfair(node, this.#options.queues.statusIn(node, names)));
  }

  /**
   * Invariant: of an unfair claim only one look is under way. What one call finds and leaves, as it cannot hold, another
   * must not find free in between: it would say "held" of a node that is about to be deleted.
   */
  #serialize(node: ClaimNode, read: () => Promise<Answer>): Promise<Answer> {
    if (this.#options.isFair) return read();
    node.pendingRead ??= read().finally(() => {
      node.pendingRead = null;
    });
    return node.pendingRead;
  }

  async #ensureQueued(node: ClaimNode): Promise<Answer> {
    const { zk, queues, keyNodes } = this.#options;
    node.isWaitingWithoutNode = false;
    if (node.status === "there")
      return node.isRevoked ? node.noneAnswer : this.#leaveIfUnfair(node, await queues.readStatus(node));
    if (!keyNodes.isVerified(node.keyPath)) {
      await keyNodes.ensure(node.keyPath);
      // it was left meanwhile, when there was nothing to delete yet
      if (node.status !== "new") return node.noneAnswer;
    }
    // both leave in one write: a free lock costs one round trip
    const [creation, listing] = await Promise.allSettled([queues.createNode(node), zk.children(node.keyPath)]);
    if (creation.status === "rejected") throw creation.reason;
    const names = listing.status === "fulfilled" ? listing.value.names : [];
    return this.#leaveIfUnfair(
      node,
      names.includes(node.name) ? queues.statusIn(node, names) : await queues.readStatus(node),
    );
  }

  /** Unfair claims leave the line again as long as they cannot hold. */
  async #leaveIfUnfair(node: ClaimNode, answer: Answer): Promise<Answer> {
    const { zk, isFair } = this.#options;
    if (isFair || answer.state !== "waiting" || !node.claim.wait) return answer;
    try {
      await zk.delete(node.path);
    } catch (error) {
      if (!hasCode(error, "NO_NODE")) throw error;
    }
    node.name = "";
    if (node.status === "there") node.status = "new";
    node.isWaitingWithoutNode = true;
    return node.status === "gone" ? node.noneAnswer : answer;
  }

  /** What a poll finds of a claim that waits without a node. */
  async retryUnfair(node: ClaimNode): Promise<Answer> {
    const { queues, random } = this.#options;
    if (node.isBlockerGone) {
      // all that wait for the same holder are told at once
      node.isBlockerGone = false;
      return queues.toWaitingAnswer(1 + random() * RETRY_SPREAD_MS);
    }
    const isFree = await queues.isFree(node);
    if (node.status !== "new") return node.noneAnswer;
    return isFree ? this.ensureQueued(node) : queues.toWaitingAnswer();
  }

  /** Deletes the claim's node, wherever a create of it may have got to. Says whether it was ours until then. */
  async deleteNode(node: ClaimNode): Promise<boolean> {
    const { zk, queues, claimNodes, watches } = this.#options;
    const wasOurs = node.isWaitingWithoutNode || (node.status === "there" && !node.isRevoked);
    const hasNoNode = node.name === "" && node.pendingCreation === null && !node.isOutcomeUnknown;
    // from now on nobody else answers for it
    claimNodes.end(node, "released");
    watches.stop(node);
    node.isWaitingWithoutNode = false;
    if (hasNoNode) return wasOurs;
    try {
      await node.pendingCreation?.catch(() => undefined);
      if (node.name === "" && !(await queues.findNode(node))) return false;
      await zk.delete(node.path);
      node.name = "";
      return wasOurs;
    } catch (error) {
      if (error instanceof SessionExpiredError) return false;
      if (!hasCode(error, "NO_NODE")) throw error;
      node.name = "";
      return false;
    }
  }

  /** What cannot get better is fatal, and its place is not kept. Should that fail, the core's release comes again. */
  async toFatalOrCleanUp(error: unknown, node: ClaimNode): Promise<unknown> {
    const fatal = toFatalError(error);
    if (fatal instanceof FatalDriverError) await this.deleteNode(node).catch(() => undefined);
    return fatal;
  }
}

/** Creates and deletes a claim's node: shared by claim, renew and release. */

import type { Answer } from "../../spi/driver.ts";
import { FatalDriverError } from "../../spi/driver.ts";
import type { ClaimNode, ClaimNodes } from "./claim-nodes.ts";
import { hasCode, SessionExpiredError } from "./client/errors.ts";
import type { ZooKeeper } from "./client/zookeeper.ts";
import { toFatalError } from "./fatal-error.ts";
import type { KeyNodes } from "./key-nodes.ts";
import type { NodeWatches } from "./node-watches.ts";
import type { NodeQueues } from "./queue.ts";

/** When the holder has ended, claims that wait without a node try again within this time, each at a random moment. */
const RETRY_SPREAD_MS = 20;

export interface PlacementOptions {
  readonly zk: ZooKeeper;
  readonly queues: NodeQueues;
  readonly claimNodes: ClaimNodes;
  readonly keyNodes: KeyNodes;
  readonly watches: NodeWatches;
  /** Does a waiting claim keep its queue entry? */
  readonly isFair: boolean;
  readonly random: () => number;
}

export class Placement {
  readonly #options: PlacementOptions;

  constructor(options: PlacementOptions) {
    this.#options = options;
  }

  /** Creates the claim's node if it has none, and derives its answer. */
  ensureQueued(node: ClaimNode): Promise<Answer> {
    return this.#serialize(node, () => this.#ensureQueued(node));
  }

  /** Derives the claim's answer from these children of the key's node, which were read when its node existed. */
  statusFrom(node: ClaimNode, names: readonly string[]): Promise<Answer> {
    return this.#serialize(node, async () => this.#leaveIfUnfair(node, this.#options.queues.statusIn(node, names)));
  }

  /**
   * Invariant: an unfair claim has only one read in flight. If a call finds that the claim cannot hold, it deletes the
   * node; another call that found the key free in between would report "held" for a node that is about to be deleted.
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
    if (node.status === "present")
      return node.isRevoked ? node.noneAnswer : this.#leaveIfUnfair(node, await queues.readStatus(node));
    if (!keyNodes.isVerified(node.keyPath)) {
      await keyNodes.ensure(node.keyPath);
      // released meanwhile, when there was no node to delete yet
      if (node.status !== "new") return node.noneAnswer;
    }
    // both are sent in one write, so that a free lock costs one round trip
    const [creation, listing] = await Promise.allSettled([queues.createNode(node), zk.children(node.keyPath)]);
    if (creation.status === "rejected") throw creation.reason;
    const names = listing.status === "fulfilled" ? listing.value.names : [];
    return this.#leaveIfUnfair(
      node,
      names.includes(node.name) ? queues.statusIn(node, names) : await queues.readStatus(node),
    );
  }

  /** An unfair claim that is not admitted leaves the queue again. */
  async #leaveIfUnfair(node: ClaimNode, answer: Answer): Promise<Answer> {
    const { zk, isFair } = this.#options;
    if (isFair || answer.state !== "waiting" || !node.claim.wait) return answer;
    try {
      await zk.delete(node.path);
    } catch (error) {
      if (!hasCode(error, "NO_NODE")) throw error;
    }
    node.name = "";
    if (node.status === "present") node.status = "new";
    node.isWaitingWithoutNode = true;
    return node.status === "gone" ? node.noneAnswer : answer;
  }

  /** Rechecks a claim that waits without a node. */
  async retryUnfair(node: ClaimNode): Promise<Answer> {
    const { queues, random } = this.#options;
    if (node.isBlockerGone) {
      // all that wait for the same holder are notified at once: spread their attempts
      node.isBlockerGone = false;
      return queues.toWaitingAnswer(1 + random() * RETRY_SPREAD_MS);
    }
    const isFree = await queues.isFree(node);
    if (node.status !== "new") return node.noneAnswer;
    return isFree ? this.ensureQueued(node) : queues.toWaitingAnswer();
  }

  /** Deletes the claim's node, also that of an unanswered create. Says whether the claim had its entry until then. */
  async deleteNode(node: ClaimNode): Promise<boolean> {
    const { zk, queues, claimNodes, watches } = this.#options;
    const hadEntry = node.isWaitingWithoutNode || (node.status === "present" && !node.isRevoked);
    const hasNoNode = node.name === "" && node.pendingCreation === null && !node.isOutcomeUnknown;
    // end it first: no other call may answer for the claim from here on
    claimNodes.end(node, "released");
    watches.stop(node);
    node.isWaitingWithoutNode = false;
    if (hasNoNode) return hadEntry;
    try {
      await node.pendingCreation?.catch(() => undefined);
      if (node.name === "" && !(await queues.findNode(node))) return false;
      await zk.delete(node.path);
      node.name = "";
      return hadEntry;
    } catch (error) {
      if (error instanceof SessionExpiredError) return false;
      if (!hasCode(error, "NO_NODE")) throw error;
      node.name = "";
      return false;
    }
  }

  /** Makes a permanent error fatal and deletes the node. If the delete fails, the client's release repeats it. */
  async toFatalOrCleanUp(error: unknown, node: ClaimNode): Promise<unknown> {
    const fatal = toFatalError(error);
    if (fatal instanceof FatalDriverError) await this.deleteNode(node).catch(() => undefined);
    return fatal;
  }
}

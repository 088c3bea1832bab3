/** Queues of nodes: finds the position of a claim's node, and derives the claim's answer. */

import { countAdmitted } from "../../lock-table/admission.ts";
import type { Answer } from "../../spi/driver.ts";
import { StoreRefusedError } from "../../spi/driver.ts";
import type { RevisionTokens } from "../revision-tokens.ts";
import { explainLowTokens } from "../revision-tokens.ts";
import type { ClaimNode, ClaimNodes } from "./claim-nodes.ts";
import { hasCode } from "./client/errors.ts";
import type { ZooKeeper } from "./client/zookeeper.ts";
import type { KeyNodes } from "./key-nodes.ts";
import type { Family, ParsedQueue, QueueNode } from "./node-names.ts";
import { explainForeignNode } from "./node-names.ts";
import type { NodeWatches } from "./node-watches.ts";
import type { NodeWrites } from "./node-writes.ts";
import type { QueueReads } from "./queue-reads.ts";
import type { RecallWatches } from "./recall-watches.ts";

/** When the holder has ended, claims that wait without a node try again within this time, each at a random moment. */
const RETRY_SPREAD_MS = 20;

interface NodeQueuesOptions {
  readonly zk: ZooKeeper;
  readonly claimNodes: ClaimNodes;
  readonly keyNodes: KeyNodes;
  readonly tokens: RevisionTokens;
  readonly family: Family;
  readonly reads: QueueReads;
  readonly writes: NodeWrites;
  readonly watches: NodeWatches;
  readonly recallWatches: RecallWatches;
  /** Does a waiting claim keep its queue entry? */
  readonly isFair: boolean;
  readonly random: () => number;
}

export class NodeQueues {
  readonly #zk: ZooKeeper;
  readonly #claimNodes: ClaimNodes;
  readonly #options: NodeQueuesOptions;

  constructor(options: NodeQueuesOptions) {
    this.#options = options;
    this.#zk = options.zk;
    this.#claimNodes = options.claimNodes;
  }

  /** Creates the claim's node if it has none, and derives its answer. */
  ensureQueued(node: ClaimNode): Promise<Answer> {
    return this.#serialize(node, () => this.#ensureQueued(node));
  }

  /** Derives the claim's answer from its queue, which was read when its node existed. */
  statusFrom(node: ClaimNode, parsed: ParsedQueue): Promise<Answer> {
    return this.#serialize(node, async () => this.#leaveIfUnfair(node, this.#statusIn(node, parsed)));
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
    const { keyNodes, reads, writes } = this.#options;
    if (node.status === "outside") node.status = "unplaced";
    if (node.status === "present")
      return node.grant === "revoked" ? node.noneAnswer : this.#leaveIfUnfair(node, await this.#readStatus(node));
    if (!keyNodes.isVerified(node.keyPath)) {
      await keyNodes.ensure(node.keyPath);
      // released meanwhile, when there was no node to delete yet
      if (node.status !== "unplaced") return node.noneAnswer;
    }
    // both are sent in one write, so that a free lock costs one round trip
    const [creation, listing] = await Promise.allSettled([writes.create(node), reads.read(node.keyPath)]);
    if (creation.status === "rejected") throw creation.reason;
    const parsed = listing.status === "fulfilled" ? listing.value : null;
    const isListed = parsed?.queue.some(({ name }) => name === node.name) === true;
    return this.#leaveIfUnfair(node, isListed ? this.#statusIn(node, parsed) : await this.#readStatus(node));
  }

  /** An unfair claim that is not admitted leaves the queue again. */
  async #leaveIfUnfair(node: ClaimNode, answer: Answer): Promise<Answer> {
    if (this.#options.isFair || answer.state !== "waiting" || !node.claim.wait) return answer;
    try {
      await this.#zk.delete(node.path);
    } catch (error) {
      if (!hasCode(error, "NO_NODE")) throw error;
    }
    node.name = "";
    // released meanwhile
    if (node.status === "ended") return node.noneAnswer;
    node.status = "outside";
    return answer;
  }

  /** Rechecks a claim that waits without a node. */
  async retryUnfair(node: ClaimNode): Promise<Answer> {
    if (node.isBlockerGone) {
      // all that wait for the same holder are notified at once: spread their attempts
      node.isBlockerGone = false;
      return this.#toWaitingAnswer(1 + this.#options.random() * RETRY_SPREAD_MS);
    }
    const isFree = await this.#isFree(node);
    if (node.status === "present" || node.status === "ended") return node.noneAnswer;
    return isFree ? this.ensureQueued(node) : this.#toWaitingAnswer();
  }

  /** Reads the queue and derives the claim's answer. */
  async #readStatus(node: ClaimNode): Promise<Answer> {
    try {
      return this.#statusIn(node, await this.#options.reads.read(node.keyPath));
    } catch (error) {
      if (hasCode(error, "NO_NODE")) return this.#onMissing(node);
      throw error;
    }
  }

  #statusIn(node: ClaimNode, parsed: ParsedQueue): Answer {
    if (node.status !== "present") return node.noneAnswer;
    const queue = this.#requireOwnRecipe(node, parsed);
    const ownIndex = queue.findIndex(({ name }) => name === node.name);
    if (ownIndex === -1) return this.#onMissing(node);
    if (ownIndex < countAdmitted(queue)) return this.#grant(node, queue);
    this.#options.watches.watchBlocker(node, queue, ownIndex);
    return this.#toWaitingAnswer();
  }

  /** recheckMs: when to recheck, unless a watch fires before. */
  #toWaitingAnswer(recheckMs: number = this.#zk.sessionMs): Answer {
    return { state: "waiting", remainingMs: this.#zk.remainingMs(), recheckMs };
  }

  /** Would a claim without a node be admitted if it got one now? If not, watches the node that blocks it. */
  async #isFree(node: ClaimNode): Promise<boolean> {
    const queue = this.#requireOwnRecipe(node, await this.#options.reads.readOrEmpty(node.keyPath));
    const [{ permits, limit }] = node.claim.locks;
    const withCandidate = [...queue, { name: "", id: node.claim.id, sequence: 0, permits, limit }];
    if (countAdmitted(withCandidate) === withCandidate.length) return true;
    this.#options.watches.watchBlocker(node, withCandidate, queue.length);
    return false;
  }

  /** @throws StoreRefusedError if there is a node of another recipe */
  #requireOwnRecipe({ keyPath }: ClaimNode, { queue, foreignNode }: ParsedQueue): readonly QueueNode[] {
    if (foreignNode !== null)
      throw new StoreRefusedError(explainForeignNode(foreignNode, keyPath, this.#options.family));
    return queue;
  }

  /** The answer of a held claim, without a request: its watch reports changes. */
  toHeldAnswer(node: ClaimNode): Answer {
    const { token, claim } = node;
    const tokenCount = this.#options.tokens.count(claim.tokenCount);
    const isRecalled = this.#options.recallWatches.isRecalled(node);
    return {
      state: "held",
      token,
      tokenCount,
      remainingMs: this.#zk.remainingMs(),
      ...(isRecalled && { recalled: true }),
    };
  }

  #grant(node: ClaimNode, queue: readonly QueueNode[]): Answer {
    if (!node.isGranted) {
      const token = this.#options.tokens.first(node.czxid);
      if (token < node.claim.floor) throw new StoreRefusedError(explainLowTokens("zookeeper"));
      node.token = token;
      node.grant = "held";
      this.#options.watches.watchOwnNodeLater(node);
      this.#options.recallWatches.add(node, queue);
    }
    return this.toHeldAnswer(node);
  }

  /** The claim's node is not in its queue: another client has deleted it. */
  #onMissing(node: ClaimNode): Answer {
    this.#claimNodes.end(node, null);
    return node.noneAnswer;
  }
}

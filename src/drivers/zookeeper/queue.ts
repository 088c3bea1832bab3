/** Queues of nodes: creates a claim's node, finds its position, and derives the claim's answer. */

import { countAdmitted } from "../../lock-table/admission.ts";
import type { Answer } from "../../spi/driver.ts";
import { FatalDriverError } from "../../spi/driver.ts";
import type { ClaimNode, ClaimNodes } from "./claim-nodes.ts";
import { hasCode } from "./client/errors.ts";
import { createBelow, listChildren } from "./client/helpers.ts";
import type { Acl, Stat } from "./client/records.ts";
import type { ZooKeeper } from "./client/zookeeper.ts";
import { isOutcomeUnknown } from "./client/zookeeper.ts";
import { encodeData } from "./node-data.ts";
import type { Family, QueueNode } from "./node-names.ts";
import { explainForeignNode, formatClaimPrefix, formatNodePrefix, parseQueue } from "./node-names.ts";
import type { NodeWatches } from "./node-watches.ts";

/** The size of a grant's token range, which local hand-offs use. */
const TOKENS_PER_NODE = 1_024n;

export interface NodeQueuesOptions {
  readonly zk: ZooKeeper;
  readonly claimNodes: ClaimNodes;
  /** The ACL of new nodes. */
  readonly acl: () => readonly Acl[];
  readonly tokenBase: bigint;
  readonly family: Family;
  readonly watches: NodeWatches;
}

export class NodeQueues {
  readonly #zk: ZooKeeper;
  readonly #claimNodes: ClaimNodes;
  readonly #options: NodeQueuesOptions;
  /**
   * Parsed queues by the list they came from: hundreds of claims of a client may wait in one queue, which is read once
   * for all.
   */
  readonly #parsed = new WeakMap<readonly string[], ReturnType<typeof parseQueue>>();

  constructor(options: NodeQueuesOptions) {
    this.#options = options;
    this.#zk = options.zk;
    this.#claimNodes = options.claimNodes;
  }

  /**
   * Creates the claim's node, if it does not exist. A create whose reply was lost is found by the claim's id, among the
   * nodes of this session: a node of an earlier session is about to be deleted.
   */
  createNode(node: ClaimNode): Promise<void> {
    node.pendingCreation ??= this.#createNode(node).finally(() => {
      node.pendingCreation = null;
    });
    return node.pendingCreation;
  }

  async #createNode(node: ClaimNode): Promise<void> {
    if (node.isOutcomeUnknown && (await this.findNode(node))) return;
    const { keyPath, claim } = node;
    const { acl, family } = this.#options;
    try {
      const mode = "ephemeralSequential";
      const { path, czxid } = await createBelow(this.#zk, keyPath, formatNodePrefix(claim.id, claim.locks[0], family), {
        mode,
        data: encodeData(claim),
        acl: acl(),
      });
      this.#onCreated(node, path.slice(keyPath.length + 1), czxid);
    } catch (error) {
      if (isOutcomeUnknown(error)) node.isOutcomeUnknown = true;
      throw error;
    }
  }

  #onCreated(node: ClaimNode, name: string, czxid: bigint): void {
    node.name = name;
    node.czxid = czxid;
    node.isOutcomeUnknown = false;
    // a release that came meanwhile looks for the node itself, later on the same connection
    if (node.status !== "gone") node.status = "present";
  }

  /** Does the node of an unanswered create exist, in this session? */
  async findNode(node: ClaimNode): Promise<boolean> {
    const { keyPath, claim } = node;
    // without a sync this server may not have seen the create that another server carried out
    const [, names] = await Promise.all([this.#sync(keyPath), listChildren(this.#zk, keyPath)]);
    const ownNames = names.filter((name) => name.startsWith(formatClaimPrefix(claim.id)));
    const stats = await Promise.all(ownNames.map((name) => this.#zk.exists(`${keyPath}/${name}`)));
    node.isOutcomeUnknown = false;
    const index = stats.findIndex((stat) => stat?.ephemeralOwner === this.#zk.sessionId);
    if (index === -1) return false;
    this.#onCreated(node, ownNames[index] as string, (stats[index] as Stat).czxid);
    return true;
  }

  async #sync(keyPath: string): Promise<void> {
    await this.#zk.sync(keyPath).catch((error: unknown) => {
      if (!hasCode(error, "NO_NODE")) throw error;
    });
  }

  /** Reads the queue and derives the claim's answer. */
  async readStatus(node: ClaimNode): Promise<Answer> {
    try {
      return this.statusIn(node, (await this.#zk.children(node.keyPath)).names);
    } catch (error) {
      if (hasCode(error, "NO_NODE")) return this.#onMissing(node);
      throw error;
    }
  }

  /** Derives the claim's answer from the names of these children of the key's node. */
  statusIn(node: ClaimNode, names: readonly string[]): Answer {
    if (node.status !== "present") return node.noneAnswer;
    const queue = this.#parseQueue(node, names);
    const ownIndex = queue.findIndex(({ name }) => name === node.name);
    if (ownIndex === -1) return this.#onMissing(node);
    if (ownIndex < countAdmitted(queue)) return this.#grant(node);
    this.#options.watches.watchBlocker(node, queue, ownIndex);
    return this.toWaitingAnswer();
  }

  /** recheckMs: when to recheck, unless a watch fires before. */
  toWaitingAnswer(recheckMs: number = this.#zk.sessionMs): Answer {
    return { state: "waiting", remainingMs: this.#zk.leftMs(), recheckMs };
  }

  /** Would a claim without a node be admitted if it got one now? If not, watches the node that blocks it. */
  async isFree(node: ClaimNode): Promise<boolean> {
    const queue = this.#parseQueue(node, await listChildren(this.#zk, node.keyPath));
    const [{ permits, limit }] = node.claim.locks;
    const withCandidate = [...queue, { name: "", id: node.claim.id, sequence: 0, permits, limit }];
    if (countAdmitted(withCandidate) === withCandidate.length) return true;
    this.#options.watches.watchBlocker(node, withCandidate, queue.length);
    return false;
  }

  /** @throws FatalDriverError if there is a node of another recipe */
  #parseQueue({ keyPath }: ClaimNode, names: readonly string[]): readonly QueueNode[] {
    const { family } = this.#options;
    let parsed = this.#parsed.get(names);
    if (parsed === undefined) {
      parsed = parseQueue(names, family);
      this.#parsed.set(names, parsed);
    }
    const { queue, foreignNode } = parsed;
    if (foreignNode !== null) throw new FatalDriverError(explainForeignNode(foreignNode, keyPath, family));
    return queue;
  }

  /** The answer of a held claim, without a request: its watch reports changes. */
  toHeldAnswer(node: ClaimNode): Answer {
    const { token, claim } = node;
    const tokenCount = Math.min(claim.tokenCount, Number(TOKENS_PER_NODE));
    return { state: "held", token, tokenCount, remainingMs: this.#zk.leftMs() };
  }

  /** The first token of a node that this transaction created. */
  toToken(czxid: bigint): bigint {
    return czxid * TOKENS_PER_NODE + this.#options.tokenBase;
  }

  /** Is that token in the range that was granted with this node, whose claim wanted `count` tokens? */
  hasToken(czxid: bigint, count: number, token: bigint): boolean {
    const first = this.toToken(czxid);
    return token >= first && token < first + BigInt(Math.min(count, Number(TOKENS_PER_NODE)));
  }

  #grant(node: ClaimNode): Answer {
    if (!node.isHeld) {
      const token = this.toToken(node.czxid);
      if (token < node.claim.floor) {
        throw new FatalDriverError(
          "zookeeper: its tokens are below those seen on this key before: set tokenBase if the locks were moved from another store",
        );
      }
      node.token = token;
      this.#options.watches.watchOwnNodeLater(node);
    }
    return this.toHeldAnswer(node);
  }

  /** The claim's node is not in its queue: another client has deleted it. */
  #onMissing(node: ClaimNode): Answer {
    this.#claimNodes.end(node, null);
    return node.noneAnswer;
  }
}

/** Queues of nodes: creates and deletes a claim's node, finds its position, and derives the claim's answer. */

import { countAdmitted } from "../../lock-table/admission.ts";
import type { Answer } from "../../spi/driver.ts";
import { StoreRefusedError } from "../../spi/driver.ts";
import type { ClaimNode, ClaimNodes } from "./claim-nodes.ts";
import { hasCode, isOutcomeUnknown, SessionExpiredError, toFatalError } from "./client/errors.ts";
import { createBelow } from "./client/helpers.ts";
import type { Acl, Stat } from "./client/records.ts";
import type { ZooKeeper } from "./client/zookeeper.ts";
import type { KeyNodes } from "./key-nodes.ts";
import { encodeData } from "./node-data.ts";
import type { Family, ParsedQueue, QueueNode } from "./node-names.ts";
import { explainForeignNode, formatClaimPrefix, formatNodePrefix, parseQueue } from "./node-names.ts";
import type { NodeWatches } from "./node-watches.ts";
import type { RecallWatches } from "./recall-watches.ts";
import { SharedCalls } from "./shared-calls.ts";

/** The size of a grant's token range, which local hand-offs use. */
const TOKENS_PER_NODE = 1_024n;

/** When the holder has ended, claims that wait without a node try again within this time, each at a random moment. */
const RETRY_SPREAD_MS = 20;

interface NodeQueuesOptions {
  readonly zk: ZooKeeper;
  readonly claimNodes: ClaimNodes;
  readonly keyNodes: KeyNodes;
  /** The ACL of new nodes. */
  readonly acl: () => readonly Acl[];
  readonly tokenBase: bigint;
  readonly family: Family;
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
  /**
   * Each answer is as long as its queue, so a read for each of a thousand claims that come or go at once would keep the
   * session's own requests waiting for longer than it lasts.
   */
  readonly #reads = new SharedCalls<ParsedQueue>();
  readonly #syncedReads = new SharedCalls<ParsedQueue>();

  constructor(options: NodeQueuesOptions) {
    this.#options = options;
    this.#zk = options.zk;
    this.#claimNodes = options.claimNodes;
  }

  /** Creates the claim's node if it has none, and derives its answer. */
  ensureQueued(node: ClaimNode): Promise<Answer> {
    return this.#serialize(node, () => this.#ensureQueued(node));
  }

  /** Reads the queue of a key, by a request that is sent after this call; a key without a node has an empty one. */
  async readQueue(keyPath: string): Promise<ParsedQueue> {
    try {
      return await this.#read(keyPath);
    } catch (error) {
      if (hasCode(error, "NO_NODE")) return parseQueue([], this.#options.family);
      throw error;
    }
  }

  #read(keyPath: string): Promise<ParsedQueue> {
    return this.#reads.call(keyPath, async () =>
      parseQueue((await this.#zk.children(keyPath)).names, this.#options.family),
    );
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
    const { keyNodes } = this.#options;
    if (node.status === "outside") node.status = "unplaced";
    if (node.status === "present")
      return node.grant === "revoked" ? node.noneAnswer : this.#leaveIfUnfair(node, await this.#readStatus(node));
    if (!keyNodes.isVerified(node.keyPath)) {
      await keyNodes.ensure(node.keyPath);
      // released meanwhile, when there was no node to delete yet
      if (node.status !== "unplaced") return node.noneAnswer;
    }
    // both are sent in one write, so that a free lock costs one round trip
    const [creation, listing] = await Promise.allSettled([this.#createNode(node), this.#read(node.keyPath)]);
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

  /** Deletes the claim's node, also that of an unanswered create. Says whether the claim had its entry until then. */
  deleteNode(node: ClaimNode): Promise<boolean> {
    // a release that is repeated because the server is slow must not make it slower; only one of the two ends the claim
    if (node.pendingDeletion !== null) return node.pendingDeletion.then(() => false);
    node.pendingDeletion = this.#deleteNode(node).finally(() => {
      node.pendingDeletion = null;
    });
    return node.pendingDeletion;
  }

  async #deleteNode(node: ClaimNode): Promise<boolean> {
    const { watches } = this.#options;
    const hadEntry = node.status === "outside" || (node.status === "present" && node.grant !== "revoked");
    const hasNoNode = node.name === "" && node.pendingCreation === null && !node.isOutcomeUnknown;
    // end it first: no other call may answer for the claim from here on
    this.#claimNodes.end(node, "released");
    watches.stop(node);
    if (hasNoNode) return hadEntry;
    try {
      await node.pendingCreation?.catch(() => undefined);
      if (node.name === "" && !(await this.#findNode(node))) return false;
      await this.#zk.delete(node.path);
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
    if (fatal instanceof StoreRefusedError) await this.deleteNode(node).catch(() => undefined);
    return fatal;
  }

  /**
   * Creates the claim's node, if it does not exist. A create whose reply was lost is found by the claim's id, among the
   * nodes of this session: a node of an earlier session is about to be deleted. (Curator: a protected create.)
   */
  #createNode(node: ClaimNode): Promise<void> {
    node.pendingCreation ??= this.#sendCreate(node).finally(() => {
      node.pendingCreation = null;
    });
    return node.pendingCreation;
  }

  async #sendCreate(node: ClaimNode): Promise<void> {
    if (node.isOutcomeUnknown && (await this.#findNode(node))) return;
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
    if (node.status !== "ended") node.status = "present";
  }

  /** Does the node of an unanswered create exist, in this session? */
  async #findNode(node: ClaimNode): Promise<boolean> {
    const { keyPath, claim } = node;
    // without a sync this server may not have seen the create that another server carried out
    const { queue } = await this.#syncedReads.call(keyPath, async () => {
      const [, parsed] = await Promise.all([this.#sync(keyPath), this.readQueue(keyPath)]);
      return parsed;
    });
    const ownNames = queue.map(({ name }) => name).filter((name) => name.startsWith(formatClaimPrefix(claim.id)));
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
  async #readStatus(node: ClaimNode): Promise<Answer> {
    try {
      return this.#statusIn(node, await this.#read(node.keyPath));
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
    const queue = this.#requireOwnRecipe(node, await this.readQueue(node.keyPath));
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
    const tokenCount = Math.min(claim.tokenCount, Number(TOKENS_PER_NODE));
    const isRecalled = this.#options.recallWatches.isRecalled(node);
    return {
      state: "held",
      token,
      tokenCount,
      remainingMs: this.#zk.remainingMs(),
      ...(isRecalled && { recalled: true }),
    };
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

  #grant(node: ClaimNode, queue: readonly QueueNode[]): Answer {
    if (!node.isGranted) {
      const token = this.toToken(node.czxid);
      if (token < node.claim.floor) {
        throw new StoreRefusedError(
          "zookeeper: its tokens are below those seen on this key before: set tokenBase if the locks were moved from another store",
        );
      }
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

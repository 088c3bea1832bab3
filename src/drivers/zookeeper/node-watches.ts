/** Whom a claim watches: who stands in its way while it waits, its own node while it is held. */

import { findBlocker } from "../../lock-table/admission.ts";
import type { ClaimId } from "../../spi/driver.ts";
import type { ClaimNode, ClaimNodes } from "./claim-nodes.ts";
import { hasCode } from "./client/errors.ts";
import { nextTurn } from "./client/helpers.ts";
import type { ZooKeeper } from "./client/zookeeper.ts";
import { REVOKE_DATA } from "./node-data.ts";
import type { QueueNode } from "./node-names.ts";

/** A watch of a whole line. */
interface QueueWatch {
  /** With the line as each has seen it. */
  readonly queues: Map<ClaimNode, readonly QueueNode[]>;
  /** What stood there when it was set; null: that is not known yet. */
  names: ReadonlySet<string> | null;
  /** Has any of that line gone? Hundreds have seen the same one. */
  readonly missesByQueue: WeakMap<readonly QueueNode[], boolean>;
}

/** Had some of this line gone when the watch was set? Nobody is told of those. */
function hasMissedRemoval({ names, missesByQueue }: QueueWatch, queue: readonly QueueNode[]): boolean {
  if (names === null) return false;
  let hasMissed = missesByQueue.get(queue);
  if (hasMissed === undefined) {
    hasMissed = queue.some(({ name }) => name !== "" && !names.has(name));
    missesByQueue.set(queue, hasMissed);
  }
  return hasMissed;
}

export class NodeWatches {
  readonly #zk: ZooKeeper;
  readonly #claimNodes: ClaimNodes;
  readonly #onChange: (id: ClaimId) => void;
  /** By the path of the node that must go first. */
  readonly #waitersByPath = new Map<string, Set<ClaimNode>>();
  /** By the folder of the line. */
  readonly #queueWatches = new Map<string, QueueWatch>();
  #turn = 0;

  /** changed: a claim's answer may have changed. */
  constructor(zk: ZooKeeper, claimNodes: ClaimNodes, onChange: (id: ClaimId) => void) {
    this.#zk = zk;
    this.#claimNodes = claimNodes;
    this.#onChange = onChange;
  }

  /**
   * Exactly one watch a waiting claim. It is set behind the look on the same connection: if the blocker has gone in
   * between, the answer says so, and the claim is asked about again.
   */
  watchBlocker(node: ClaimNode, queue: readonly QueueNode[], ownIndex: number): void {
    const blocker = findBlocker(queue, ownIndex);
    const target = blocker === "line" ? node.keyPath : `${node.keyPath}/${(queue[blocker] as QueueNode).name}`;
    if (node.watchedPath === target) return;
    this.stop(node);
    node.watchedPath = target;
    if (blocker === "line") this.#joinQueueWatch(node, queue);
    else this.#watchNode(node, target);
  }

  /** It waits no more. What was asked of the servers for it they tell nobody. */
  stop(node: ClaimNode): void {
    this.#waitersByPath.get(node.watchedPath)?.delete(node);
    this.#queueWatches.get(node.watchedPath)?.queues.delete(node);
    node.watchedPath = "";
  }

  /** All that wait for one node share its watch, however many come and go while it stands. */
  #watchNode(node: ClaimNode, path: string): void {
    const waiters = this.#waitersByPath.get(path);
    if (waiters !== undefined) {
      waiters.add(node);
      return;
    }
    const newWaiters = new Set([node]);
    this.#waitersByPath.set(path, newWaiters);
    const onGone = (): void => {
      if (this.#waitersByPath.get(path) === newWaiters) this.#waitersByPath.delete(path);
      for (const waiter of newWaiters) this.#onBlockerGone(waiter, path);
    };
    const onEvent = (event: unknown): void => {
      // with the session all places end
      if (event === null) this.#waitersByPath.delete(path);
      else onGone();
    };
    this.#zk
      .exists(path, onEvent)
      .then((stat) => {
        if (stat !== null) return;
        onGone();
        // where that cannot be said, the connection is lost, and with it what it was about
        this.#zk.removeWatches(path).catch(() => undefined);
      })
      .catch(onGone);
  }

  /** Any removal counts: the first change of the list ends it. All that wait for one in a line share its watch. */
  #joinQueueWatch(node: ClaimNode, queue: readonly QueueNode[]): void {
    const path = node.keyPath;
    const existing = this.#queueWatches.get(path);
    const watch = existing ?? { queues: new Map(), names: null, missesByQueue: new WeakMap() };
    watch.queues.set(node, queue);
    if (existing === undefined) this.#watchQueue(path, watch);
    // its look may be older than the watch
    else if (hasMissedRemoval(watch, queue)) queueMicrotask(() => this.#onBlockerGone(node, path));
  }

  #watchQueue(path: string, watch: QueueWatch): void {
    this.#queueWatches.set(path, watch);
    const onChanged = (): void => {
      if (this.#queueWatches.get(path) === watch) this.#queueWatches.delete(path);
      for (const node of watch.queues.keys()) this.#onBlockerGone(node, path);
    };
    const onEvent = (event: unknown): void => {
      // with the session all places end
      if (event === null) this.#queueWatches.delete(path);
      else onChanged();
    };
    this.#zk
      .children(path, onEvent)
      .then(({ names }) => {
        watch.names = new Set(names);
        for (const [node, queue] of watch.queues) if (hasMissedRemoval(watch, queue)) this.#onBlockerGone(node, path);
      })
      .catch(onChanged);
  }

  #onBlockerGone(node: ClaimNode, path: string): void {
    if (node.watchedPath !== path) return;
    node.watchedPath = "";
    node.isBlockerGone = true;
    if (node.status !== "gone") this.#onChange(node.claim.id);
  }

  /** As watchOwnNode(), when this turn of the event loop is over: a lock that was released by then costs no request more. */
  watchOwnNodeLater(node: ClaimNode): void {
    void nextTurn().then(() => {
      if (!node.isWatched && node.pendingCheck === null) this.watchOwnNode(node);
    });
  }

  /**
   * Tells when our node is deleted, or revoked by its data (Curator's convention). Nobody but who revokes changes it: one
   * that was changed and is gone was revoked, and removed at once.
   */
  watchOwnNode(node: ClaimNode, isChanged = false): void {
    if (node.status !== "there") return;
    const reading = this.#zk.get(node.path, (event) => {
      // there is nothing left to ask about
      if (event?.kind === "deleted") this.#onDeleted(node);
      else if (event !== null) this.watchOwnNode(node, true);
    });
    const pendingCheck = reading.then(
      ({ data }) => {
        node.isWatched = true;
        if (data.equals(REVOKE_DATA)) this.#onRevoked(node);
      },
      (error: unknown) => {
        // where it could not be asked, the next renewal does
        node.isWatched = false;
        if (node.status !== "there" || !hasCode(error, "NO_NODE")) return;
        if (isChanged) this.#onRevoked(node);
        this.#onDeleted(node);
      },
    );
    node.pendingCheck = pendingCheck;
    void pendingCheck.finally(() => {
      if (node.pendingCheck === pendingCheck) node.pendingCheck = null;
    });
  }

  /**
   * Asks whether the node of one of these is there: of the one that was not asked about for longest. Events are what tells
   * that a node is gone; should one be lost, for whatever reason, its holder learns of it all the same, by renewals.
   */
  async confirmOne(held: readonly ClaimNode[]): Promise<void> {
    let next: ClaimNode | undefined;
    for (const node of held) if (next === undefined || node.confirmedAtTurn < next.confirmedAtTurn) next = node;
    if (next === undefined) return;
    next.confirmedAtTurn = ++this.#turn;
    if ((await this.#zk.exists(next.path)) === null) this.#onDeleted(next);
  }

  #onDeleted(node: ClaimNode): void {
    if (node.status !== "there") return;
    this.#claimNodes.end(node, null);
    this.#onChange(node.claim.id);
  }

  #onRevoked(node: ClaimNode): void {
    if (node.isRevoked || node.status !== "there") return;
    node.isRevoked = true;
    this.#onChange(node.claim.id);
  }
}

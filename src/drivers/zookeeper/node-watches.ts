/** The watches of claims: a waiting claim watches the node that blocks it, a held claim its own node. */

import { findBlocker } from "../../lock-table/admission.ts";
import type { ClaimId } from "../../spi/driver.ts";
import type { ClaimNode, ClaimNodes } from "./claim-nodes.ts";
import { hasCode } from "./client/errors.ts";
import { nextTurn } from "./client/helpers.ts";
import type { ZooKeeper } from "./client/zookeeper.ts";
import { REVOKE_DATA } from "./node-data.ts";
import type { QueueNode } from "./node-names.ts";

/** A watch on all nodes of a queue. */
interface QueueWatch {
  /** The waiting claims, each with the queue as it has seen it. */
  readonly queues: Map<ClaimNode, readonly QueueNode[]>;
  /** The names that existed when the watch was set; null: not known yet. */
  names: ReadonlySet<string> | null;
  /** Caches hasMissedRemoval() by queue: hundreds of claims have seen the same one. */
  readonly missesByQueue: WeakMap<readonly QueueNode[], boolean>;
}

/** Was a node of this queue deleted before the watch was set? The watch does not fire for such a node. */
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
  /** By the path of the key's node. */
  readonly #queueWatches = new Map<string, QueueWatch>();
  #turn = 0;

  /** onChange: a claim's answer may have changed. */
  constructor(zk: ZooKeeper, claimNodes: ClaimNodes, onChange: (id: ClaimId) => void) {
    this.#zk = zk;
    this.#claimNodes = claimNodes;
    this.#onChange = onChange;
  }

  /**
   * Sets exactly one watch per waiting claim. The request follows the read of the queue on the same connection: if the
   * blocker was deleted in between, the answer shows it, and the claim is rechecked.
   */
  watchBlocker(node: ClaimNode, queue: readonly QueueNode[], ownIndex: number): void {
    const blocker = findBlocker(queue, ownIndex);
    const target = blocker === "queue" ? node.keyPath : `${node.keyPath}/${(queue[blocker] as QueueNode).name}`;
    if (node.watchedPath === target) return;
    this.stop(node);
    node.watchedPath = target;
    if (blocker === "queue") this.#joinQueueWatch(node, queue);
    else this.#watchNode(node, target);
  }

  /** Stops watching. The server-side watch remains, but its event is ignored. */
  stop(node: ClaimNode): void {
    this.#waitersByPath.get(node.watchedPath)?.delete(node);
    this.#queueWatches.get(node.watchedPath)?.queues.delete(node);
    node.watchedPath = "";
  }

  /** All claims that wait for one node share its watch, however many come and go meanwhile. */
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
      // all nodes have ended with the session
      if (event === null) this.#waitersByPath.delete(path);
      else onGone();
    };
    this.#zk
      .exists(path, onEvent)
      .then((stat) => {
        if (stat !== null) return;
        onGone();
        // if this fails, the connection is lost, and the watch with it
        this.#zk.removeWatches(path).catch(() => undefined);
      })
      .catch(onGone);
  }

  /**
   * Waits for any removal: the watch fires at the first change of the list of children. All claims of a queue that wait
   * for any removal share it.
   */
  #joinQueueWatch(node: ClaimNode, queue: readonly QueueNode[]): void {
    const path = node.keyPath;
    const existing = this.#queueWatches.get(path);
    const watch = existing ?? { queues: new Map(), names: null, missesByQueue: new WeakMap() };
    watch.queues.set(node, queue);
    if (existing === undefined) this.#watchQueue(path, watch);
    // the claim's read of the queue may be older than the watch
    else if (hasMissedRemoval(watch, queue)) queueMicrotask(() => this.#onBlockerGone(node, path));
  }

  #watchQueue(path: string, watch: QueueWatch): void {
    this.#queueWatches.set(path, watch);
    const onChanged = (): void => {
      if (this.#queueWatches.get(path) === watch) this.#queueWatches.delete(path);
      for (const node of watch.queues.keys()) this.#onBlockerGone(node, path);
    };
    const onEvent = (event: unknown): void => {
      // all nodes have ended with the session
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
    if (node.status !== "ended") this.#onChange(node.claim.id);
  }

  /**
   * Like watchOwnNode(), after this turn of the event loop: a lock that has been released by then costs no further
   * request.
   */
  watchOwnNodeLater(node: ClaimNode): void {
    void nextTurn().then(() => {
      if (!node.isWatched && node.pendingCheck === null) this.watchOwnNode(node);
    });
  }

  /**
   * Detects that a held claim's node is deleted, or revoked by its data (Curator's convention). Only a revocation
   * changes the data: a node that was changed and then deleted was revoked with immediate removal.
   */
  watchOwnNode(node: ClaimNode, isChanged = false): void {
    if (node.status !== "present") return;
    const readTask = this.#zk.get(node.path, (event) => {
      // deleted: no further read is needed
      if (event?.kind === "deleted") this.#onDeleted(node);
      else if (event !== null) this.watchOwnNode(node, true);
    });
    const pendingCheck = readTask.then(
      ({ data }) => {
        node.isWatched = true;
        if (data.equals(REVOKE_DATA)) this.#onRevoked(node);
      },
      (error: unknown) => {
        // after another error the next renewal sets the watch
        node.isWatched = false;
        if (node.status !== "present" || !hasCode(error, "NO_NODE")) return;
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
   * Checks that one of these nodes exists: the one whose last check is the oldest. Events normally report a deleted
   * node; if an event is lost for any reason, the renewals still detect it.
   */
  async confirmOne(held: readonly ClaimNode[]): Promise<void> {
    let next: ClaimNode | undefined;
    for (const node of held) if (next === undefined || node.confirmedAtTurn < next.confirmedAtTurn) next = node;
    if (next === undefined) return;
    next.confirmedAtTurn = ++this.#turn;
    if ((await this.#zk.exists(next.path)) === null) this.#onDeleted(next);
  }

  #onDeleted(node: ClaimNode): void {
    if (node.status !== "present") return;
    this.#claimNodes.end(node, null);
    this.#onChange(node.claim.id);
  }

  #onRevoked(node: ClaimNode): void {
    if (node.grant === "revoked" || node.status !== "present") return;
    node.grant = "revoked";
    this.#onChange(node.claim.id);
  }
}

/**
 * Which held claims others wait for. Only for claims that ask to be recalled: a claim that does not costs no request.
 *
 *   no node is behind the holder  a watch on the list of nodes of the queue
 *   a node is behind it           a watch on that node: when it is gone, the list is read again. Its data says whether its
 *                                 claim waits; a claim that only tries is gone soon
 *   shared holders                a watch on the list, in either case: each release may admit a node
 *
 * Invariants
 * - The holder of a queue is told once for each first waiter: further waiters, and those that leave behind it, cause no
 *   read.
 * - A claim that does not wait recalls no holder.
 * - No watch is lost while the session lives: the client sends all watches again on a new connection, and the servers
 *   report what has changed meanwhile. If a watch could not be set, the next renewal reads the queue again. So a waiter
 *   repeats nothing.
 */

import { countAdmitted } from "../../lock-table/admission.ts";
import type { ClaimId } from "../../spi/driver.ts";
import { ALL_PERMITS } from "../../spi/driver.ts";
import type { ClaimNode } from "./claim-nodes.ts";
import { hasCode } from "./client/errors.ts";
import { nextTurn } from "./client/helpers.ts";
import type { ZooKeeper } from "./client/zookeeper.ts";
import { decodeData } from "./node-data.ts";
import type { Family, QueueNode } from "./node-names.ts";
import { parseQueue } from "./node-names.ts";

/** A queue with held claims of this client. */
interface HeldQueue {
  readonly keyPath: string;
  readonly holders: Set<ClaimNode>;
  /** Others may be admitted beside the holder. */
  readonly isShared: boolean;
  /** The name of the first node behind the admitted ones; null: there is none, as far as known. */
  behind: string | null;
  /** The claim of that node waits: its client does not only try. */
  isWanted: boolean;
  /** A watch is set for what would change that. */
  isWatched: boolean;
  /** The read in flight. */
  pendingRead: Promise<void> | null;
}

/** The name of the first node of a queue that is not admitted; null: there is none. */
function findFirstBehind(queue: readonly QueueNode[]): string | null {
  return queue[countAdmitted(queue)]?.name ?? null;
}

export class RecallWatches {
  readonly #zk: ZooKeeper;
  readonly #family: Family;
  readonly #onRecalled: (id: ClaimId) => void;
  /** By the path of the key's node. */
  readonly #queues = new Map<string, HeldQueue>();

  /** onRecalled: another claim waits for this one. */
  constructor(zk: ZooKeeper, family: Family, onRecalled: (id: ClaimId) => void) {
    this.#zk = zk;
    this.#family = family;
    this.#onRecalled = onRecalled;
  }

  /**
   * Watches who waits for the claim, which is granted now. The watch is set after this turn of the event loop: a lock
   * that has been released by then costs no request.
   * @param queue as it was read when the claim was granted
   */
  add(node: ClaimNode, queue: readonly QueueNode[]): void {
    if (node.claim.recall !== true) return;
    const { keyPath } = node;
    let held = this.#queues.get(keyPath);
    if (held === undefined) {
      const behind = findFirstBehind(queue);
      const isShared = node.claim.locks[0].permits < ALL_PERMITS;
      // a node behind it most likely waits; what is read of it comes later than the grant
      const isWanted = behind !== null;
      held = { keyPath, holders: new Set(), isShared, behind, isWanted, isWatched: false, pendingRead: null };
      this.#queues.set(keyPath, held);
      const created = held;
      void nextTurn().then(() => this.#watch(created));
    }
    held.holders.add(node);
  }

  remove(node: ClaimNode): void {
    const held = this.#queues.get(node.keyPath);
    if (held?.holders.delete(node) && held.holders.size === 0) this.#queues.delete(node.keyPath);
  }

  /** Does another claim wait for this one, which is held? */
  isRecalled({ claim, keyPath }: ClaimNode): boolean {
    return claim.recall === true && this.#queues.get(keyPath)?.isWanted === true;
  }

  /** Waits until what the servers have reported by now is known. Sets the watch again if it could not be set. */
  async settle(node: ClaimNode): Promise<void> {
    const held = this.#queues.get(node.keyPath);
    if (held?.holders.has(node) !== true) return;
    this.#watch(held);
    await held.pendingRead;
  }

  #watch(held: HeldQueue): void {
    if (held.pendingRead !== null) return;
    held.pendingRead = this.#read(held)
      .catch(() => {
        // the next renewal tries again
        held.isWatched = false;
      })
      .finally(() => {
        held.pendingRead = null;
      });
  }

  /**
   * Reads and watches, and again if something has changed since: an event may have come before its answer was looked
   * at.
   */
  async #read(held: HeldQueue): Promise<void> {
    if (held.isWatched || !this.#isCurrent(held)) return;
    held.isWatched = true;
    if (held.behind === null || held.isShared) await this.#readQueue(held);
    else await this.#readBehind(held, held.behind);
    return this.#read(held);
  }

  async #readQueue(held: HeldQueue): Promise<void> {
    const { names } = await this.#zk.children(held.keyPath, () => this.#onEvent(held, null));
    const behind = findFirstBehind(parseQueue(names, this.#family).queue);
    if (held.isShared) held.behind = behind;
    if (behind === null) held.isWanted = false;
    else if (held.isShared) await this.#readBehind(held, behind);
    else this.#lookAt(held, behind);
  }

  async #readBehind(held: HeldQueue, behind: string): Promise<void> {
    const path = `${held.keyPath}/${behind}`;
    try {
      const { data } = await (held.isShared
        ? this.#zk.get(path)
        : this.#zk.get(path, () => this.#onEvent(held, behind)));
      // an event came before this answer was looked at
      if (held.behind !== behind || !this.#isCurrent(held)) return;
      held.isWanted = decodeData(data)?.wait !== false;
      if (!held.isWanted) return;
      for (const { claim, grant } of held.holders) if (grant === "held") this.#onRecalled(claim.id);
    } catch (error) {
      if (!hasCode(error, "NO_NODE")) throw error;
      this.#lookAt(held, null);
    }
  }

  /** What was watched has changed: that node; null: the list of nodes. */
  #onEvent(held: HeldQueue, watched: string | null): void {
    if (!held.isShared && held.behind !== watched) return;
    this.#lookAt(held, null);
    this.#watch(held);
  }

  /** What to read next: that node; null: the list of nodes. */
  #lookAt(held: HeldQueue, behind: string | null): void {
    held.behind = behind;
    held.isWanted = false;
    held.isWatched = false;
  }

  /** It still has holders. */
  #isCurrent(held: HeldQueue): boolean {
    return this.#queues.get(held.keyPath) === held;
  }
}

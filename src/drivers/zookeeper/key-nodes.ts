/**
 * The nodes of keys, the parents of queues: containers, created on first use.
 *
 * Invariant: no claim's node is created below a key's node before this client is known to have the permission to delete
 * it there. The parent's ACL grants delete separately from create: without it a lock could be taken but not released.
 */

import { StoreRefusedError } from "../../errors.ts";
import { hasCode } from "./client/errors.ts";
import { makeContainers, UNUSED_NAME } from "./client/helpers.ts";
import type { Acl } from "./client/records.ts";
import type { ZooKeeper } from "./client/zookeeper.ts";

const DELETE_PERMISSION = 8;
/** How many verified key nodes are remembered; the servers remove empty ones. */
const MAX_VERIFIED = 10_000;

export class KeyNodes {
  readonly #zk: ZooKeeper;
  readonly #acl: () => readonly Acl[];
  /** Key nodes with the permission to delete children. */
  readonly #verified = new Set<string>();
  /** ACLs, as JSON, that give this client the permission to delete children. */
  readonly #verifiedAcls = new Set<string>();
  readonly #pending = new Map<string, Promise<void>>();

  /** acl: the ACL of created key nodes. */
  constructor(zk: ZooKeeper, acl: () => readonly Acl[]) {
    this.#zk = zk;
    this.#acl = acl;
  }

  isVerified(keyPath: string): boolean {
    return this.#verified.has(keyPath);
  }

  /**
   * Ensures that the key's node exists, or existed a moment ago, and that its children can be deleted: a node created
   * here has already had a child that was deleted.
   * @throws StoreRefusedError without that permission
   */
  ensure(keyPath: string): Promise<void> {
    let pending = this.#pending.get(keyPath);
    if (pending === undefined) {
      pending = this.#verify(keyPath).finally(() => this.#pending.delete(keyPath));
      this.#pending.set(keyPath, pending);
    }
    return pending;
  }

  /** Forgets a key node, after permissions were removed there. */
  forget(keyPath: string): void {
    this.#verified.delete(keyPath);
    this.#verifiedAcls.clear();
  }

  async #verify(keyPath: string): Promise<void> {
    const acl = await this.#readAcl(keyPath);
    if (acl === "absent") await makeContainers(this.#zk, keyPath, this.#acl());
    else if (acl === "unreadable") await this.#checkDelete(keyPath);
    else if (!isDeleteOpen(acl)) {
      const text = JSON.stringify(acl);
      if (!this.#verifiedAcls.has(text)) await this.#checkDelete(keyPath);
      this.#verifiedAcls.add(text);
    }
    if (this.#verified.size >= MAX_VERIFIED) this.#verified.clear();
    this.#verified.add(keyPath);
  }

  async #readAcl(keyPath: string): Promise<readonly Acl[] | "absent" | "unreadable"> {
    try {
      return await this.#zk.getAcl(keyPath);
    } catch (error) {
      if (hasCode(error, "NO_NODE")) return "absent";
      if (hasCode(error, "NO_AUTH")) return "unreadable";
      throw error;
    }
  }

  /** Tries to delete a node that does not exist: the servers check the permission first. */
  async #checkDelete(keyPath: string): Promise<void> {
    try {
      await this.#zk.delete(`${keyPath}/${UNUSED_NAME}`);
    } catch (error) {
      if (hasCode(error, "NO_NODE")) return;
      if (!hasCode(error, "NO_AUTH")) throw error;
      const message = `zookeeper: no permission to delete nodes in ${keyPath}, so a lock could not be released: NO_AUTH`;
      throw new StoreRefusedError(message, { cause: error });
    }
  }
}

function isDeleteOpen(acl: readonly Acl[]): boolean {
  return acl.some(({ scheme, perms }) => scheme === "world" && (perms & DELETE_PERMISSION) !== 0);
}

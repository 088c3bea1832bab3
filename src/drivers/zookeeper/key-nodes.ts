/**
 * The nodes below which queues stand: containers, made when they are first needed.
 *
 * Invariant: no place is made in a folder before it is known that we may delete it there. The right to delete a node is its
 * parent's to give, apart from the right to create it: without it a lock could be taken and never be given back.
 */

import { FatalDriverError } from "../../errors.ts";
import { hasCode } from "./client/errors.ts";
import { makeContainers, UNUSED_NAME } from "./client/helpers.ts";
import type { Acl } from "./client/records.ts";
import type { ZooKeeper } from "./client/zookeeper.ts";

const DELETE_PERMISSION = 8;
/** Folders remembered; the servers remove those that are empty. */
const MAX_VERIFIED = 10_000;

export class KeyNodes {
  readonly #zk: ZooKeeper;
  readonly #acl: () => readonly Acl[];
  /** In these we may delete. */
  readonly #verified = new Set<string>();
  /** In folders with such an ACL we may delete. */
  readonly #verifiedAcls = new Set<string>();
  readonly #pending = new Map<string, Promise<void>>();

  /** acl: who may do what with folders that are made. */
  constructor(zk: ZooKeeper, acl: () => readonly Acl[]) {
    this.#zk = zk;
    this.#acl = acl;
  }

  isVerified(keyPath: string): boolean {
    return this.#verified.has(keyPath);
  }

  /**
   * It is there, or was a moment ago, and we may delete in it: one that we make has had a child already that we deleted.
   * @throws FatalDriverError if we may not
   */
  ensure(keyPath: string): Promise<void> {
    let pending = this.#pending.get(keyPath);
    if (pending === undefined) {
      pending = this.#verify(keyPath).finally(() => this.#pending.delete(keyPath));
      this.#pending.set(keyPath, pending);
    }
    return pending;
  }

  /** Somebody has taken rights away there. */
  forget(keyPath: string): void {
    this.#verified.delete(keyPath);
    this.#verifiedAcls.clear();
  }

  async #verify(keyPath: string): Promise<void> {
    const acl = await this.#readAcl(keyPath);
    if (acl === "absent") await makeContainers(this.#zk, keyPath, this.#acl());
    else if (acl === "secret") await this.#checkDelete(keyPath);
    else if (!isDeleteOpen(acl)) {
      const text = JSON.stringify(acl);
      if (!this.#verifiedAcls.has(text)) await this.#checkDelete(keyPath);
      this.#verifiedAcls.add(text);
    }
    if (this.#verified.size >= MAX_VERIFIED) this.#verified.clear();
    this.#verified.add(keyPath);
  }

  async #readAcl(keyPath: string): Promise<readonly Acl[] | "absent" | "secret"> {
    try {
      return await this.#zk.getAcl(keyPath);
    } catch (error) {
      if (hasCode(error, "NO_NODE")) return "absent";
      if (hasCode(error, "NO_AUTH")) return "secret";
      throw error;
    }
  }

  /** The servers look at the right before they look for the node. */
  async #checkDelete(keyPath: string): Promise<void> {
    try {
      await this.#zk.delete(`${keyPath}/${UNUSED_NAME}`);
    } catch (error) {
      if (hasCode(error, "NO_NODE")) return;
      if (!hasCode(error, "NO_AUTH")) throw error;
      const message = `zookeeper: in ${keyPath} we may not delete, so that a lock could not be given back: NO_AUTH`;
      throw new FatalDriverError(message, { cause: error });
    }
  }
}

function isDeleteOpen(acl: readonly Acl[]): boolean {
  return acl.some(({ scheme, perms }) => scheme === "world" && (perms & DELETE_PERMISSION) !== 0);
}

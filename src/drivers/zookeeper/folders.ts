/**
 * The nodes below which queues stand: containers, made when they are first needed.
 *
 * Invariant: no place is made in a folder before it is known that we may delete it there. The right to delete a node is its
 * parent's to give, apart from the right to create it: without it a lock could be taken and never be given back.
 */

import { FatalDriverError } from "../../errors.ts";
import { isRefusal } from "./client/errors.ts";
import { makeContainers, NOBODY } from "./client/recipes.ts";
import type { Acl } from "./client/records.ts";
import type { ZooKeeper } from "./client/zookeeper.ts";

const DELETE = 8;
/** Folders remembered; the servers remove those that are empty. */
const MOST_KNOWN = 10_000;

export class Folders {
  readonly #zk: ZooKeeper;
  readonly #acl: () => readonly Acl[];
  /** In these we may delete. */
  readonly #known = new Set<string>();
  /** In folders with such an ACL we may delete. */
  readonly #proven = new Set<string>();
  readonly #underWay = new Map<string, Promise<void>>();

  /** acl: who may do what with folders that are made. */
  constructor(zk: ZooKeeper, acl: () => readonly Acl[]) {
    this.#zk = zk;
    this.#acl = acl;
  }

  isReady(folder: string): boolean {
    return this.#known.has(folder);
  }

  /**
   * It is there, or was a moment ago, and we may delete in it: one that we make has had a child already that we deleted.
   * @throws FatalDriverError if we may not
   */
  ready(folder: string): Promise<void> {
    let underWay = this.#underWay.get(folder);
    if (underWay === undefined) {
      underWay = this.#make(folder).finally(() => this.#underWay.delete(folder));
      this.#underWay.set(folder, underWay);
    }
    return underWay;
  }

  /** Somebody has taken rights away there. */
  forget(folder: string): void {
    this.#known.delete(folder);
    this.#proven.clear();
  }

  async #make(folder: string): Promise<void> {
    const acl = await this.#aclOf(folder);
    if (acl === "absent") await makeContainers(this.#zk, folder, this.#acl());
    else if (acl === "secret") await this.#probe(folder);
    else if (!isOpen(acl)) {
      const text = JSON.stringify(acl);
      if (!this.#proven.has(text)) await this.#probe(folder);
      this.#proven.add(text);
    }
    if (this.#known.size >= MOST_KNOWN) this.#known.clear();
    this.#known.add(folder);
  }

  async #aclOf(folder: string): Promise<readonly Acl[] | "absent" | "secret"> {
    try {
      return await this.#zk.getAcl(folder);
    } catch (error) {
      if (isRefusal(error, "NO_NODE")) return "absent";
      if (isRefusal(error, "NO_AUTH")) return "secret";
      throw error;
    }
  }

  /** The servers look at the right before they look for the node. */
  async #probe(folder: string): Promise<void> {
    try {
      await this.#zk.delete(`${folder}/${NOBODY}`);
    } catch (error) {
      if (isRefusal(error, "NO_NODE")) return;
      if (!isRefusal(error, "NO_AUTH")) throw error;
      const why = `zookeeper: in ${folder} we may not delete, so that a lock could not be given back: NO_AUTH`;
      throw new FatalDriverError(why, { cause: error });
    }
  }
}

function isOpen(acl: readonly Acl[]): boolean {
  return acl.some(({ scheme, perms }) => scheme === "world" && (perms & DELETE) !== 0);
}

/** Creates and deletes the nodes of claims, also if a reply was lost. */

import { StoreRefusedError } from "../../spi/driver.ts";
import type { ClaimNode, ClaimNodes } from "./claim-nodes.ts";
import { hasCode, isOutcomeUnknown, SessionExpiredError, toFatalError } from "./client/errors.ts";
import { createBelow } from "./client/helpers.ts";
import type { Acl, Stat } from "./client/records.ts";
import type { ZooKeeper } from "./client/zookeeper.ts";
import { encodeData } from "./node-data.ts";
import type { Family } from "./node-names.ts";
import { formatClaimPrefix, formatNodePrefix } from "./node-names.ts";
import type { NodeWatches } from "./node-watches.ts";
import type { QueueReads } from "./queue-reads.ts";

interface NodeWritesOptions {
  readonly zk: ZooKeeper;
  readonly claimNodes: ClaimNodes;
  readonly reads: QueueReads;
  readonly watches: NodeWatches;
  /** The ACL of new nodes. */
  readonly acl: () => readonly Acl[];
  readonly family: Family;
}

export class NodeWrites {
  readonly #options: NodeWritesOptions;

  constructor(options: NodeWritesOptions) {
    this.#options = options;
  }

  /** Deletes the claim's node, also that of an unanswered create. Says whether the claim had its entry until then. */
  delete(node: ClaimNode): Promise<boolean> {
    // a release that is repeated because the server is slow must not make it slower; only one of the two ends the claim
    if (node.pendingDeletion !== null) return node.pendingDeletion.then(() => false);
    node.pendingDeletion = this.#delete(node).finally(() => {
      node.pendingDeletion = null;
    });
    return node.pendingDeletion;
  }

  async #delete(node: ClaimNode): Promise<boolean> {
    const { zk, claimNodes, watches } = this.#options;
    const hadEntry = node.status === "outside" || (node.status === "present" && node.grant !== "revoked");
    const hasNoNode = node.name === "" && node.pendingCreation === null && !node.isOutcomeUnknown;
    // end it first: no other call may answer for the claim from here on
    claimNodes.end(node, "released");
    watches.stop(node);
    if (hasNoNode) return hadEntry;
    try {
      await node.pendingCreation?.catch(() => undefined);
      if (node.name === "" && !(await this.#findNode(node))) return false;
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
    if (fatal instanceof StoreRefusedError) await this.delete(node).catch(() => undefined);
    return fatal;
  }

  /**
   * Creates the claim's node, if it does not exist. A create whose reply was lost is found by the claim's id, among the
   * nodes of this session: a node of an earlier session is about to be deleted. (Curator: a protected create.)
   */
  create(node: ClaimNode): Promise<void> {
    node.pendingCreation ??= this.#sendCreate(node).finally(() => {
      node.pendingCreation = null;
    });
    return node.pendingCreation;
  }

  async #sendCreate(node: ClaimNode): Promise<void> {
    if (node.isOutcomeUnknown && (await this.#findNode(node))) return;
    const { keyPath, claim } = node;
    const { zk, acl, family } = this.#options;
    try {
      const mode = "ephemeralSequential";
      const { path, czxid } = await createBelow(zk, keyPath, formatNodePrefix(claim.id, claim.locks[0], family), {
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
    const { zk, reads } = this.#options;
    const { keyPath, claim } = node;
    const { queue } = await reads.readSynced(keyPath);
    const ownNames = queue.map(({ name }) => name).filter((name) => name.startsWith(formatClaimPrefix(claim.id)));
    const stats = await Promise.all(ownNames.map((name) => zk.exists(`${keyPath}/${name}`)));
    node.isOutcomeUnknown = false;
    const index = stats.findIndex((stat) => stat?.ephemeralOwner === zk.sessionId);
    if (index === -1) return false;
    this.#onCreated(node, ownNames[index] as string, (stats[index] as Stat).czxid);
    return true;
  }
}

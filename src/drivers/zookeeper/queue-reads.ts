/** Reads the queues of keys. */

import { hasCode } from "./client/errors.ts";
import type { ZooKeeper } from "./client/zookeeper.ts";
import type { Family, ParsedQueue } from "./node-names.ts";
import { parseQueue } from "./node-names.ts";
import { SharedCalls } from "./shared-calls.ts";

/**
 * Each answer is as long as its queue, so a read for each of a thousand claims that come or go at once would keep the
 * session's own requests waiting for longer than it lasts: calls for one key share a read.
 */
export class QueueReads {
  readonly #zk: ZooKeeper;
  readonly #family: Family;
  readonly #reads = new SharedCalls<ParsedQueue>();
  readonly #syncedReads = new SharedCalls<ParsedQueue>();

  constructor(zk: ZooKeeper, family: Family) {
    this.#zk = zk;
    this.#family = family;
  }

  /** By a request that is sent after this call. @throws (rejects) ZooKeeperError NO_NODE if the key has no node */
  read(keyPath: string): Promise<ParsedQueue> {
    return this.#reads.call(keyPath, async () => parseQueue((await this.#zk.children(keyPath)).names, this.#family));
  }

  /** The same; a key without a node has an empty queue. */
  async readOrEmpty(keyPath: string): Promise<ParsedQueue> {
    try {
      return await this.read(keyPath);
    } catch (error) {
      if (hasCode(error, "NO_NODE")) return parseQueue([], this.#family);
      throw error;
    }
  }

  /** The same after a sync: without one this server may not have seen what another server has carried out. */
  readSynced(keyPath: string): Promise<ParsedQueue> {
    return this.#syncedReads.call(keyPath, async () => {
      const [, parsed] = await Promise.all([this.#sync(keyPath), this.readOrEmpty(keyPath)]);
      return parsed;
    });
  }

  async #sync(keyPath: string): Promise<void> {
    await this.#zk.sync(keyPath).catch((error: unknown) => {
      if (!hasCode(error, "NO_NODE")) throw error;
    });
  }
}

/** A ZooKeeper for the tests of one file, a connection that looks on, and clients that are closed after each test. */

import { afterAll, afterEach, beforeAll } from "vitest";
import { ZooKeeper } from "../../src/drivers/zookeeper/client/zookeeper.ts";
import type { ZooKeeperServer } from "./services/zookeeper.ts";
import { startZooKeeper } from "./services/zookeeper.ts";

export interface ZooKeeperScene {
  readonly server: ZooKeeperServer;
  readonly zk: ZooKeeper;
  /** Closed when the test is over, and forgotten. */
  readonly clients: { close(): Promise<void> }[];
}

/** Called once at the head of a file. */
export function zookeeperScene(options?: Parameters<typeof startZooKeeper>[0]): ZooKeeperScene {
  let server: ZooKeeperServer;
  let zk: ZooKeeper;
  const clients: { close(): Promise<void> }[] = [];

  beforeAll(async () => {
    server = await startZooKeeper(options);
    zk = new ZooKeeper({ servers: [server.address] });
    await zk.open();
  }, 60_000);
  afterAll(async () => {
    await zk.close();
    await server[Symbol.asyncDispose]();
  });
  afterEach(async () => {
    await Promise.all(clients.splice(0).map((one) => one.close()));
  });

  return {
    clients,
    get server() {
      return server;
    },
    get zk() {
      return zk;
    },
  };
}

/**
 * A ZooKeeper for the tests of one file, a connection that looks on, and drivers and clients that are closed after each test.
 * Then its nodes are judged (inspect-zookeeper.ts): roots, and what a test has made by hand, are expected.
 */

import { afterAll, afterEach, beforeAll, expect } from "vitest";
import type { Created, CreateOptions } from "../../src/drivers/zookeeper/client/operations.ts";
import type { ZooKeeperOptions } from "../../src/drivers/zookeeper/client/zookeeper.ts";
import { ZooKeeper } from "../../src/drivers/zookeeper/client/zookeeper.ts";
import type { ZooKeeperDriverOptions } from "../../src/drivers/zookeeper/driver.ts";
import { zookeeper } from "../../src/drivers/zookeeper/driver.ts";
import { newId } from "../../src/ids.ts";
import type { Claim, Driver, Notify } from "../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../src/spi/driver.ts";
import { zookeeperViolations } from "./inspect-zookeeper.ts";
import type { ServerOptions, ZooKeeperServer } from "./services/zookeeper.ts";
import { startZooKeeper } from "./services/zookeeper.ts";

/** In which a machine that is busy with other things has connected. */
const BUSY_MS = 30_000;

type Terms = Partial<ZooKeeperDriverOptions>;

export interface ZooKeeperScene {
  readonly server: ZooKeeperServer;
  /** What is made by it is made by hand. */
  readonly zk: ZooKeeper;
  /** Nodes below which other programs keep what is theirs: not judged. */
  readonly others: Set<string>;
  /** Closed when the test is over, and forgotten. */
  readonly clients: { close(): Promise<void> }[];
  /** A driver on this server, by the scene's terms where these options say nothing else. */
  made(options?: Terms): Driver;
  /** The same, opened, and closed when the test is over. */
  opened(options?: Terms, told?: Notify): Promise<Driver>;
}

/** Called once at the head of a file. */
export function zookeeperScene(options?: ServerOptions, terms: Terms = {}): ZooKeeperScene {
  let server: ZooKeeperServer;
  let zk: ZooKeeper;
  const clients: { close(): Promise<void> }[] = [];
  const drivers: Driver[] = [];
  const others = new Set<string>();
  // drivers of other processes have the usual root
  const expected = new Set<string>(["/holdfast"]);

  beforeAll(async () => {
    server = await startZooKeeper(options);
    zk = new ByHand({ servers: [server.address] }, expected);
    await zk.open();
  }, 60_000);
  afterAll(async () => {
    await zk.close();
    await server[Symbol.asyncDispose]();
  });
  afterEach(async () => {
    await Promise.all(clients.splice(0).map((one) => one.close()));
    await Promise.all(drivers.splice(0).map((one) => one.close()));
    expect(await zookeeperViolations(zk, { from: "/", expected, others }), "the nodes of the store").toEqual([]);
  });

  const made = (more: Terms = {}): Driver => {
    const driver = { servers: [server.address], connectTimeoutMs: BUSY_MS, ...terms, ...more };
    expected.add(`${driver.chroot ?? ""}${driver.root ?? "/holdfast"}`);
    return zookeeper(driver);
  };
  return {
    clients,
    others,
    get server() {
      return server;
    },
    get zk() {
      return zk;
    },
    made,
    async opened(more, told = () => undefined) {
      const driver = made(more);
      drivers.push(driver);
      await driver.open(told);
      return driver;
    },
  };
}

/** Remembers what it makes. */
class ByHand extends ZooKeeper {
  readonly #made: Set<string>;

  constructor(options: ZooKeeperOptions, made: Set<string>) {
    super(options);
    this.#made = made;
  }

  override async create(path: string, options: CreateOptions = {}): Promise<Created> {
    const created = await super.create(path, options);
    this.#made.add(created.path);
    return created;
  }
}

/** A claim of one key for a session, exclusive unless `more` says otherwise. */
export function claimOf(key: string, more: Partial<Claim> = {}): Claim {
  const hold = { key, permits: ALL_PERMITS, limit: ALL_PERMITS };
  return { id: newId(), holds: [hold], ttlMs: "session", tokens: 1, floor: 0n, wait: true, label: "test", ...more };
}

/** For claimOf(): it reads, beside others who read. */
export function reading(key: string): Partial<Claim> {
  return { holds: [{ key, permits: 1, limit: ALL_PERMITS }] };
}

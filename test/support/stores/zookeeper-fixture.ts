/**
 * A ZooKeeper for the tests of one file, a connection that looks on, and drivers and clients that are closed after each test.
 * Then its nodes are judged (zookeeper-inspector.ts): roots, and what a test has made by hand, are expected.
 */

import { afterAll, afterEach, beforeAll, expect } from "vitest";
import type { Created, CreateOptions } from "../../../src/drivers/zookeeper/client/operations.ts";
import type { ZooKeeperOptions } from "../../../src/drivers/zookeeper/client/zookeeper.ts";
import { ZooKeeper } from "../../../src/drivers/zookeeper/client/zookeeper.ts";
import type { ZooKeeperDriverOptions } from "../../../src/drivers/zookeeper/driver.ts";
import { zookeeper } from "../../../src/drivers/zookeeper/driver.ts";
import type { Claim, Driver } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { randomId } from "../../../src/util/ids.ts";
import { toDriverEvents } from "../driver-events.ts";
import type { ServerOptions, ZooKeeperServer } from "./zookeeper.ts";
import { startZooKeeper } from "./zookeeper.ts";
import { findZooKeeperViolations } from "./zookeeper-inspector.ts";

/** In which a machine that is busy with other things has connected. */
const CONNECT_TIMEOUT_MS = 30_000;

type DriverOptions = Partial<ZooKeeperDriverOptions>;

export interface ZooKeeperFixture {
  readonly server: ZooKeeperServer;
  /** What is made by it is made by hand. */
  readonly observer: ZooKeeper;
  /** Nodes below which other programs keep what is theirs: not judged. */
  readonly foreignPaths: Set<string>;
  /** Closed when the test is over, and forgotten. */
  readonly clients: { close(): Promise<void> }[];
  /** A driver on this server, by the scene's terms where these options say nothing else. */
  createDriver(options?: DriverOptions): Driver;
  /** The same, opened, and closed when the test is over. */
  openDriver(options?: DriverOptions, onPush?: Parameters<typeof toDriverEvents>[0]): Promise<Driver>;
}

/** Called once at the head of a file. */
export function zookeeperFixture(options?: ServerOptions, driverOptions: DriverOptions = {}): ZooKeeperFixture {
  let server: ZooKeeperServer;
  let zk: ZooKeeper;
  const clients: { close(): Promise<void> }[] = [];
  const drivers: Driver[] = [];
  const foreignPaths = new Set<string>();
  // drivers of other processes have the usual root
  const expected = new Set<string>(["/holdfast"]);

  beforeAll(async () => {
    server = await startZooKeeper(options);
    zk = new RecordingClient({ servers: [server.address] }, expected);
    await zk.open();
  }, 60_000);
  afterAll(async () => {
    await zk.close();
    await server[Symbol.asyncDispose]();
  });
  afterEach(async () => {
    await Promise.all(clients.splice(0).map((resource) => resource.close()));
    await Promise.all(drivers.splice(0).map((driver) => driver.close()));
    expect(await findZooKeeperViolations(zk, { root: "/", expected, foreignPaths }), "the nodes of the store").toEqual(
      [],
    );
  });

  const createDriver = (overrides: DriverOptions = {}): Driver => {
    const driver = { servers: [server.address], connectTimeout: CONNECT_TIMEOUT_MS, ...driverOptions, ...overrides };
    expected.add(`${driver.chroot ?? ""}${driver.root ?? "/holdfast"}`);
    return zookeeper(driver);
  };
  return {
    clients,
    foreignPaths,
    get server() {
      return server;
    },
    get observer() {
      return zk;
    },
    createDriver,
    async openDriver(overrides, onPush = () => undefined) {
      const driver = createDriver(overrides);
      drivers.push(driver);
      await driver.open(toDriverEvents(onPush));
      return driver;
    },
  };
}

/** Remembers what it makes. */
class RecordingClient extends ZooKeeper {
  readonly #createdPaths: Set<string>;

  constructor(options: ZooKeeperOptions, createdPaths: Set<string>) {
    super(options);
    this.#createdPaths = createdPaths;
  }

  override async create(path: string, options: CreateOptions = {}): Promise<Created> {
    const created = await super.create(path, options);
    this.#createdPaths.add(created.path);
    return created;
  }
}

/** A claim of one key for a session, exclusive unless `more` says otherwise. */
export function makeSessionClaim(key: string, overrides: Partial<Claim> = {}): Claim {
  const hold = { key, permits: ALL_PERMITS, limit: ALL_PERMITS };
  return {
    id: randomId(),
    locks: [hold],
    ttlMs: "session",
    tokenCount: 1,
    floor: 0n,
    wait: true,
    label: "test",
    ...overrides,
  };
}

/** For makeSessionClaim(): it reads, beside others who read. */
export function readSpecs(key: string): Partial<Claim> {
  return { locks: [{ key, permits: 1, limit: ALL_PERMITS }] };
}

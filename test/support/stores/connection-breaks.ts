/**
 * A client is cut off, the store loses its claims, and another client takes the lock: until the store has answered the first client
 * again, nothing that it knows from before may begin a section.
 */

import { expect, test } from "vitest";
import type { Lock, Locks, LocksOptions } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { delegate } from "../../../src/testing/delegate.ts";
import { until } from "../../../src/testing/until.ts";
import type { TcpProxy } from "../../../src/torture/tcp-proxy.ts";

const KEY = "key";
const OTHER_KEY = "other key";
/** In which a client notices a break, or connects again, on a busy machine. */
const NOTICE_MS = 10_000;

export interface BreakableStore {
  /** A driver whose connections go through the proxies. */
  readonly driverBehindProxies: () => Driver;
  readonly directDriver: () => Driver;
  readonly proxies: readonly TcpProxy[];
  /** The store loses all claims. */
  readonly loseClaims: () => Promise<unknown>;
  readonly close: () => Promise<unknown>;
}

export interface BreakTestOptions {
  /** false: locks cannot be cached on it. */
  readonly caches?: boolean;
  /** false: the client is a single connection, which is not opened again. Then each close() lasts for seconds. */
  readonly reconnects?: boolean;
  /** true: open() gives each test a store of its own. Then tests run side by side. */
  readonly ownStore?: boolean;
}

export function testConnectionBreaks(
  name: string,
  open: () => Promise<BreakableStore>,
  { caches = true, reconnects = true, ownStore = false }: BreakTestOptions = {},
): void {
  const withClients = async (run: (clients: Clients) => Promise<void>, options: LocksOptions = {}): Promise<void> => {
    const store = await open();
    const clients = new Clients(store, options);
    try {
      await run(clients);
    } finally {
      clients.reconnect();
      await clients.close();
      await store.close();
    }
  };

  const testEach = ownStore ? test.concurrent : test;
  if (caches)
    testEach(`${name}: a cached lock is not granted from before the break`, () =>
      withClients(async (clients) => {
        const { cutOff } = clients;
        await cutOff.using(KEY, { cache: "60s" }, () => undefined);
        await clients.breakAndLose();
        const taken = await clients.other.acquire(KEY, { wait: NOTICE_MS });
        await expect(cutOff.acquire(KEY, { wait: "300ms" }), "while it is cut off").rejects.toThrow();
        clients.reconnect();
        await expect(cutOff.acquire(KEY, { wait: "1s" }), "when it is connected again").rejects.toThrow();
        taken.throwIfLost();
        await taken.release();
        if (!reconnects) return;
        const lock = await cutOff.acquire(KEY, { wait: NOTICE_MS });
        expect(lock.token).toBeGreaterThan(taken.token);
        await lock.release();
      }),
    );

  testEach.each([
    ["in the local queue", "process"],
    ["in strict order", "strict"],
  ] as const)(`${name}: a lock is not handed on from before the break, %s`, (_, order) =>
    withClients(
      async (clients) => {
        const { cutOff, other } = clients;
        // a pushed grant may name the next claims of this process as successors, and brings one token for each request that waits
        const before = await other.acquire(KEY);
        const requests: Promise<Lock>[] = [];
        for (const count of [2, 3]) {
          requests.push(cutOff.acquire(KEY, { wait: NOTICE_MS }));
          // on connections of a new pool claims may overtake each other
          await clients.waitForClaims(KEY, order === "strict" ? count : 2);
        }
        const second = clients.request([KEY]);
        await clients.waitForClaims(KEY, order === "strict" ? 4 : 2);
        await before.release();
        await (await requests[0])?.release();
        const first = (await requests[1]) as Lock;
        await clients.breakAndLose();
        const taken = await other.acquire(KEY, { wait: NOTICE_MS });
        const released = first.release().catch(() => false);
        await second.expectWaiting();
        if (!reconnects) return;
        clients.reconnect();
        await clients.waitForClaims(KEY, 2);
        await second.expectWaiting();
        taken.throwIfLost();
        await taken.release();
        await released;
        await second.expectGrantAfter(taken);
      },
      { order },
    ),
  );

  testEach(`${name}: the first of several keys counts only if the store has it after the break`, () =>
    withClients(async (clients) => {
      const { other } = clients;
      const before = await other.acquire(OTHER_KEY);
      const both = clients.request([KEY, OTHER_KEY]);
      await clients.waitForClaims(OTHER_KEY, 2);
      await clients.breakAndLose();
      const taken = await other.acquire(KEY, { wait: NOTICE_MS });
      await before.release();
      await both.expectWaiting();
      if (!reconnects) return;
      clients.reconnect();
      await clients.waitForClaims(KEY, 2);
      await both.expectWaiting();
      taken.throwIfLost();
      await taken.release();
      await both.expectGrantAfter(taken);
    }),
  );
}

/** A client behind the proxies, and one that is not. */
class Clients {
  readonly cutOff: Locks;
  readonly other: Locks;
  readonly #store: BreakableStore;
  readonly #inspectingDriver: Driver;
  #isInspecting = false;
  #breakCount = 0;
  /** Until the client is connected again its renewals are not sent: it is to know of the break without a call that fails. */
  #renewals: Promise<void> = Promise.resolve();
  #sendRenewals = (): void => undefined;

  constructor(store: BreakableStore, options: LocksOptions) {
    this.#store = store;
    const driver = store.driverBehindProxies();
    const watchingDriver = delegate(driver, {
      open: (events) =>
        driver.open({
          ...events,
          disconnected: () => {
            this.#breakCount++;
            events.disconnected();
          },
        }),
      renew: (claims, tokenCounts) => this.#renewals.then(() => driver.renew(claims, tokenCounts)),
    });
    this.cutOff = createLocks(watchingDriver, { ttl: "30s", ...options });
    this.other = createLocks(store.directDriver(), { ttl: "30s" });
    this.#inspectingDriver = store.directDriver();
  }

  /** Cuts the one client off, waits until it knows, and empties the store. */
  async breakAndLose(): Promise<void> {
    const countBefore = this.#breakCount;
    this.#renewals = new Promise((resolve) => {
      this.#sendRenewals = resolve;
    });
    for (const proxy of this.#store.proxies) {
      proxy.refuseConnections(true);
      proxy.reset();
    }
    await until(() => this.#breakCount > countBefore, { within: NOTICE_MS, what: "the client to know of the break" });
    await this.#store.loseClaims();
  }

  reconnect(): void {
    for (const proxy of this.#store.proxies) proxy.refuseConnections(false);
    this.#sendRenewals();
  }

  async waitForClaims(key: string, count: number): Promise<void> {
    if (!this.#isInspecting) {
      this.#isInspecting = true;
      const ignore = (): void => undefined;
      await this.#inspectingDriver.open({
        pushed: ignore,
        recheck: ignore,
        disconnected: ignore,
        reconnected: ignore,
        recalled: ignore,
        heldTokens: () => null,
      });
    }
    await until(async () => (await this.#inspectingDriver.list({ key }, { max: 10 })).items.length === count, {
      within: NOTICE_MS,
      what: `${count} claims of ${key}`,
    });
  }

  /** A request of the client that is cut off. */
  request(keys: readonly string[]): PendingRequest {
    return new PendingRequest(this.cutOff.all([...keys]).acquire({ wait: 3 * NOTICE_MS }));
  }

  async close(): Promise<void> {
    await this.other.close();
    await this.cutOff.close();
    await this.#inspectingDriver.close();
  }
}

class PendingRequest {
  readonly #result: Promise<Lock>;
  #isGranted = false;

  constructor(result: Promise<Lock>) {
    this.#result = result;
    result.then(
      () => {
        this.#isGranted = true;
      },
      () => undefined, // reported by expectGrantAfter()
    );
  }

  async expectWaiting(): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(this.#isGranted, "granted from before the break").toBe(false);
  }

  async expectGrantAfter(lock: Lock): Promise<void> {
    const granted = await this.#result;
    granted.throwIfLost();
    expect(granted.token).toBeGreaterThan(lock.token);
    await granted.release();
  }
}

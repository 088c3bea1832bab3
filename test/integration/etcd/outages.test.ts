// One server that fails in the ways that servers do, while locks are held and waited for.

import type { AddressInfo, Socket } from "node:net";
import { connect, createServer } from "node:net";
import { expect, test } from "vitest";
import type { EtcdOptions as DriverOptions } from "../../../src/drivers/etcd/driver.ts";
import { etcd } from "../../../src/drivers/etcd/driver.ts";
import type { Locks, LocksOptions } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";
import type { TcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import type { EtcdAddress, EtcdOptions, EtcdServer } from "../../support/stores/etcd.ts";
import { compactEtcd, emptyEtcd, enableEtcdAuth, fillEtcd, startEtcd } from "../../support/stores/etcd.ts";
import {
  findEtcdRemains,
  findEtcdViolations,
  readEtcdQueue,
  readEtcdState,
} from "../../support/stores/etcd-inspector.ts";

const TIMEOUT_MS = 20_000;
/** In which a waiter that is told of a release has the lock, on a busy machine. A renewal comes later. */
const WAKE_MS = 1_500;
const PREFIX = "holdfast/";
const PASSWORD = "a-password-of-a-test";

/** What a test opens. */
class Scope {
  readonly #disposables: AsyncDisposable[] = [];

  add<T extends AsyncDisposable>(disposable: T): T {
    this.#disposables.push(disposable);
    return disposable;
  }

  async startServer(options: EtcdOptions = {}): Promise<EtcdServer> {
    return this.add(await startEtcd(options));
  }

  async startProxy(server: EtcdServer): Promise<TcpProxy> {
    return this.add(await tcpProxy(server.address));
  }

  openLocks(
    { address }: { readonly address: unknown },
    options: LocksOptions = {},
    driverOptions: Partial<DriverOptions> = {},
  ): Locks {
    const servers = [address] as DriverOptions["servers"];
    return this.add(createLocks(etcd({ servers, ...driverOptions }), { ttl: "9s", ...options }));
  }

  async close(): Promise<void> {
    // clients before their server
    for (const disposable of this.#disposables.reverse()) await disposable[Symbol.asyncDispose]();
  }
}

/** Beside others: each has servers of its own, and mostly waits for leases to end. */
function testOutage(name: string, body: (scope: Scope) => Promise<void>, timeoutMs?: number): void {
  test.concurrent(
    name,
    async () => {
      const scope = new Scope();
      try {
        await body(scope);
      } finally {
        await scope.close();
      }
    },
    timeoutMs,
  );
}

async function waitForQueue(server: EtcdServer, key: string, length: number, token?: string): Promise<void> {
  await until(async () => (await readEtcdQueue(server, PREFIX + key, token)).length === length, {
    within: TIMEOUT_MS,
    what: `${length} entries of ${key}`,
  });
}

testOutage(
  "without space held locks stay held and are released, claims fail and say why; with space all goes on",
  async (scope) => {
    const server = await scope.startServer({ quotaBytes: 8_000_000 });
    const locks = scope.openLocks(server, { ttl: "3s" });
    const held = await locks.acquire("held");
    const heldAt = performance.now();
    const holder = await locks.acquire("waited-for");
    const other = scope.openLocks(server);
    const waiting = other.acquire("waited-for");
    await waitForQueue(server, "waited-for", 2);
    await fillEtcd(server);

    const error = await locks.acquire("new", { wait: 1_000 }).then(
      () => null,
      (failure: { readonly code: string; readonly message: string; readonly cause?: { readonly message: string } }) =>
        failure,
    );
    expect(error?.code, "not LOCK_TIMEOUT: nothing holds it").toBe("LOCK_STORE_FAILED");
    expect(`${error?.message} ${error?.cause?.message}`).toContain("NOSPACE");
    expect(await holder.release()).toBe(true);
    await (await waiting).release();
    // renewed although nothing can be written
    await until(() => performance.now() - heldAt > 4_000, { within: TIMEOUT_MS, what: "more than the ttl" });
    held.throwIfLost();
    await emptyEtcd(server);
    await (await locks.acquire("new", { wait: TIMEOUT_MS })).release();
    expect(await held.release()).toBe(true);
  },
);

testOutage(
  "without space an attached lock that is released is free at once, and its tombstone comes with the space",
  async (scope) => {
    const server = await scope.startServer({ quotaBytes: 8_000_000 });
    const detached = await scope.openLocks(server).acquire("attached");
    const lock = await scope.openLocks(server).attach(await detached.detach());
    const waiting = scope.openLocks(server).acquire("attached");
    await waitForQueue(server, "attached", 2);
    await fillEtcd(server);
    const releasedAt = performance.now();
    const released = lock.release();
    const next = await waiting;
    // else its entry ends with its lease
    expect(performance.now() - releasedAt).toBeLessThan(WAKE_MS);
    await emptyEtcd(server);
    expect(await released).toBe(true);
    const { entries } = await readEtcdState(server);
    expect(entries.filter(({ key }) => key.startsWith(`${PREFIX}\0`))).toHaveLength(1);
    expect(await next.release()).toBe(true);
  },
);

testOutage(
  "a waiter whose stream breaks, and whose history is compacted meanwhile, still gets the lock",
  async (scope) => {
    const server = await scope.startServer();
    const proxy = await scope.startProxy(server);
    const holder = await scope.openLocks(server).acquire("compacted");
    const waiting = scope.openLocks(proxy).acquire("compacted");
    await waitForQueue(server, "compacted", 2);
    proxy.refuseConnections(true);
    proxy.reset();
    // what it would begin its watch with is forgotten, and so is the release
    for (let written = 0; written < 10; written++) await server.runCommand(["put", "other", String(written)]);
    await holder.release();
    await server.runCommand(["put", "other", "last"]);
    await compactEtcd(server);
    proxy.refuseConnections(false);
    await (await waiting).release();
  },
);

testOutage(
  "compaction under a connected waiter changes nothing: its watch reports the release at once",
  async (scope) => {
    const server = await scope.startServer();
    const holder = await scope.openLocks(server).acquire("compacted");
    const waiting = scope.openLocks(server).acquire("compacted");
    await waitForQueue(server, "compacted", 2);
    for (let written = 0; written < 10; written++) await server.runCommand(["put", "other", String(written)]);
    await compactEtcd(server);
    await holder.release();
    const releasedAt = performance.now();
    const lock = await waiting;
    expect(performance.now() - releasedAt).toBeLessThan(WAKE_MS);
    await lock.release();
  },
);

testOutage(
  "a lease that is revoked from outside: its holders lose their locks within a second, its waiters come again",
  async (scope) => {
    const server = await scope.startServer();
    const locks = scope.openLocks(server, { ttl: "30s" });
    const [first, second] = [await locks.acquire("first"), await locks.acquire("second")];
    const foreign = await scope.openLocks(server, { ttl: "20s" }).acquire("foreign");
    const waiting = locks.acquire("foreign");
    await waitForQueue(server, "foreign", 2);
    const { entries } = await readEtcdState(server);
    const lease = entries.find(({ key }) => key.startsWith(`${PREFIX}first/`))?.lease ?? "";
    // watched from a moment after the grant on
    await until(async () => (await server.call("/v3/lease/revoke", { ID: lease })).status === 200, {
      within: TIMEOUT_MS,
      what: "the revocation",
    });
    const revokedAt = performance.now();
    await until(() => first.signal.aborted && second.signal.aborted, {
      within: WAKE_MS,
      what: "the loss of both locks",
    });
    expect(performance.now() - revokedAt).toBeLessThan(WAKE_MS);
    await foreign.release();
    const lock = await waiting;
    lock.throwIfLost();
    await lock.release();
  },
);

testOutage("a server killed and started again: held locks stay held, and a waiter gets its turn", async (scope) => {
  const server = await scope.startServer();
  const held = await scope.openLocks(server).acquire("held");
  const holder = await scope.openLocks(server).acquire("waited-for");
  const waiting = scope.openLocks(server).acquire("waited-for");
  await waitForQueue(server, "waited-for", 2);
  await server.stop("SIGKILL");
  await server.start();
  await holder.release();
  const lock = await waiting;
  held.throwIfLost();
  lock.throwIfLost();
  expect(await lock.release()).toBe(true);
  expect(await held.release()).toBe(true);
});

testOutage("a client that begins while the server is down is there when it is up again", async (scope) => {
  const server = await scope.startServer();
  await server.stop("SIGKILL");
  const early = scope.openLocks(server, {}, { connectTimeout: TIMEOUT_MS }).acquire("down", { wait: TIMEOUT_MS });
  await server.start();
  await (await early).release();
});

testOutage("black hole: a holder loses its lock by its own clock, and before another client gets it", async (scope) => {
  const server = await scope.startServer();
  const proxy = await scope.startProxy(server);
  const lock = await scope.openLocks(proxy, { ttl: "3s" }).acquire("cut-off");
  let lostAt = 0;
  lock.signal.addEventListener("abort", () => {
    lostAt = performance.now();
  });
  const waiting = scope.openLocks(server).acquire("cut-off");
  await waitForQueue(server, "cut-off", 2);
  proxy.toTarget.pause();
  proxy.toClient.pause();
  const next = await waiting;
  const grantedAt = performance.now();
  expect(lostAt, "the loss is told first").toBeGreaterThan(0);
  expect(lostAt).toBeLessThanOrEqual(grantedAt);
  proxy.toTarget.resume();
  proxy.toClient.resume();
  next.throwIfLost();
  await next.release();
});

testOutage(
  "a connection that has become silent under a waiter is noticed, and the lock comes over another",
  async (scope) => {
    const server = await scope.startServer();
    const proxy = await scope.startProxy(server);
    const holder = await scope.openLocks(server).acquire("silent");
    const waiting = scope.openLocks(proxy, { ttl: "6s" }).acquire("silent");
    await waitForQueue(server, "silent", 2);
    // connections that are open carry nothing any more; later ones do
    proxy.silence();
    await holder.release();
    const lock = await waiting;
    lock.throwIfLost();
    await lock.release();
  },
);

testOutage(
  "a stream alone that has become silent, as one that a firewall has forgotten, is noticed at the next renewal",
  async (scope) => {
    const server = await scope.startServer();
    const proxy = scope.add(await startStreamProxy(server));
    const locks = scope.openLocks(proxy, { ttl: "6s" });
    const held = await locks.acquire("held");
    const holder = await scope.openLocks(server).acquire("forgotten");
    const waiting = locks.acquire("forgotten");
    await waitForQueue(server, "forgotten", 2);
    // of the three entries two are watched at this client's, and one at the other's
    const watchers = /^etcd_debugging_mvcc_watcher_total (\d+)$/m;
    await until(async () => Number(watchers.exec(await server.readMetrics())?.[1]) >= 3, {
      within: TIMEOUT_MS,
      what: "the watches",
    });
    proxy.silenceStreams();
    const [entry] = await readEtcdQueue(server, `${PREFIX}held`);
    await server.runCommand(["del", entry?.key ?? ""]);
    await holder.release();
    const changedAt = performance.now();
    const [lock] = await Promise.all([
      waiting,
      until(() => held.signal.aborted, { within: TIMEOUT_MS, what: "the loss" }),
    ]);
    // a third of the ttl, and the timeout of a call
    expect(performance.now() - changedAt).toBeLessThan(2_000 + 2_000 + WAKE_MS);
    await lock.release();
  },
);

testOutage(
  "a token that has expired costs a holder and a waiter nothing",
  async (scope) => {
    const server = await scope.startServer({ tokenTtlSeconds: 1 });
    await enableEtcdAuth(server, PASSWORD, PREFIX);
    const logIn = (): Promise<string> => authenticateRoot(server);
    const login = { user: "app", password: PASSWORD };
    // renewals come each ten seconds: between them the token expires
    const locks = scope.openLocks(server, { ttl: "30s" }, login);
    const held = await locks.acquire("held");
    const other = scope.openLocks(server, { ttl: "30s" }, login);
    const holder = await other.acquire("waited-for");
    await expireTokens(server);
    const waiting = locks.acquire("waited-for");
    await waitForQueue(server, "waited-for", 2, await logIn());
    await expireTokens(server);
    await holder.release();
    const releasedAt = performance.now();
    const lock = await waiting;
    expect(performance.now() - releasedAt, "it was told, it did not ask").toBeLessThan(WAKE_MS);
    // a watch of which the member has refused the token is none
    await expireTokens(server);
    const [entry] = await readEtcdQueue(server, `${PREFIX}held`, await logIn());
    await server.runCommand(["del", entry?.key ?? ""], { user: `root:${PASSWORD}` });
    await until(() => held.signal.aborted, { within: WAKE_MS, what: "the loss" });
    await expireTokens(server);
    expect(await lock.release()).toBe(true);
  },
  60_000,
);

testOutage("a wrong password and a missing right are refused by name, and no error has the password", async (scope) => {
  const server = await scope.startServer();
  await enableEtcdAuth(server, PASSWORD, PREFIX);
  const failureOf = (driverOptions: Partial<DriverOptions>): Promise<string> =>
    scope
      .openLocks(server, {}, driverOptions)
      .acquire("key", { wait: 2_000 })
      .then(
        () => "no failure",
        (error: Error) => `${error.message} ${(error.cause as Error | undefined)?.message}`,
      );
  expect(await failureOf({ user: "app", password: `not-${PASSWORD}` })).toMatch(/the user or the password is wrong/);
  expect(await failureOf({})).toMatch(/require a user and a password/);
  const outside = await failureOf({ user: "app", password: PASSWORD, prefix: "elsewhere/" });
  expect(outside).toMatch(/no right to these keys/);
  for (const driverOptions of [{ user: "app", password: `not-${PASSWORD}` }])
    expect(await failureOf(driverOptions)).not.toContain(PASSWORD);
  expect(await failureOf({ user: "app", password: PASSWORD })).toBe("no failure");
});

testOutage(
  "while locks are used every entry has a lease that is there, and after them nothing is left",
  async (scope) => {
    const server = await scope.startServer();
    const clients = [scope.openLocks(server, { ttl: "2s" }), scope.openLocks(server, { ttl: "3s" })];
    let pairs = 0;
    let isOver = false;
    const callers = clients.flatMap((locks) =>
      [0, 1, 2, 3].map(async (caller) => {
        while (!isOver) {
          await locks.using(`key-${(pairs + caller) % 3}`, async () => undefined);
          pairs++;
        }
      }),
    );
    const violations: string[] = [];
    await until(
      async () => {
        violations.push(...findEtcdViolations(await readEtcdState(server)));
        return pairs >= 500;
      },
      { within: TIMEOUT_MS, what: "500 pairs" },
    );
    isOver = true;
    await Promise.all(callers);
    expect(violations).toEqual([]);
    await Promise.all(clients.map((locks) => locks.close()));
    // tombstones of claims that were abandoned end with their leases
    await until(async () => findEtcdRemains(await readEtcdState(server)).length === 0, {
      within: TIMEOUT_MS,
      what: "no key and no lease",
    });
  },
);

type StreamProxy = AsyncDisposable & {
  readonly address: EtcdAddress;
  /** Connections of streams that are open now carry nothing any more; all others do. */
  silenceStreams(): void;
};

/** Between a client and its server: it tells the connections of watch streams from others. */
async function startStreamProxy({ address }: EtcdServer): Promise<StreamProxy> {
  const sockets = new Set<Socket>();
  const streams = new Set<Socket>();
  const listener = createServer((client) => {
    const target = connect(address);
    for (const socket of [client, target]) {
      sockets.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => sockets.delete(socket));
    }
    client.once("data", (head) => {
      if (!head.toString("latin1").startsWith("POST /v3/watch")) return;
      streams.add(client);
      streams.add(target);
    });
    client.pipe(target);
    target.pipe(client);
  });
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  return {
    address: { host: "127.0.0.1", port: (listener.address() as AddressInfo).port },
    silenceStreams() {
      for (const stream of streams) stream.unpipe().pause();
      streams.clear();
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => listener.close(resolve));
    },
  };
}

async function authenticateRoot(server: EtcdServer): Promise<string> {
  return (await server.call("/v3/auth/authenticate", { name: "root", password: PASSWORD })).body.token;
}

/** When no token that is in use now is valid any more: the server looks at them every second. */
async function expireTokens(server: EtcdServer): Promise<void> {
  const token = await authenticateRoot(server);
  const createdAt = performance.now();
  // asked once only: each use prolongs it
  await until(() => performance.now() - createdAt > 3_000, { within: TIMEOUT_MS, what: "three ttls" });
  const { status } = await server.call("/v3/kv/range", { key: "AA==" }, token);
  expect(status).toBe(401);
}

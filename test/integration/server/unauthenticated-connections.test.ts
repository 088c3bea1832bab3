// Silent connections, from any address and however fast they reconnect: they do not disturb other clients.

import type { Socket } from "node:net";
import { connect as dial } from "node:net";
import { expect, test } from "vitest";
import { connect } from "../../../src/index.ts";
import type { Connection } from "../../../src/server/connection/connection.ts";
import { until } from "../../../src/testing/until.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { randomId } from "../../../src/util/ids.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { parseRawAddress, RawClient } from "../../support/raw-client.ts";
import { cleanUpAfterEach, onCleanup, startServer } from "../../support/server-fixture.ts";
import { ServerHarness } from "../../support/server-harness.ts";
import { createTestAccess, testAccount } from "../../support/test-accounts.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

/** How many connections without a hello the server keeps. */
const MAX_UNAUTHENTICATED = 256;

/** A connection as the lock service sees it. */
class RawCaller {
  readonly link: Connection;
  received = "";
  isClosed = false;

  constructor(harness: ServerHarness, address: string) {
    const stream = {
      write: (text: string) => {
        this.received += text;
      },
      close: () => {
        this.isClosed = true;
      },
    };
    const service = harness.service as NonNullable<ServerHarness["service"]>;
    this.link = service.accept(stream, { isLocal: address === "", address });
  }

  hello(fields: object = {}): this {
    this.link.receive([JSON.stringify({ hello: { protocol: 1, session: randomId(), ...fields } })]);
    return this;
  }

  get isAuthenticated(): boolean {
    return this.received.startsWith('{"hello"');
  }
}

async function createHarness(options: ConstructorParameters<typeof ServerHarness>[0] = {}): Promise<ServerHarness> {
  const harness = new ServerHarness({ remote: true, ...options });
  await harness.start();
  return harness;
}

test("a new connection replaces the oldest of its own address, and is admitted when it sends its hello", async () => {
  const harness = await createHarness();
  const idle = Array.from({ length: MAX_UNAUTHENTICATED + 6 }, () => new RawCaller(harness, "10.0.0.1"));
  expect(idle.map(({ isClosed }) => isClosed)).toEqual(idle.map((_, index) => index < 6));
  expect(idle[0]?.received).toContain('"LIMIT"');
  expect(new RawCaller(harness, "10.0.0.1").hello().isAuthenticated).toBe(true);
  expect(harness.service?.connectionLimiter).toMatchObject({
    unauthenticated: MAX_UNAUTHENTICATED - 1,
    open: MAX_UNAUTHENTICATED,
  });
});

test("an address with few connections keeps them, however many come from another one", async () => {
  const harness = await createHarness();
  const fewCallers = [new RawCaller(harness, "10.0.0.2"), new RawCaller(harness, "")];
  for (let index = 0; index < 300; index++) new RawCaller(harness, "10.0.0.1");
  // 2^64 addresses of one network count as one
  for (let index = 0; index < 300; index++) new RawCaller(harness, `2001:db8::${index.toString(16)}`);
  expect(fewCallers.map(({ isClosed }) => isClosed)).toEqual([false, false]);
  expect(fewCallers.map((rawCaller) => rawCaller.hello().isAuthenticated)).toEqual([true, true]);
});

test("of many addresses with one connection each, the oldest connection is ended", async () => {
  const harness = await createHarness();
  const callers = Array.from(
    { length: MAX_UNAUTHENTICATED + 3 },
    (_, index) => new RawCaller(harness, `10.0.${index >> 8}.${index & 255}`),
  );
  expect(callers.map(({ isClosed }) => isClosed)).toEqual(callers.map((_, index) => index < 3));
});

test("a connection with a wrong credential is ended at once and not counted any more; an admitted one is not unauthenticated", async () => {
  const ana = testAccount("ana");
  const harness = await createHarness({ access: createTestAccess(ana) });
  const authenticatedCaller = new RawCaller(harness, "10.0.0.1").hello({ credential: ana.credential });
  const wrong = new RawCaller(harness, "10.0.0.1").hello({ credential: "wrong" });
  expect([authenticatedCaller.isClosed, wrong.isClosed]).toEqual([false, true]);
  expect(harness.service?.connectionLimiter).toMatchObject({ unauthenticated: 0, open: 1 });
});

test("unauthenticated connections also make room when connections reach their limit, of one address or in all; admitted ones do not", async () => {
  const harness = await createHarness({ limits: { connections: 5, connectionsPerAddress: 3 } });
  for (let index = 0; index < 2; index++) new RawCaller(harness, "10.0.0.1").hello();
  const idle = new RawCaller(harness, "10.0.0.1");
  expect(new RawCaller(harness, "10.0.0.1").hello().isAuthenticated).toBe(true);
  expect(idle.isClosed).toBe(true);
  const refusedCaller = new RawCaller(harness, "10.0.0.1");
  expect(refusedCaller.received).toContain("at most 3 connections from one address");
  const otherRawCallers = [new RawCaller(harness, "10.0.0.2"), new RawCaller(harness, "10.0.0.3")];
  expect(new RawCaller(harness, "10.0.0.4").hello().isAuthenticated).toBe(true);
  expect(otherRawCallers.map(({ isClosed }) => isClosed)).toEqual([true, false]);
  otherRawCallers[1]?.hello();
  expect(new RawCaller(harness, "10.0.0.5").received).toContain("at most 5 connections");
  expect(harness.service?.connectionLimiter.open).toBe(5);
});

/** Idle connections from one address, each reopened as soon as it ends. */
function openConnections(address: string, from: string, count: number): { readonly dials: number; end(): void } {
  const { host, port } = parseRawAddress(address) as { host: string; port: number };
  const sockets = new Set<Socket>();
  let [dials, over] = [0, false];
  const dialAgain = (): void => {
    if (over) return;
    dials++;
    const socket = dial({ host, port, localAddress: from });
    sockets.add(socket);
    socket.on("error", () => undefined);
    socket.on("close", () => {
      sockets.delete(socket);
      setImmediate(dialAgain);
    });
    socket.resume();
  };
  for (let index = 0; index < count; index++) dialAgain();
  const end = (): void => {
    over = true;
    for (const socket of sockets) socket.destroy();
  };
  onCleanup(end);
  return {
    get dials() {
      return dials;
    },
    end,
  };
}

test.each(["127.0.0.1", "127.0.0.9"])(
  "during a siege of idle connections from %s other clients are admitted, and a disconnected holder reconnects",
  async (from) => {
    const it = await startServer({ listen: "holdfast://127.0.0.1:0" });
    const address = it.addresses[0] as string;
    const proxy = await tcpProxy(parseRawAddress(address) as { host: string; port: number });
    onCleanup(() => proxy.close());
    const holder = await connect(`holdfast://127.0.0.1:${(proxy.address as { port: number }).port}`);
    onCleanup(() => holder.close());
    const keptLock = await holder.acquire("kept", { ttl: 6_000 });
    const sockets = openConnections(address, from, MAX_UNAUTHENTICATED + 50);
    await until(() => sockets.dials > 2 * MAX_UNAUTHENTICATED, { within: 20_000, what: "the siege" });
    proxy.disconnect();
    for (let index = 0; index < 20; index++) {
      const client = await RawClient.open(parseRawAddress(address));
      expect(await client.call("ping")).toEqual([]);
      client.end();
    }
    // over a new connection: the old one is gone
    await (await holder.acquire("another", { wait: 5_000 })).release();
    keptLock.throwIfLost();
    expect(await keptLock.release()).toBe(true);
    const before = sockets.dials;
    await until(() => sockets.dials > before, { within: 20_000, what: "the siege to go on" });
    sockets.end();
  },
);

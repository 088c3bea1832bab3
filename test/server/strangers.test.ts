// Connections that say nothing, from wherever they come and however fast they are dialled again: they cost others nothing.

import type { Socket } from "node:net";
import { connect as dial } from "node:net";
import { expect, test } from "vitest";
import { newId } from "../../src/ids.ts";
import { connect } from "../../src/index.ts";
import type { Link } from "../../src/server/link.ts";
import { leakCheck } from "../support/leak-check.ts";
import { RawClient, rawAddress } from "../support/raw-client.ts";
import { tcpProxy } from "../support/tcp-proxy.ts";
import { until } from "../support/wait-for.ts";
import { accessFor, known } from "./accounts.ts";
import { cleanUp, later, running } from "./support.ts";
import { World } from "./world.ts";

leakCheck();
cleanUp();

/** A connection as the hub sees it. */
class Caller {
  readonly link: Link;
  told = "";
  isClosed = false;

  constructor(world: World, address: string) {
    const stream = {
      write: (text: string) => {
        this.told += text;
      },
      close: () => {
        this.isClosed = true;
      },
    };
    const hub = world.hub as NonNullable<World["hub"]>;
    this.link = hub.accept(stream, { local: address === "", address });
  }

  hello(more: object = {}): this {
    this.link.lines([JSON.stringify({ hello: { protocol: 1, session: newId(), ...more } })]);
    return this;
  }

  get isIn(): boolean {
    return this.told.startsWith('{"hello"');
  }
}

async function worldOf(options: ConstructorParameters<typeof World>[0] = {}): Promise<World> {
  const world = new World({ remote: true, ...options });
  await world.start();
  return world;
}

test("a newcomer takes the place of the oldest of its own address, and is let in when it says hello", async () => {
  const world = await worldOf({ limits: { strangers: 4 } });
  const idle = Array.from({ length: 10 }, () => new Caller(world, "10.0.0.1"));
  expect(idle.map(({ isClosed }) => isClosed)).toEqual(idle.map((_, at) => at < 6));
  expect(idle[0]?.told).toContain('"LIMIT"');
  expect(new Caller(world, "10.0.0.1").hello().isIn).toBe(true);
  expect(world.hub?.door).toMatchObject({ strangers: 3, inside: 4 });
});

test("an address with few keeps them, however many come from another one", async () => {
  const world = await worldOf({ limits: { strangers: 6 } });
  const few = [new Caller(world, "10.0.0.2"), new Caller(world, "")];
  for (let at = 0; at < 100; at++) new Caller(world, "10.0.0.1");
  // 2^64 addresses of one network are one neighbour
  for (let at = 0; at < 100; at++) new Caller(world, `2001:db8::${at.toString(16)}`);
  expect(few.map(({ isClosed }) => isClosed)).toEqual([false, false]);
  expect(few.map((one) => one.hello().isIn)).toEqual([true, true]);
});

test("of many addresses with one each the one goes that has waited for longest", async () => {
  const world = await worldOf({ limits: { strangers: 5 } });
  const all = Array.from({ length: 8 }, (_, at) => new Caller(world, `10.0.0.${at + 1}`));
  expect(all.map(({ isClosed }) => isClosed)).toEqual([true, true, true, false, false, false, false, false]);
});

test("who waits for the refusal of a wrong credential is one of them, and who is in is not", async () => {
  const ana = known("ana");
  const world = await worldOf({ limits: { strangers: 3 }, access: accessFor(ana) });
  const inside = new Caller(world, "10.0.0.1").hello({ credential: ana.credential });
  const wrong = new Caller(world, "10.0.0.1").hello({ credential: "wrong" });
  for (let at = 0; at < 3; at++) new Caller(world, "10.0.0.1");
  expect([inside.isClosed, wrong.isClosed]).toEqual([false, true]);
  expect(world.hub?.door).toMatchObject({ strangers: 3, inside: 4, refused: 0 });
});

test("strangers make room where connections are too many as well, of one address or in all; who is in does not", async () => {
  const world = await worldOf({ limits: { connections: 5, connectionsPerAddress: 3, strangers: 100 } });
  for (let at = 0; at < 2; at++) new Caller(world, "10.0.0.1").hello();
  const idle = new Caller(world, "10.0.0.1");
  expect(new Caller(world, "10.0.0.1").hello().isIn).toBe(true);
  expect(idle.isClosed).toBe(true);
  const refused = new Caller(world, "10.0.0.1");
  expect(refused.told).toContain("at most 3 connections from one address");
  const others = [new Caller(world, "10.0.0.2"), new Caller(world, "10.0.0.3")];
  expect(new Caller(world, "10.0.0.4").hello().isIn).toBe(true);
  expect(others.map(({ isClosed }) => isClosed)).toEqual([true, false]);
  others[1]?.hello();
  expect(new Caller(world, "10.0.0.5").told).toContain("at most 5 connections");
  expect(world.hub?.door.inside).toBe(5);
});

/** Idle connections from one address, each dialled again as soon as it ends. */
function besieged(address: string, from: string, count: number): { readonly dials: number; end(): void } {
  const { host, port } = rawAddress(address) as { host: string; port: number };
  const sockets = new Set<Socket>();
  let [dials, over] = [0, false];
  const again = (): void => {
    if (over) return;
    dials++;
    const socket = dial({ host, port, localAddress: from });
    sockets.add(socket);
    socket.on("error", () => undefined);
    socket.on("close", () => {
      sockets.delete(socket);
      setImmediate(again);
    });
    socket.resume();
  };
  for (let at = 0; at < count; at++) again();
  const end = (): void => {
    over = true;
    for (const socket of sockets) socket.destroy();
  };
  later(end);
  return {
    get dials() {
      return dials;
    },
    end,
  };
}

test.each(["127.0.0.1", "127.0.0.9"])(
  "a siege of idle connections from %s: others get in, and a holder that was cut comes back",
  async (from) => {
    const it = await running({ listen: "tcp://127.0.0.1:0", limits: { strangers: 40 } });
    const address = it.addresses[0] as string;
    const proxy = await tcpProxy(rawAddress(address) as { host: string; port: number });
    later(() => proxy.close());
    const holder = await connect(`holdfast://127.0.0.1:${(proxy.address as { port: number }).port}`);
    later(() => holder.close());
    const kept = await holder.acquire("kept", { ttl: 6_000 });
    const siege = besieged(address, from, 50);
    await until(() => siege.dials > 200, { within: 20_000, what: "the siege" });
    proxy.cut();
    for (let at = 0; at < 20; at++) {
      const client = await RawClient.open(rawAddress(address));
      expect(await client.call("ping")).toEqual([]);
      client.end();
    }
    // over a new connection: the old one is gone
    await (await holder.acquire("another", { wait: 5_000 })).release();
    kept.throwIfLost();
    expect(await kept.release()).toBe(true);
    const before = siege.dials;
    await until(() => siege.dials > before, { within: 20_000, what: "the siege to go on" });
    siege.end();
  },
);

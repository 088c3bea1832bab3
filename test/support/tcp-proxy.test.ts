import { mkdtempSync, rmSync } from "node:fs";
import type { Server, Socket } from "node:net";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { leakCheck } from "./leak-check.ts";
import type { Address, TcpProxy } from "./tcp-proxy.ts";
import { tcpProxy } from "./tcp-proxy.ts";
import { until } from "./wait-for.ts";

leakCheck();

/** A client that keeps what it got, and how it ended. */
type Peer = { readonly socket: Socket; readonly got: string[]; ended: string };

let server: Server;
let proxy: TcpProxy;
let folder: string;
const accepted: Peer[] = [];
const opened: Peer[] = [];

function peer(socket: Socket): Peer {
  const it: Peer = { socket, got: [], ended: "" };
  socket.setEncoding("utf8").on("data", (text: string) => it.got.push(text));
  socket.on("error", (error: NodeJS.ErrnoException) => {
    it.ended = error.code ?? error.message;
  });
  socket.once("close", () => {
    it.ended ||= "closed";
  });
  return it;
}

function open(address: Address): Peer {
  const it = peer(connect(address));
  opened.push(it);
  return it;
}

async function pair(): Promise<[Peer, Peer]> {
  const count = accepted.length;
  const client = open(proxy.address);
  client.socket.write("hi");
  const other = await until(() => accepted[count], { within: 1000, what: "the server to see the client" });
  await until(() => other.got.join("") === "hi", { within: 1000, what: "the greeting" });
  other.got.length = 0;
  return [client, other];
}

const arrives = (at: Peer, text: string): Promise<boolean> =>
  until(() => at.got.join("") === text, { within: 1000, what: `"${text}"` });

const ends = (at: Peer): Promise<string> => until(() => at.ended, { within: 1000, what: "the end of a connection" });

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "holdfast-proxy-"));
  const path = join(folder, "server.sock");
  server = createServer((socket) => accepted.push(peer(socket)));
  await new Promise<void>((resolve) => server.listen(path, resolve));
  proxy = await tcpProxy({ path });
});

afterEach(async () => {
  for (const { socket } of [...opened.splice(0), ...accepted.splice(0)]) socket.destroy();
  await proxy.close();
  await new Promise((resolve) => server.close(resolve));
  rmSync(folder, { recursive: true });
});

test("carries bytes both ways", async () => {
  const [client, other] = await pair();
  client.socket.write("ping");
  await arrives(other, "ping");
  other.socket.write("pong");
  await arrives(client, "pong");
  expect(proxy.connections()).toBe(1);
});

test("a paused direction holds bytes and the end back, the other goes on", async () => {
  const [client, other] = await pair();
  proxy.up.pause();
  client.socket.end("last words");
  other.socket.write("pong");
  await arrives(client, "pong");
  expect(other.got).toEqual([]);
  expect(other.ended).toBe("");
  proxy.up.resume();
  await arrives(other, "last words");
  await ends(other);
});

test("a connection opened into a black hole is silent", async () => {
  proxy.up.pause();
  const client = open(proxy.address);
  client.socket.write("hello?");
  await until(() => accepted[0], { within: 1000, what: "the connection" });
  expect(accepted[0]!.got).toEqual([]);
  proxy.up.resume();
  await arrives(accepted[0]!, "hello?");
});

test("delays keep the order", async () => {
  const [client, other] = await pair();
  proxy.up.delay(40);
  const sent = performance.now();
  client.socket.write("first ");
  await until(() => client.socket.writableLength === 0, { within: 1000, what: "the write" });
  client.socket.write("second");
  await arrives(other, "first second");
  expect(performance.now() - sent).toBeGreaterThanOrEqual(39);
});

test("cuts after a number of bytes, once", async () => {
  const [client, other] = await pair();
  proxy.up.cutAfter(3);
  client.socket.write("12345");
  await Promise.all([ends(client), ends(other)]);
  expect(other.got.join("")).toBe("123");
  const [next, nextOther] = await pair();
  next.socket.write("12345");
  await arrives(nextOther, "12345");
});

test("one byte at a time", async () => {
  const [client, other] = await pair();
  proxy.up.byteByByte(true);
  client.socket.write("frame");
  await arrives(other, "frame");
  expect(other.got).toEqual(["f", "r", "a", "m", "e"]);
});

test("cut ends both sides, and new connections work", async () => {
  const [client, other] = await pair();
  proxy.cut();
  expect(await ends(client)).toBe("closed");
  expect(await ends(other)).toBe("closed");
  await until(() => proxy.connections() === 0, { within: 1000, what: "the proxy to forget it" });
  await pair();
});

test("reset is seen as a reset over TCP", async () => {
  const [client] = await pair();
  proxy.reset();
  expect(await ends(client)).toBe("ECONNRESET");
});

test("refuses new connections while told to, and leaves open ones alone", async () => {
  const [client, other] = await pair();
  proxy.refuse(true);
  await ends(open(proxy.address));
  client.socket.write("still here");
  await arrives(other, "still here");
  proxy.refuse(false);
  await pair();
});

test("the death of a server reaches the client, and a missing one looks the same", async () => {
  const [client, other] = await pair();
  other.socket.destroy();
  await ends(client);
  await new Promise((resolve) => server.close(resolve));
  await ends(open(proxy.address));
});

test("listens on a Unix socket", async () => {
  await using local = await tcpProxy(proxy.address, { path: join(folder, "proxy.sock") });
  const client = open(local.address);
  client.socket.write("through two proxies");
  await arrives(await until(() => accepted[0], { within: 1000, what: "the connection" }), "through two proxies");
  local.reset();
  await ends(client);
});

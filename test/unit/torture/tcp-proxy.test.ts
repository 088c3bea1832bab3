import { mkdtempSync, rmSync } from "node:fs";
import type { Server, Socket } from "node:net";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import type { Address, TcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { tcpProxy } from "../../../src/torture/tcp-proxy.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";

checkLeaksAfterEach();

/** A client that records the received text, and how its connection ended. */
type Peer = { readonly socket: Socket; readonly received: string[]; ended: string };

let server: Server;
let proxy: TcpProxy;
let folder: string;
const serverPeers: Peer[] = [];
const clientPeers: Peer[] = [];

function createPeer(socket: Socket): Peer {
  const peer: Peer = { socket, received: [], ended: "" };
  socket.setEncoding("utf8").on("data", (text: string) => peer.received.push(text));
  socket.on("error", (error: NodeJS.ErrnoException) => {
    peer.ended = error.code ?? error.message;
  });
  socket.once("close", () => {
    peer.ended ||= "closed";
  });
  return peer;
}

function openPeer(address: Address): Peer {
  const it = createPeer(connect(address));
  clientPeers.push(it);
  return it;
}

async function openPair(): Promise<[Peer, Peer]> {
  const count = serverPeers.length;
  const client = openPeer(proxy.address);
  client.socket.write("hi");
  const otherPeer = await until(() => serverPeers[count], { within: 1000, what: "the server to see the client" });
  await until(() => otherPeer.received.join("") === "hi", { within: 1000, what: "the greeting" });
  otherPeer.received.length = 0;
  return [client, otherPeer];
}

const expectText = (peer: Peer, text: string): Promise<boolean> =>
  until(() => peer.received.join("") === text, { within: 1000, what: `"${text}"` });

const expectEnd = (peer: Peer): Promise<string> =>
  until(() => peer.ended, { within: 1000, what: "the end of a connection" });

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "holdfast-proxy-"));
  const path = join(folder, "server.sock");
  server = createServer((socket) => serverPeers.push(createPeer(socket)));
  await new Promise<void>((resolve) => server.listen(path, resolve));
  proxy = await tcpProxy({ path });
});

afterEach(async () => {
  for (const { socket } of [...clientPeers.splice(0), ...serverPeers.splice(0)]) socket.destroy();
  await proxy.close();
  await new Promise((resolve) => server.close(resolve));
  rmSync(folder, { recursive: true });
});

test("carries bytes both ways", async () => {
  const [client, other] = await openPair();
  client.socket.write("ping");
  await expectText(other, "ping");
  other.socket.write("pong");
  await expectText(client, "pong");
  expect(proxy.connections()).toBe(1);
});

test("a paused direction holds back bytes and the end, the other goes on", async () => {
  const [client, other] = await openPair();
  proxy.toTarget.pause();
  client.socket.end("last words");
  other.socket.write("pong");
  await expectText(client, "pong");
  expect(other.received).toEqual([]);
  expect(other.ended).toBe("");
  proxy.toTarget.resume();
  await expectText(other, "last words");
  await expectEnd(other);
});

test("a connection opened into a black hole is silent", async () => {
  proxy.toTarget.pause();
  const client = openPeer(proxy.address);
  client.socket.write("hello?");
  await until(() => serverPeers[0], { within: 1000, what: "the connection" });
  expect(serverPeers[0]!.received).toEqual([]);
  proxy.toTarget.resume();
  await expectText(serverPeers[0]!, "hello?");
});

test("delays keep the order", async () => {
  const [client, other] = await openPair();
  proxy.toTarget.delay(40);
  const sentAt = performance.now();
  client.socket.write("first ");
  await until(() => client.socket.writableLength === 0, { within: 1000, what: "the write" });
  client.socket.write("second");
  await expectText(other, "first second");
  expect(performance.now() - sentAt).toBeGreaterThanOrEqual(39);
});

test("cuts after a number of bytes, once", async () => {
  const [client, other] = await openPair();
  proxy.toTarget.cutAfter(3);
  client.socket.write("12345");
  await Promise.all([expectEnd(client), expectEnd(other)]);
  expect(other.received.join("")).toBe("123");
  const [next, nextOther] = await openPair();
  next.socket.write("12345");
  await expectText(nextOther, "12345");
});

test("can send one byte at a time", async () => {
  const [client, other] = await openPair();
  proxy.toTarget.byteByByte(true);
  client.socket.write("frame");
  await expectText(other, "frame");
  expect(other.received).toEqual(["f", "r", "a", "m", "e"]);
});

test("cut() ends both sides, and new connections work", async () => {
  const [client, other] = await openPair();
  proxy.disconnect();
  expect(await expectEnd(client)).toBe("closed");
  expect(await expectEnd(other)).toBe("closed");
  await until(() => proxy.connections() === 0, { within: 1000, what: "the proxy to forget it" });
  await openPair();
});

test("reset() is seen as a reset over TCP", async () => {
  const [client] = await openPair();
  proxy.reset();
  expect(await expectEnd(client)).toBe("ECONNRESET");
});

test("refuses new connections on request, and leaves open ones alone", async () => {
  const [client, other] = await openPair();
  proxy.refuseConnections(true);
  await expectEnd(openPeer(proxy.address));
  client.socket.write("still here");
  await expectText(other, "still here");
  proxy.refuseConnections(false);
  await openPair();
});

test("a crash of the server reaches the client, and a missing server looks the same", async () => {
  const [client, other] = await openPair();
  other.socket.destroy();
  await expectEnd(client);
  await new Promise((resolve) => server.close(resolve));
  await expectEnd(openPeer(proxy.address));
});

test("listens on a Unix socket", async () => {
  await using local = await tcpProxy(proxy.address, { path: join(folder, "proxy.sock") });
  const client = openPeer(local.address);
  client.socket.write("through two proxies");
  await expectText(await until(() => serverPeers[0], { within: 1000, what: "the connection" }), "through two proxies");
  local.reset();
  await expectEnd(client);
});

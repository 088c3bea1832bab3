// A connection begins with a hello, ends with one line that says why, and never buffers without bound.

import { expect, test } from "vitest";
import { ProtocolError } from "../../../../src/protocol/handshake.ts";
import { MAX_UNREAD_BYTES } from "../../../../src/server/connection/connection.ts";
import { randomId } from "../../../../src/util/ids.ts";
import { FrameConnection } from "../../../support/frame-connection.ts";
import { cleanUpAfterEach } from "../../../support/server-fixture.ts";
import { ServerHarness } from "../../../support/server-harness.ts";

cleanUpAfterEach();

const REMOTE = { isLocal: false, address: "10.0.0.1" };

async function startHarness(options: ConstructorParameters<typeof ServerHarness>[0] = {}): Promise<ServerHarness> {
  const harness = new ServerHarness(options);
  await harness.start();
  return harness;
}

test("a hello opens a session, and the server answers with its own", async () => {
  const harness = await startHarness();
  const client = new FrameConnection(harness);
  const { connection } = client;
  expect([connection.isOpen, connection.isReadable, connection.session, connection.principal.name]).toEqual([
    false,
    true,
    null,
    "",
  ]);
  connection.receive([JSON.stringify({ hello: { protocol: 1, session: client.session, label: "a\u0007" } })]);
  expect([connection.isOpen, connection.isLocal, connection.session?.label]).toEqual([true, true, "a "]);
  expect(client.output).toContain('"hello"');
});

test.for<[name: string, line: string, reason: string]>([
  ["is no hello", "[]", "the first line must be a hello"],
  ["has no valid session", '{"hello":{"protocol":1,"session":"x"}}', "session must be 26 characters"],
  ["is nested too deeply", `${"[".repeat(100)}${"]".repeat(100)}`, "nested too deeply"],
  [
    "keeps a session alive that is not there",
    `{"hello":{"protocol":1,"session":"${randomId()}","keepSession":true}}`,
    "needs a connected session",
  ],
])("a first line that %s ends the connection", async ([, line, reason]) => {
  const harness = await startHarness();
  const client = new FrameConnection(harness);
  client.connection.receive([line, "[]"]);
  expect([client.isClosed, client.connection.isReadable]).toEqual([true, false]);
  expect(client.output).toContain(reason);
  client.connection.receive(["[]"]);
  client.connection.fail(new Error("again"));
  client.connection.transportClosed();
  expect(client.output.split("\n")).toHaveLength(2);
});

test("a request of HTTP gets an answer of HTTP", async () => {
  const harness = await startHarness();
  const client = new FrameConnection(harness);
  client.connection.receive(["GET / HTTP/1.1"]);
  expect([client.output.startsWith("HTTP/1.1 400 "), client.isClosed]).toEqual([true, true]);
});

test("a probe gets the server's hello and no session, but only over a Unix socket", async () => {
  const harness = await startHarness();
  const probe = JSON.stringify({ hello: { protocol: 1, probe: true } });
  const local = new FrameConnection(harness);
  local.connection.receive([probe]);
  expect([local.output.includes('"hello"'), local.isClosed, harness.inspect().sessions.size]).toEqual([true, true, 0]);
  const remote = new FrameConnection(harness, REMOTE);
  remote.connection.receive([probe]);
  expect(remote.output).toContain("a probe needs a Unix socket");
});

test("the input of a connection that keeps a session alive is ignored, and it gets no pushes", async () => {
  const harness = await startHarness();
  const client = new FrameConnection(harness).hello();
  const keepSessionConnection = new FrameConnection(harness).hello({ session: client.session, keepSession: true });
  expect(keepSessionConnection.send(["ping", 1])).toEqual([]);
  keepSessionConnection.connection.pushRecheck(randomId());
  keepSessionConnection.connection.pushAnswer(randomId(), { state: "none" });
  keepSessionConnection.connection.drain();
  expect([
    keepSessionConnection.output,
    keepSessionConnection.isClosed,
    keepSessionConnection.connection.isReadable,
  ]).toEqual(["", true, false]);
});

test("pushes: an answer goes out with the batch, a recheck at once", async () => {
  const harness = await startHarness();
  const client = new FrameConnection(harness).hello();
  const id = randomId();
  client.connection.pushAnswer(id, { state: "none" });
  expect(client.output).toBe("");
  client.connection.pushRecheck(id);
  expect(client.replies).toHaveLength(2);
  client.connection.drain();
  expect(client.replies.at(-1)).toEqual(["drain"]);
  client.connection.send('["late"]');
  client.connection.flush();
  expect(client.replies).toHaveLength(3);
});

test("long output is written before the batch ends: later while other clients are active", async () => {
  const harness = await startHarness();
  const [client, other] = [new FrameConnection(harness).hello(), new FrameConnection(harness).hello()];
  const countLines = (frames: number): number => {
    client.send(...Array.from({ length: frames }, (_, n) => ["ping", n]));
    return client.output.split("\n").length - 1;
  };
  other.send(["ping", 1]);
  expect(countLines(200)).toBe(1);
  expect(countLines(200)).toBeGreaterThan(1);
  other.send(["ping", 1]);
  expect(countLines(1_000)).toBe(2);
});

test("a client that does not read its output is cut off when too much of it is buffered", async () => {
  const harness = await startHarness();
  const client = new FrameConnection(harness).hello();
  client.unreadBytes = MAX_UNREAD_BYTES + 1;
  client.send(["ping", 1]);
  expect([client.isClosed, client.output.includes("SLOW")]).toEqual([true, true]);
  const failing = new FrameConnection(harness).hello();
  failing.unreadBytes = client.unreadBytes;
  failing.connection.send('["x"]');
  failing.connection.fail(new ProtocolError("PROTOCOL", "a fault"));
  expect([failing.output.includes("SLOW"), failing.output.includes("a fault")]).toEqual([true, false]);
});

test("an unexpected error ends the connection, and only the log has the details", async () => {
  const harness = await startHarness();
  const client = new FrameConnection(harness).hello();
  client.connection.fail(new Error("a fault"));
  expect([client.output.includes("INTERNAL"), client.output.includes("a fault")]).toEqual([true, false]);
  expect(harness.logLines).toEqual(["a connection failed Error: a fault"]);
});

test("a client that the server disconnects keeps its claims until their leases end", async () => {
  const harness = await startHarness();
  const claim = async (end: (client: FrameConnection) => void): Promise<number> => {
    const client = new FrameConnection(harness).hello();
    client.send(["claim", 1, randomId(), [client.session], 30_000]);
    end(client);
    return [...harness.inspect().records.values()].filter(({ claim }) => claim.locks[0].key === client.session).length;
  };
  expect(await claim(({ connection }) => connection.disconnect(new ProtocolError("AUTH", "removed")))).toBe(1);
  expect(await claim(({ connection }) => connection.fail(new ProtocolError("PROTOCOL", "its fault")))).toBe(0);
  expect(await claim(({ connection }) => connection.transportClosed())).toBe(0);
});

test("a connection that exceeds a limit gets the reason", async () => {
  const harness = await startHarness({ limits: { connections: 1 } });
  new FrameConnection(harness).hello();
  const client = new FrameConnection(harness);
  expect([client.isClosed, client.output.includes("at most 1 connections")]).toEqual([true, true]);
});

test("while a connection waits for its turn it is not read, and what arrives meanwhile is handled after it", async () => {
  const harness = await startHarness();
  const client = new FrameConnection(harness).hello();
  Object.assign(harness.inspect().backend, {
    list: () => {
      harness.clock.jump(1_000);
      return { items: [] };
    },
  });
  const list = (n: number): string => client.line(["list", n, { key: "k" }, 1]);
  client.connection.receive([list(1), list(2)]);
  expect([client.connection.isPaused, client.isPaused, client.replies.length]).toEqual([true, true, 1]);
  client.connection.receive([client.line(["ping", 3])]);
  await harness.clock.advance(5_000);
  expect(client.replies.map(([, n]) => n)).toEqual([1, 2, 3]);
  expect([client.connection.isPaused, client.isPaused]).toEqual([false, false]);
});

test("a transport that cannot pause or measure its output needs neither", async () => {
  const harness = await startHarness();
  let output = "";
  const transport = {
    write: (text: string) => {
      output += text;
    },
    close: () => undefined,
  };
  const connection = harness.service?.accept(transport, { isLocal: true, address: "" });
  const { session, line } = {
    session: randomId(),
    line: (n: number) => JSON.stringify(["start1", ["list", n, { key: "k" }, 1]]),
  };
  connection?.receive([JSON.stringify({ hello: { protocol: 1, session } })]);
  Object.assign(harness.inspect().backend, {
    list: () => {
      harness.clock.jump(1_000);
      return { items: [] };
    },
  });
  connection?.receive([line(1), line(2)]);
  await harness.clock.advance(1);
  expect(output).toContain('["ok",2,');
});

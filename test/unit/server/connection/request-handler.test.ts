// Each frame has one reply: its result, or an error that leaves the connection open. A malformed frame ends the connection.

import { expect, test } from "vitest";
import { PROTOCOL_LIMITS } from "../../../../src/protocol/handshake.ts";
import type { Backend } from "../../../../src/server/session/backend.ts";
import { randomId } from "../../../../src/util/ids.ts";
import { flushEventLoop } from "../../../support/fake-clock.ts";
import { FrameConnection } from "../../../support/frame-connection.ts";
import { cleanUpAfterEach } from "../../../support/server-fixture.ts";
import { ServerHarness } from "../../../support/server-harness.ts";

cleanUpAfterEach();

const HOUR_MS = 3_600_000;
const HELD = expect.arrayContaining(["held"]);
type Options = ConstructorParameters<typeof ServerHarness>[0];

async function connect(options: Options = {}): Promise<{ harness: ServerHarness; client: FrameConnection }> {
  const harness = new ServerHarness(options);
  await harness.start();
  return { harness, client: new FrameConnection(harness).hello() };
}

test("a claim is answered at once, in the same batch as other calls of its line", async () => {
  const { client } = await connect();
  const [id, other] = [randomId(), randomId()];
  expect(client.send(["claim", 1, id, ["k"], 30_000], ["claim", 2, other, ["k"], 30_000], ["ping", 3])).toEqual([
    ["ok", 1, expect.arrayContaining(["held"])],
    ["ok", 2, expect.arrayContaining(["waiting"])],
    ["ok", 3, []],
  ]);
});

test("a claim that must be on disk first is answered after the write, or with its error", async () => {
  const { harness, client } = await connect();
  expect(client.send(["claim", 1, randomId(), ["k"], HOUR_MS])).toEqual([]);
  await flushEventLoop();
  expect(client.replies).toEqual([["ok", 1, expect.arrayContaining(["held"])]]);
  if (harness.storage !== null) harness.storage.isFull = true;
  client.send(["claim", 2, randomId(), ["l"], HOUR_MS]);
  await flushEventLoop();
  expect(client.replies).toEqual([["error", 2, "DISK", expect.stringContaining("ENOSPC")]]);
});

test("renew, detach, release and revoke answer for each item", async () => {
  const { client } = await connect();
  const [idA, idB, unknown] = [randomId(), randomId(), randomId()];
  const [first] = client.send(["claim", 1, idA, ["a"], 30_000], ["claim", 2, idB, ["b"], 30_000]);
  const [, token] = (first as unknown[])[2] as [string, string];
  expect(client.send(["renew", 3, [idA, unknown]])).toEqual([
    ["ok", 3, [expect.arrayContaining(["held"]), expect.arrayContaining(["none"])]],
  ]);
  client.send(["revoke", 4, [["a", token, true]]]);
  await flushEventLoop();
  expect(client.replies).toContainEqual(["ok", 4, [1]]);
  client.send(["detach", 5, [idB], 10_000]);
  await flushEventLoop();
  expect(client.replies).toEqual([["ok", 5, [1]]]);
  client.send(["release", 6, [idB, unknown]]);
  await flushEventLoop();
  expect(client.replies).toEqual([["ok", 6, [1, 0]]]);
});

test("a list is a page of claims, and whether there are more", async () => {
  const { client } = await connect();
  client.send(...["a", "b"].map((key, n) => ["claim", n, randomId(), [key], 30_000]));
  expect(client.send(["list", 3, { prefix: "" }, 1])).toMatchObject([["ok", 3, [[expect.anything()], true]]]);
});

test("no more lists than allowed in a line; those that were answered do not count in the next one", async () => {
  const { client } = await connect();
  const list = (n: number): readonly unknown[] => ["list", n, { key: "k" }, 1];
  const numbers = Array.from({ length: 17 }, (_, n) => n);
  expect(client.send(...numbers.map(list))).toEqual([
    ...numbers.slice(1).map((_, n) => ["ok", n, [[], false]]),
    ["error", 16, "LIMIT", "at most 16 lists at a time"],
  ]);
  expect(client.send(list(20))).toEqual([["ok", 20, [[], false]]]);
});

test("lists that another store has not answered count until it has", async () => {
  const { harness, client } = await connect();
  const answer = Promise.resolve({ items: [] });
  overrideBackend(harness, { list: () => answer });
  for (let n = 0; n < 16; n++) expect(client.send(["list", n, { key: "k" }, 1])).toEqual([]);
  expect(client.send(["list", 16, { key: "k" }, 1])).toEqual([["error", 16, "LIMIT", expect.any(String)]]);
  await flushEventLoop();
  client.send(["list", 17, { key: "k" }, 1]);
  await flushEventLoop();
  expect(client.replies).toEqual([["ok", 17, [[], false]]]);
});

/** Replaces methods of the backend by those of another store. */
function overrideBackend(harness: ServerHarness, methods: Partial<Backend>): void {
  Object.assign(harness.inspect().backend, methods);
}

test("an unexpected error is logged, and the client gets INTERNAL; other calls go on", async () => {
  const { harness, client } = await connect();
  overrideBackend(harness, {
    revoke: () => {
      throw new Error("a fault");
    },
    list: () => Promise.reject(new Error("another fault")),
  });
  expect(client.send(["revoke", 1, [["k", "5"]]], ["ping", 2])).toEqual([
    ["error", 1, "INTERNAL", "the server failed; see its log"],
    ["ok", 2, []],
  ]);
  client.send(["list", 3, { key: "k" }, 1]);
  await flushEventLoop();
  expect(client.replies).toEqual([["error", 3, "INTERNAL", expect.any(String)]]);
  expect(harness.logLines).toEqual(["a call failed Error: a fault", "a call failed Error: another fault"]);
});

test("a large frame is handled in parts, in order, and answered as one", async () => {
  const { client } = await connect();
  const ids = Array.from({ length: 200 }, randomId);
  client.send(...ids.map((id, n) => ["claim", n, id, [`k${n}`], 30_000]));
  const [reply] = client.send(["release", 1, [...ids, randomId()]]);
  expect(reply).toEqual(["ok", 1, [...ids.map(() => 1), 0]]);
});

test("a large frame whose parts wait for the disk is answered when all have been written; a failure is that of the frame", async () => {
  const { harness, client } = await connect();
  const ids = Array.from({ length: 100 }, randomId);
  client.send(...ids.map((id, n) => ["claim", n, id, [`k${n}`], HOUR_MS]));
  await flushEventLoop(20);
  client.send(["release", 1, ids]);
  await flushEventLoop(20);
  expect(client.replies).toEqual([["ok", 1, ids.map(() => 1)]]);
  overrideBackend(harness, { detach: () => Promise.reject(new Error("a fault")) });
  client.send(["detach", 2, ids]);
  await flushEventLoop();
  expect(client.replies).toEqual([["error", 2, "INTERNAL", expect.any(String)]]);
});

test("a reclaim of several claims ends the recovery of its session with its last part, after the writes of the others", async () => {
  const { harness, client } = await connect();
  const held = (key: string, ttlMs: number): readonly unknown[] => [
    [randomId(), [key], ttlMs],
    ["held", String(harness.clock.wall() * 1_000), 1, 20_000],
  ];
  expect(client.send(["reclaim", 1, []])).toEqual([["ok", 1, []]]);
  client.send(["reclaim", 2, [held("a", HOUR_MS), held("b", 30_000)], false]);
  await flushEventLoop(20);
  expect(client.replies).toEqual([["ok", 2, [HELD, HELD]]]);
  client.send(["reclaim", 3, [held("c", HOUR_MS), held("d", HOUR_MS)]]);
  await flushEventLoop(20);
  expect(client.replies).toEqual([["ok", 3, [HELD, HELD]]]);
  client.send(["reclaim", 4, [held("e", HOUR_MS)]]);
  await flushEventLoop(20);
  expect(client.replies).toEqual([["ok", 4, [HELD]]]);
});

test("an answer that the backend does not know is null", async () => {
  const { harness, client } = await connect();
  overrideBackend(harness, { renew: () => [undefined, { state: "none" }] });
  expect(client.send(["renew", 1, [randomId(), randomId()]])).toEqual([["ok", 1, [null, ["none"]]]]);
});

test("admin frames are answered, too", async () => {
  const { client } = await connect();
  client.send(["info", 1]);
  await flushEventLoop();
  expect(client.replies).toEqual([["ok", 1, expect.anything()]]);
});

test.for<[name: string, frame: unknown, reason: string]>([
  ["is no array", "claim", "a frame must be an array"],
  ["has no number", ["ping", "x"], "a call's number must be a whole number"],
  ["is unknown", ["jump", 1], "unknown frame"],
])("a frame that %s ends the connection, after the replies to those before it", async ([, frame, reason]) => {
  const { client } = await connect();
  client.send(["ping", 1], frame, ["ping", 2]);
  expect(client.output).toContain('["ok",1,[]]');
  expect([client.output.includes('"ok",2'), client.isClosed, client.output]).toEqual([
    false,
    true,
    expect.stringContaining(reason),
  ]);
});

test("a line with too many frames ends the connection", async () => {
  const { client } = await connect();
  const { framesPerLine } = PROTOCOL_LIMITS;
  client.send(...Array.from({ length: framesPerLine + 1 }, (_, n) => ["ping", n]));
  expect(client.output).toContain(`a line has at most ${framesPerLine} frames`);
});

test("frames are handled until the deadline, and the rest in later turns; a connection that has ended drops it", async () => {
  const { harness, client } = await connect();
  overrideBackend(harness, {
    list: () => {
      harness.clock.jump(1_000);
      return { items: [] };
    },
  });
  expect(client.send(["ping", 1], ["list", 2, { key: "k" }, 1], ["ping", 3])).toEqual([
    ["ok", 1, []],
    ["ok", 2, [[], false]],
  ]);
  expect(client.isPaused).toBe(true);
  await harness.clock.advance(1);
  expect([client.replies.length, client.isPaused]).toEqual([3, false]);
  overrideBackend(harness, {
    list: () => {
      client.connection.transportClosed();
      return { items: [] };
    },
  });
  expect(client.send(["list", 4, { key: "k" }, 1], ["ping", 5])).toEqual([]);
});

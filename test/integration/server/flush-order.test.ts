// When answers are written: early to the only active client, together while other clients are to be served.

import { expect, test } from "vitest";
import { encodeClientHello, PROTOCOL_VERSION } from "../../../src/protocol/handshake.ts";
import type { Connection } from "../../../src/server/connection/connection.ts";
import { randomId } from "../../../src/util/ids.ts";
import { cleanUpAfterEach } from "../../support/server-fixture.ts";
import { ServerHarness } from "../../support/server-harness.ts";

cleanUpAfterEach();

/** The connections whose lines were written, in order. */
const received: Connection[] = [];

/** Pings whose answers are 2 to 3 KiB. */
const PING_COUNT = 200;

function openConnection(harness: ServerHarness): {
  readonly link: Connection;
  readonly written: string[];
  ping(): number;
} {
  const { service } = harness;
  if (service === null) throw new Error("the world has started");
  const written: string[] = [];
  const write = (text: string): void => {
    written.push(text);
    received.push(connection);
  };
  const connection = service.accept({ write, close: () => undefined }, { isLocal: false, address: "" });
  const hello = {
    protocol: PROTOCOL_VERSION,
    version: "",
    label: "",
    session: randomId(),
    keepSession: false,
    pid: null,
    pidStart: null,
  };
  connection.receive([encodeClientHello(hello).trim()]);
  const ping = (): number => {
    written.length = 0;
    connection.receive([JSON.stringify([service.runId, ...Array.from({ length: PING_COUNT }, (_, n) => ["ping", n])])]);
    const answers = written.flatMap((line) => (JSON.parse(line) as unknown[]).slice(1));
    expect(answers).toEqual(Array.from({ length: PING_COUNT }, (_, n) => ["ok", n, []]));
    return written.length;
  };
  return { link: connection, written, ping };
}

test("the answers of a long line are flushed in parts while its client alone is active, and at once while others are", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const connection = openConnection(harness);
  expect(connection.ping()).toBeGreaterThan(1);
  const other = openConnection(harness);
  expect(connection.ping()).toBe(1);
  expect(other.ping()).toBe(1);
  expect(connection.ping()).toBe(1);
  other.link.transportClosed();
  expect(connection.ping()).toBeGreaterThan(1);
  expect(connection.ping()).toBeGreaterThan(1);
});

test("nothing is kept of the last active connection when it has ended", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const { link } = openConnection(harness);
  expect(harness.service?.lastActive).toBe(link);
  link.transportClosed();
  expect(harness.service?.lastActive).toBeNull();
});

test("a grant is written to the new holder before the release is answered to the old one", async () => {
  const harness = new ServerHarness();
  await harness.start();
  const [holder, waiter] = [openConnection(harness), openConnection(harness)];
  const [held, waiting] = [randomId(), randomId()];
  const send = (sender: typeof holder, ...frame: unknown[]): void =>
    sender.link.receive([JSON.stringify([harness.service?.runId, frame])]);
  send(holder, "claim", 1, held, ["key"], 30_000);
  send(waiter, "claim", 1, waiting, ["key"], 30_000);
  const order = received.length;
  send(holder, "release", 2, [held]);
  expect(received.slice(order).map((connection) => connection === waiter.link)).toEqual([true, false]);
});

import { expect, test } from "vitest";
import { lockServer } from "../../../src/drivers/server/driver.ts";
import type { Connector, TransportEvents } from "../../../src/net/transport.ts";
import { encodeAnswer, encodePush } from "../../../src/protocol/frames.ts";
import { encodeServerHello, PROTOCOL_LIMITS, PROTOCOL_VERSION } from "../../../src/protocol/handshake.ts";
import type { Answer, ClaimId } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { toDriverEvents } from "../../support/driver-events.ts";
import { makeClaim } from "../../support/server-fixture.ts";

const WELCOME = encodeServerHello({
  protocol: PROTOCOL_VERSION,
  version: "0",
  runId: "second",
  sessionMs: 30_000,
  endsWithConnection: true,
  traits: {
    lease: { claim: true },
    manyKeys: true,
    permits: "any",
    fencing: true,
    fifo: true,
    durability: "restart",
    recall: false,
  },
  recoveryRemainingMs: 0,
  limits: PROTOCOL_LIMITS,
});

/** A server that says hello and nothing else. */
function createConnector(onConnect: (events: TransportEvents) => void): Connector {
  return {
    url: "a server",
    connect(events) {
      onConnect(events);
      setImmediate(() => events.onData(Buffer.from(WELCOME)));
      return { write: () => {}, close: () => {}, keepAlive: () => {} };
    },
  };
}

test("a frame of an earlier server run is not accepted, and ends the connection", async () => {
  let wire: TransportEvents | null = null;
  let dialed = 0;
  const connector = createConnector((events) => {
    wire = events;
    dialed++;
  });
  const pushes: { readonly id: ClaimId | null; readonly answer: Answer | undefined }[] = [];
  const driver = lockServer({ connector, random: () => 0 });
  await driver.open(toDriverEvents((id, answer) => pushes.push({ id, answer })));
  const claim = makeClaim("a");
  const pendingClaim = driver.claim(claim);
  const held: Answer = { state: "held", token: 7n, tokenCount: 1, remainingMs: 30_000 };
  const push = (start: string): void =>
    (wire as unknown as TransportEvents).onData(
      Buffer.from(`["${start}",${encodePush(claim.id, encodeAnswer(held, 0))}]\n`),
    );

  push("first");
  await expect(pendingClaim).rejects.toThrow(/connection/);
  expect(pushes).toEqual([]);
  await until(() => dialed === 2, { within: 2_000, what: "another connection" });
  await driver.close();
});

test("a frame of the current server run is accepted", async () => {
  let wire: TransportEvents | null = null;
  const connector = createConnector((events) => {
    wire = events;
  });
  const pushes: (ClaimId | null)[] = [];
  const driver = lockServer({ connector });
  await driver.open(toDriverEvents((id) => pushes.push(id)));
  const claim = makeClaim("a");
  const pendingClaim = driver.claim(claim);
  const held: Answer = { state: "held", token: 7n, tokenCount: 1, remainingMs: 30_000 };
  (wire as unknown as TransportEvents).onData(
    Buffer.from(`["second",${encodePush(claim.id, encodeAnswer(held, 0))}]\n`),
  );
  expect(pushes).toEqual([claim.id]);
  await driver.close();
  await expect(pendingClaim).rejects.toThrow(/closed/);
});

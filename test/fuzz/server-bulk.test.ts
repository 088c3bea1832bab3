// Frames by the million, without sockets or real time: each gets a typed error or an answer; in the end nothing is left.

import { expect, test } from "vitest";
import { decodeAnswer, decodeLine, decodePage } from "../../src/protocol/frames.ts";
import { decodeConnectionError, decodeServerHello, ProtocolError } from "../../src/protocol/handshake.ts";
import { LineDecoder } from "../../src/protocol/lines.ts";
import type { LockService } from "../../src/server/service.ts";
import { randomId } from "../../src/util/ids.ts";
import { heapUsed } from "../support/heap-usage.ts";
import { disableStackTraces } from "../support/no-stack-traces.ts";
import { toReleases } from "../support/releases.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import { seededRandom } from "../support/seeded-random.ts";
import { cleanUpAfterEach, expectHeld, makeClaim } from "../support/server-fixture.ts";
import type { HarnessClient } from "../support/server-harness.ts";
import { ServerHarness } from "../support/server-harness.ts";
import type { FrameGenerator } from "./frame-generator.ts";
import { createFrameGenerator, FRAME_COUNT, SEED, UNUSUAL_VALUES } from "./frame-generator.ts";

cleanUpAfterEach();
disableStackTraces();

const MIB = 1_048_576;

test(`the server's side of a connection survives ${FRAME_COUNT} fuzzed frames (seed ${SEED})`, async () => {
  const random = seededRandom(SEED);
  const harness = new ServerHarness();
  await harness.start();
  // in its first minute a server trusts a client that reports a later state
  await harness.clock.advance(60_000);
  const healthy = await harness.connectClient();
  const { connectionLimiter } = harness.service as LockService;
  const fuzz = createFrameGenerator(random);
  const codes = new Map<string, number>();
  const verdict = { sent: 0, refused: 0, held: 0 };
  let heapBefore = 0;
  for (let turn = 0; verdict.sent < FRAME_COUNT; turn++) {
    const code = fuzzConnection(harness, fuzz, random, verdict);
    if (code !== null) codes.set(code, (codes.get(code) ?? 0) + 1);
    if (turn % 100 === 0) expectHeld(await expectServed(healthy, harness));
    // now and then all requests come to their end, with leases and silent sessions
    if (random.chance(0.1)) await harness.clock.advance(random.chance(0.05) ? 40_000 : 1);
    if (heapBefore === 0 && verdict.sent > FRAME_COUNT / 10) heapBefore = await expectIdle(harness);
  }
  expect(harness.logLines.filter((line) => !/^a lock was (revoked|taken away)/.test(line))).toEqual([]);
  expect([...codes.keys()].filter((code) => !["PROTOCOL", "RUN_ID"].includes(code))).toEqual([]);
  expect(verdict.refused).toBeGreaterThan(FRAME_COUNT / 100);
  // most requests get far enough to take locks
  expect(verdict.held).toBeGreaterThan(FRAME_COUNT / 100);
  expectHeld(await expectServed(healthy, harness));
  const growth = (await expectIdle(harness)) - heapBefore;
  expect(growth, `${Math.round(growth / MIB)} MiB more than after a tenth of it`).toBeLessThan(32 * MIB);
  expect([connectionLimiter.open, connectionLimiter.unauthenticated, harness.inspect().sessions.size]).toEqual([
    1, 0, 1,
  ]);
  expect([harness.inspect().records.size, harness.parts?.eventLog.subscriberCount]).toEqual([0, 0]);
}, 7_200_000);

/** One client: what it sends, and the code with which it is disconnected; null: it left. */
function fuzzConnection(
  { service }: ServerHarness,
  fuzz: FrameGenerator,
  random: SeededRandom,
  verdict: { sent: number; refused: number; held: number },
): string | null {
  if (service === null) throw new Error("the server should have started");
  let closed = false;
  let last = "";
  const stream = {
    write: (text: string): void => {
      last = text;
      if (text.includes('"held"')) verdict.held++;
    },
    close: (): void => {
      closed = true;
    },
  };
  const connection = service.accept(stream, { isLocal: random.chance(0.5), address: "" });
  const reader = new LineDecoder(262_144);
  const deliver = (bytes: Buffer): void => {
    try {
      connection.receive(reader.push(bytes));
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      connection.fail(error);
    }
  };
  fuzz.nextFrame();
  if (random.chance(0.98)) deliver(Buffer.from(`{"hello":{"protocol":1,"session":"${randomId()}"}}\n`));
  while (!closed && verdict.sent < FRAME_COUNT && random.chance(0.98)) {
    verdict.sent++;
    deliver(fuzz.nextLine(service.runId));
  }
  connection.transportClosed();
  if (!closed) return null;
  verdict.refused++;
  return decodeConnectionError(last.trimEnd())?.code ?? last;
}

/** Bytes in use when all that can end has ended. */
async function expectIdle({ clock, service }: ServerHarness): Promise<number> {
  await clock.advance(100_000);
  service?.endBatch();
  return heapUsed();
}

async function expectServed(
  { driver }: HarnessClient,
  harness: ServerHarness,
): Promise<Awaited<ReturnType<HarnessClient["driver"]["claim"]>>> {
  const claim = makeClaim("healthy");
  const answer = driver.claim(claim);
  await harness.clock.advance(1);
  await driver.release(toReleases(claim));
  return answer;
}

test(`the client's decoders return a value or throw a ProtocolError (seed ${SEED})`, () => {
  const random = seededRandom(SEED + 1);
  const decoders: ((raw: unknown, text: string) => unknown)[] = [
    (raw) => decodeAnswer(raw),
    (raw) => decodePage(raw),
    (_, text) => decodeLine(text, "s"),
    (_, text) => decodeServerHello(text),
    (_, text) => decodeConnectionError(text),
  ];
  const values = [...UNUSUAL_VALUES, "held", "waiting", "none", "tag", "5", 1, "hello", "error"];
  const any = (depth: number): unknown => {
    if (depth === 0 || random.chance(0.4)) return random.pick(values);
    if (random.chance(0.2)) return { hello: any(depth - 1), error: any(depth - 1), code: any(0), start: any(0) };
    return Array.from({ length: random.int(7) }, () => any(depth - 1));
  };
  for (let turn = 0; turn < FRAME_COUNT; turn++) {
    const raw = any(4);
    const text = random.chance(0.9) ? JSON.stringify(raw) : JSON.stringify(raw).slice(1);
    for (const decode of decoders) {
      try {
        decode(raw, text);
      } catch (error) {
        if (!(error instanceof ProtocolError)) throw error;
      }
    }
  }
}, 7_200_000);

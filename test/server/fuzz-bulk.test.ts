// Frames by the million, without sockets or real time: a typed error, or an answer; and nothing of all that is left.

import { expect, test } from "vitest";
import { newId } from "../../src/ids.ts";
import { decodeAnswer, decodeLine, decodePage } from "../../src/protocol/frames.ts";
import { decodeRefusal, decodeWelcome, ProtocolError } from "../../src/protocol/hello.ts";
import { LineReader } from "../../src/protocol/lines.ts";
import { heapNow } from "../support/heap.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import { seededRandom } from "../support/seeded-random.ts";
import { stackless } from "../support/stackless.ts";
import type { Fuzzer } from "./fuzzed.ts";
import { FRAMES, fuzzer, NASTY, SEED } from "./fuzzed.ts";
import { claimOf, cleanUp, held } from "./support.ts";
import type { Player } from "./world.ts";
import { World } from "./world.ts";

cleanUp();
stackless();

const MIB = 1_048_576;

test(`the server's side of a connection stands ${FRAMES} fuzzed frames (seed ${SEED})`, async () => {
  const random = seededRandom(SEED);
  const world = new World();
  await world.start();
  // in its first minute a server believes a client that says it has seen a later state
  await world.clock.pass(60_000);
  const healthy = await world.client();
  const { hub, kept } = world;
  if (hub === null || kept === null) throw new Error("the world has started");
  const fuzz = fuzzer(random);
  const codes = new Map<string, number>();
  const verdict = { sent: 0, refused: 0, held: 0 };
  let early = 0;
  for (let turn = 0; verdict.sent < FRAMES; turn++) {
    const code = connection(world, fuzz, random, verdict);
    if (code !== null) codes.set(code, (codes.get(code) ?? 0) + 1);
    if (turn % 100 === 0) held(await ask(healthy, world));
    // now and then what was asked comes to its end, leases and silent sessions, too
    if (random.chance(0.1)) await world.clock.pass(random.chance(0.05) ? 40_000 : 1);
    if (early === 0 && verdict.sent > FRAMES / 10) early = await idle(world);
  }
  expect(world.logged.filter((line) => !/^a lock was (revoked|taken away)/.test(line))).toEqual([]);
  expect([...codes.keys()].filter((code) => !["PROTOCOL", "START"].includes(code))).toEqual([]);
  expect(verdict.refused).toBeGreaterThan(FRAMES / 100);
  // most of what is asked gets far enough to take locks
  expect(verdict.held).toBeGreaterThan(FRAMES / 100);
  held(await ask(healthy, world));
  const grown = (await idle(world)) - early;
  expect(grown, `${Math.round(grown / MIB)} MiB more than after a tenth of it`).toBeLessThan(32 * MIB);
  expect([hub.door.inside, hub.door.strangers, kept.sessions.all.size]).toEqual([1, 0, 1]);
  expect([kept.keeper.table.entries.size, world.record?.subscribers]).toEqual([0, 0]);
}, 7_200_000);

/** One client: what it sends, and the code by which it is thrown out; null: it went. */
function connection(
  { hub }: World,
  fuzz: Fuzzer,
  random: SeededRandom,
  verdict: { sent: number; refused: number; held: number },
): string | null {
  if (hub === null) throw new Error("the world has started");
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
  const link = hub.accept(stream, { local: random.chance(0.5), address: "" });
  const reader = new LineReader(262_144);
  const deliver = (bytes: Buffer): void => {
    try {
      link.lines(reader.push(bytes));
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      link.refuse(error);
    }
  };
  fuzz.next();
  if (random.chance(0.98)) deliver(Buffer.from(`{"hello":{"protocol":1,"session":"${newId()}"}}\n`));
  while (!closed && verdict.sent < FRAMES && random.chance(0.98)) {
    verdict.sent++;
    deliver(fuzz.line(hub.start));
  }
  link.ended();
  if (!closed) return null;
  verdict.refused++;
  return decodeRefusal(last.trimEnd())?.code ?? last;
}

/** Bytes in use when all has ended that can end. */
async function idle({ clock, hub }: World): Promise<number> {
  await clock.pass(100_000);
  hub?.settle();
  return heapNow();
}

async function ask({ driver }: Player, world: World): Promise<Awaited<ReturnType<Player["driver"]["claim"]>>> {
  const claim = claimOf("healthy");
  const answer = driver.claim(claim);
  await world.clock.pass(1);
  await driver.release([claim]);
  return answer;
}

test(`the client's decoders give a value or a ProtocolError (seed ${SEED})`, () => {
  const random = seededRandom(SEED + 1);
  const decoders: ((raw: unknown, text: string) => unknown)[] = [
    (raw) => decodeAnswer(raw),
    (raw) => decodePage(raw),
    (_, text) => decodeLine(text, "s"),
    (_, text) => decodeWelcome(text),
    (_, text) => decodeRefusal(text),
  ];
  const some = [...NASTY, "held", "waiting", "none", "tag", "5", 1, "hello", "error"];
  const any = (depth: number): unknown => {
    if (depth === 0 || random.chance(0.4)) return random.pick(some);
    if (random.chance(0.2)) return { hello: any(depth - 1), error: any(depth - 1), code: any(0), start: any(0) };
    return Array.from({ length: random.int(7) }, () => any(depth - 1));
  };
  for (let turn = 0; turn < FRAMES; turn++) {
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

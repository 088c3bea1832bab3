// Whatever comes in: a typed error, or an answer; never a crash, never a harm to others.

import type { Socket } from "node:net";
import { connect } from "node:net";
import { expect, test } from "vitest";
import { newId } from "../../src/ids.ts";
import { decodeAnswer, decodeLine, decodePage } from "../../src/protocol/frames.ts";
import { decodeRefusal, decodeWelcome, ProtocolError } from "../../src/protocol/hello.ts";
import { LineReader } from "../../src/protocol/lines.ts";
import { leakCheck } from "../support/leak-check.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import { seededRandom } from "../support/seeded-random.ts";
import { until } from "../support/wait-for.ts";
import { claimOf, cleanUp, client, held, running } from "./support.ts";
import { World } from "./world.ts";

leakCheck();
cleanUp();

const FRAMES = process.env.HOLDFAST_LONG === "1" ? 1_000_000 : 20_000;
const SEED = Number(process.env.HOLDFAST_SEED ?? Math.floor(Math.random() * 2 ** 31));

const NASTY: readonly unknown[] = [
  0,
  -1,
  0.5,
  Number.POSITIVE_INFINITY,
  2 ** 53,
  -0,
  null,
  true,
  "",
  "session",
  "-1",
  "1e3",
  "9".repeat(40),
  [],
  [[]],
  {},
  { tokens: 1 },
  { __proto__: { tokens: 5 } },
  { tokens: 2 ** 31 },
  { floor: "x" },
  { wait: "no" },
  { label: "\u001b[2J" },
  "\u0000",
  "\ud800",
  "a".repeat(513),
  "é".repeat(300),
  "__proto__",
  "constructor",
  ["k", 1, 0],
  ["k", 0, 1],
  ["k", 2 ** 31, 2 ** 31],
  "../..",
];
const VERBS = [
  "claim",
  "renew",
  "release",
  "detach",
  "revoke",
  "list",
  "reclaim",
  "ping",
  "hello",
  "ok",
  "push",
  "__proto__",
];

/** A frame that may be right, or nearly. */
function frame(random: SeededRandom): unknown {
  const any = (): unknown => random.pick(NASTY);
  const maybe = (good: unknown): unknown => (random.chance(0.85) ? good : any());
  const id = (): unknown => maybe(random.chance(0.5) ? newId() : "a".repeat(26));
  const terms = (): unknown[] => [
    id(),
    maybe([maybe(random.pick(["k", "l", ["m", 1, 2]]))]),
    maybe(30_000),
    maybe({ wait: false }),
  ];
  const n = maybe(random.int(1_000));
  switch (maybe(random.pick(VERBS))) {
    case "claim":
      return ["claim", n, ...terms()];
    case "renew":
      return ["renew", n, maybe([id(), terms()])];
    case "release":
      return ["release", n, maybe([id(), [id(), maybe(1_000)]])];
    case "detach":
      return ["detach", n, maybe([id()])];
    case "revoke":
      return ["revoke", n, maybe([[maybe("k"), maybe("17"), maybe(true)]])];
    case "list":
      return ["list", n, maybe("k"), maybe(5), maybe("tag")];
    case "reclaim":
      return [
        "reclaim",
        n,
        maybe([
          [terms(), maybe(["held", maybe("5"), maybe(1), maybe(100)])],
          [terms(), maybe(["waiting", maybe(3)])],
        ]),
        maybe(true),
      ];
    case "ping":
      return ["ping", n];
    default:
      return any();
  }
}

/** The bytes of a line, in one of ten broken at some place. */
function line(random: SeededRandom, start: string): Buffer {
  const frames = Array.from({ length: 1 + random.int(3) }, () => frame(random));
  let text = JSON.stringify([random.chance(0.97) ? start : random.pick(NASTY), ...frames]);
  if (random.chance(0.02)) text = `${"[".repeat(random.int(50_000))}`;
  if (random.chance(0.02)) text = text.replace(/\d+/, "1e400");
  if (random.chance(0.02)) text = text.replace("{", '{"tokens":1,"tokens":-5,"__proto__":{"wait":false},');
  const bytes = Buffer.from(`${text}\n`);
  if (random.chance(0.1)) bytes[random.int(bytes.length)] = random.int(256);
  return random.chance(0.03) ? bytes.subarray(0, random.int(bytes.length)) : bytes;
}

test(`the server's side of a connection stands ${FRAMES} fuzzed frames (seed ${SEED})`, async () => {
  const random = seededRandom(SEED);
  const world = new World();
  await world.start();
  const healthy = await world.client();
  const { hub } = world;
  if (hub === null) throw new Error("the world has started");
  const codes = new Map<string, number>();
  let sent = 0;
  let refused = 0;
  while (sent < FRAMES) {
    let closed = false;
    const got: string[] = [];
    const stream = {
      write: (text: string): void => {
        got.push(text);
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
        expect(error).toBeInstanceOf(ProtocolError);
        link.refuse(error);
      }
    };
    if (random.chance(0.98)) deliver(Buffer.from(`{"hello":{"protocol":1,"session":"${newId()}"}}\n`));
    while (!closed && sent < FRAMES && random.chance(0.98)) {
      sent++;
      deliver(line(random, hub.start));
    }
    if (closed) {
      refused++;
      const code = decodeRefusal((got.at(-1) as string).trimEnd())?.code as string;
      codes.set(code, (codes.get(code) ?? 0) + 1);
    }
    link.ended();
    if (sent % 50 === 0) held(await ask(healthy, world));
    await world.clock.pass(random.chance(0.01) ? 40_000 : 0);
  }
  expect(world.logged).toEqual([]);
  expect([...codes.keys()].filter((code) => !["PROTOCOL", "START"].includes(code))).toEqual([]);
  expect(refused).toBeGreaterThan(FRAMES / 50);
  held(await ask(healthy, world));
}, 600_000);

async function ask({ driver }: Awaited<ReturnType<World["client"]>>, world: World) {
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
  const any = (depth: number): unknown => {
    if (depth === 0 || random.chance(0.4))
      return random.pick([...NASTY, "held", "waiting", "none", "tag", "5", 1, "hello", "error"]);
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
        expect(error).toBeInstanceOf(ProtocolError);
      }
    }
  }
}, 600_000);

test(`a live server stands fuzzed connections, cut at any byte (seed ${SEED})`, async () => {
  const random = seededRandom(SEED + 2);
  const it = await running();
  const { driver } = await client(it.addresses[0] as string);
  const open = new Set<Socket>();
  for (let turn = 0; turn < FRAMES / 100; turn++) {
    const socket = connect({ path: it.path });
    open.add(socket);
    socket.on("error", () => undefined);
    socket.on("close", () => open.delete(socket));
    socket.resume();
    const hello = Buffer.from(`{"hello":{"protocol":1,"session":"${newId()}"}}\n`);
    if (random.chance(0.9)) socket.write(hello);
    else socket.write(hello.subarray(0, random.int(hello.length)));
    const lines = Array.from({ length: random.int(5) }, () => line(random, it.start));
    for (const bytes of lines) socket.write(bytes);
    if (random.chance(0.5)) socket.destroy();
    else socket.end();
    if (turn % 20 !== 0) continue;
    const claim = claimOf("healthy");
    held(await driver.claim(claim));
    expect(await driver.release([claim])).toEqual([true]);
  }
  await until(() => open.size === 0, { within: 5_000, what: "the end of all connections" });
  await until(() => it.stats().sessions === 1, { within: 5_000, what: "the end of all sessions" });
  expect(it.stats().claims).toBe(0);
  expect(it.logged).toEqual([]);
}, 600_000);

test("a line that is too long, and one that never ends, cost their connection only", async () => {
  const it = await running();
  for (const [first, bytes] of [
    [true, 5_000],
    [false, 300_000],
  ] as const) {
    const socket = connect({ path: it.path });
    let got = "";
    socket.setEncoding("utf8").on("data", (text: string) => {
      got += text;
    });
    socket.on("error", () => undefined);
    if (!first) socket.write(`{"hello":{"protocol":1,"session":"${newId()}"}}\n`);
    await until(() => first || got.includes("\n"), { within: 1_000, what: "the hello" });
    socket.write(`["${"x".repeat(bytes)}`);
    await until(() => socket.destroyed || socket.readableEnded, { within: 2_000, what: "the end of the connection" });
    expect(got).toContain("a line is longer than");
    socket.destroy();
  }
  expect(it.logged).toEqual([]);
});

test("a client that never reads is not read from, and harms nobody", async () => {
  const it = await running();
  const { driver } = await client(it.addresses[0] as string);
  const socket = connect({ path: it.path });
  socket.on("error", () => undefined);
  socket.write(`{"hello":{"protocol":1,"session":"${newId()}"}}\n`);
  socket.pause();
  const pings = `["${it.start}"${`,["ping",1]`.repeat(5_000)}]\n`;
  for (let turn = 0; turn < 200; turn++) socket.write(pings);
  await until(() => socket.writableLength > 1_000_000, { within: 2_000, what: "the server to stop reading" });
  const claim = claimOf("healthy");
  held(await driver.claim(claim));
  socket.destroy();
});

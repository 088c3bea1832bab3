// Lines of the lock protocol that are valid, nearly valid, or invalid.

import { randomId } from "../../src/util/ids.ts";
import type { SeededRandom } from "../support/seeded-random.ts";

/** The number of inputs of a bulk test. HOLDFAST_FRAMES sets another one. */
export const FRAME_COUNT: number = Number(
  process.env.HOLDFAST_FRAMES ?? (process.env.HOLDFAST_LONG === "1" ? 10_000_000 : 20_000),
);
export const SEED: number = Number(process.env.HOLDFAST_SEED ?? Math.floor(Math.random() * 2 ** 31));

export const UNUSUAL_VALUES: readonly unknown[] = [
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
  "history",
  "watch",
  "unwatch",
  "info",
  "hello",
  "ok",
  "push",
  "__proto__",
];
/** Of these some were claimed by one of the last connections, and some by none. */
const IDS = 64;
/** The probability that a part of a frame is hostile: nearly valid lines get further than completely invalid ones. */
const ODDS = [0, 0.01, 0.05, 0.15] as const;

export interface FrameGenerator {
  /** Lines come from another client: from now on its probability applies. */
  nextFrame(): void;
  /** The bytes of a line, some of them corrupted. */
  nextLine(start: string): Buffer;
}

/** ttls: the requested leases. */
export function createFrameGenerator(
  random: SeededRandom,
  ttls: readonly unknown[] = [100, 30_000, "session"],
): FrameGenerator {
  const ids = Array.from({ length: IDS }, randomId);
  let odds: number = random.pick(ODDS);
  const any = (): unknown => random.pick(UNUSUAL_VALUES);
  const maybe = (good: unknown): unknown => (random.chance(odds) ? any() : good);
  const id = (): unknown => maybe(random.pick(ids));
  const key = (): unknown => maybe(random.pick(["k", "l", "m", "n", ["m", 1, 2], ["n", 2, 3]]));
  const terms = (): unknown[] => [
    id(),
    maybe(random.chance(0.9) ? [key()] : [key(), key()]),
    maybe(random.pick(ttls)),
    maybe(random.pick([{ wait: false }, {}, { tokens: 7, label: "x" }, { floor: "5" }])),
  ];
  const items: Readonly<Record<string, () => unknown[]>> = {
    claim: () => {
      ids[random.int(IDS)] = randomId();
      return terms();
    },
    renew: () => [maybe([id(), terms()])],
    release: () => [maybe([id(), [id(), maybe(1_000)]])],
    detach: () => [maybe([id()])],
    revoke: () => [maybe([[maybe("k"), maybe("17"), maybe(true)]])],
    list: () => [
      maybe(random.pick([{ prefix: "k" }, { key: "k" }, { prefix: "", key: "" }, {}])),
      maybe(5),
      ...(random.chance(0.5) ? [maybe("tag")] : []),
    ],
    reclaim: () => [
      maybe([
        [terms(), maybe(["held", maybe("5"), maybe(1), maybe(100)])],
        [terms(), maybe(["waiting", maybe(3)])],
      ]),
      maybe(true),
    ],
    ping: () => [],
    history: () => [maybe("k"), maybe(10)],
    watch: () => [maybe("")],
    unwatch: () => [maybe(random.int(20))],
    info: () => [maybe("k")],
  };
  const frame = (): unknown => {
    if (random.chance(odds / 5)) return any();
    const verb = maybe(random.pick(VERBS));
    const rest = typeof verb === "string" && Object.hasOwn(items, verb) ? items[verb] : undefined;
    // no such frame ends the connection: not every second line does
    if (rest === undefined) return random.chance(odds) ? [verb, 1] : ["ping", random.int(1_000)];
    return [verb, maybe(random.int(1_000)), ...rest()];
  };
  return {
    nextFrame() {
      odds = random.pick(ODDS);
    },
    nextLine(start) {
      const rare = (): boolean => random.chance(odds / 3);
      const frames = Array.from({ length: 1 + random.int(3) }, frame);
      let text = JSON.stringify([rare() ? any() : start, ...frames]);
      // deep or long: expensive to parse, so there are fewer of them
      if (random.chance(odds / 50)) text = "[".repeat(random.int(50_000));
      if (rare()) text = text.replace(/\d+/, "1e400");
      if (rare()) text = text.replace("{", '{"tokens":1,"tokens":-5,"__proto__":{"wait":false},');
      const bytes = Buffer.from(`${text}\n`);
      if (random.chance(odds)) bytes[random.int(bytes.length)] = random.int(256);
      return rare() ? bytes.subarray(0, random.int(bytes.length)) : bytes;
    },
  };
}

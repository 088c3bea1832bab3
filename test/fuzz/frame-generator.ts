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
  const validOrAny = (valid: unknown): unknown => (random.chance(odds) ? any() : valid);
  const id = (): unknown => validOrAny(random.pick(ids));
  const key = (): unknown => validOrAny(random.pick(["k", "l", "m", "n", ["m", 1, 2], ["n", 2, 3]]));
  const terms = (): unknown[] => [
    id(),
    validOrAny(random.chance(0.9) ? [key()] : [key(), key()]),
    validOrAny(random.pick(ttls)),
    validOrAny(random.pick([{ wait: false }, {}, { tokens: 7, label: "x" }, { floor: "5" }])),
  ];
  const items: Readonly<Record<string, () => unknown[]>> = {
    claim: () => {
      ids[random.int(IDS)] = randomId();
      return terms();
    },
    renew: () => [validOrAny([id(), terms()])],
    release: () => [validOrAny([id(), [id(), validOrAny(1_000)]])],
    detach: () => [validOrAny([id()])],
    revoke: () => [validOrAny([[validOrAny("k"), validOrAny("17"), validOrAny(true)]])],
    list: () => [
      validOrAny(random.pick([{ prefix: "k" }, { key: "k" }, { prefix: "", key: "" }, {}])),
      validOrAny(5),
      ...(random.chance(0.5) ? [validOrAny("tag")] : []),
    ],
    reclaim: () => [
      validOrAny([
        [terms(), validOrAny(["held", validOrAny("5"), validOrAny(1), validOrAny(100)])],
        [terms(), validOrAny(["waiting", validOrAny(3)])],
      ]),
      validOrAny(true),
    ],
    ping: () => [],
    history: () => [validOrAny("k"), validOrAny(10)],
    watch: () => [validOrAny("")],
    unwatch: () => [validOrAny(random.int(20))],
    info: () => [validOrAny("k")],
  };
  const frame = (): unknown => {
    if (random.chance(odds / 5)) return any();
    const verb = validOrAny(random.pick(VERBS));
    const rest = typeof verb === "string" && Object.hasOwn(items, verb) ? items[verb] : undefined;
    // no such frame ends the connection: not every second line does
    if (rest === undefined) return random.chance(odds) ? [verb, 1] : ["ping", random.int(1_000)];
    return [verb, validOrAny(random.int(1_000)), ...rest()];
  };
  return {
    nextFrame() {
      odds = random.pick(ODDS);
    },
    nextLine(start) {
      const isRare = (): boolean => random.chance(odds / 3);
      const frames = Array.from({ length: 1 + random.int(3) }, frame);
      let text = JSON.stringify([isRare() ? any() : start, ...frames]);
      // deep or long: expensive to parse, so there are fewer of them
      if (random.chance(odds / 50)) text = "[".repeat(random.int(50_000));
      if (isRare()) text = text.replace(/\d+/, "1e400");
      if (isRare()) text = text.replace("{", '{"tokens":1,"tokens":-5,"__proto__":{"wait":false},');
      const bytes = Buffer.from(`${text}\n`);
      if (random.chance(odds)) bytes[random.int(bytes.length)] = random.int(256);
      return isRare() ? bytes.subarray(0, random.int(bytes.length)) : bytes;
    },
  };
}

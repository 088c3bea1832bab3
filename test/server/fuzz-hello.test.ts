// First lines of every kind at a server that asks for credentials: none but the right one opens anything.

import { expect, test } from "vitest";
import { newId } from "../../src/ids.ts";
import { decodeRefusal } from "../../src/protocol/hello.ts";
import { leakCheck } from "../support/leak-check.ts";
import { seededRandom } from "../support/seeded-random.ts";
import { accessFor, known } from "./accounts.ts";
import { cleanUp } from "./support.ts";
import { World } from "./world.ts";

leakCheck();
cleanUp();

const HELLOS = process.env.HOLDFAST_LONG === "1" ? 200_000 : 5_000;
const SEED = Number(process.env.HOLDFAST_SEED ?? Math.floor(Math.random() * 2 ** 31));

test(`${HELLOS} fuzzed hellos let nobody in who has no credential (seed ${SEED})`, async () => {
  const random = seededRandom(SEED);
  const ana = known("ana");
  const limits = { refusalMs: 10, refusals: 8 };
  const world = new World({ access: accessFor(ana), limits });
  await world.start();
  const { hub } = world;
  if (hub === null) throw new Error("the world has started");
  const near = (): string => {
    const at = random.int(ana.credential.length);
    return `${ana.credential.slice(0, at)}${random.pick(["", "a", "A", "\u0000", " "])}${ana.credential.slice(at + 1)}`;
  };
  const odd: readonly unknown[] = [
    null,
    0,
    true,
    "",
    [],
    {},
    "__proto__",
    [ana.credential],
    { toString: 1 },
    "x".repeat(2_000),
  ];
  const counts = { in: 0, out: 0 };
  const codes = new Set<string>();
  for (let round = 0; round < HELLOS; round++) {
    const got: string[] = [];
    const stream = { write: (text: string) => void got.push(text), close: () => undefined };
    const link = hub.accept(stream, { local: random.chance(0.5), address: random.pick(["", "10.0.0.1", "::1", "?"]) });
    const isRight = random.chance(0.05);
    const guess = random.chance(0.5) ? near() : random.pick(odd);
    const credential = isRight ? ana.credential : guess === ana.credential ? "" : guess;
    const hello: Record<string, unknown> = { protocol: 1, session: newId(), credential };
    const isWhole = isRight || random.chance(0.5);
    if (!isWhole)
      hello[random.pick(["protocol", "session", "tether", "probe", "oldest", "label", "__proto__"])] = random.pick(odd);
    let text = JSON.stringify({ hello });
    if (!isWhole && random.chance(0.3)) text = text.slice(0, random.int(text.length));
    link.lines([text, `["${hub.start}",["claim",1,"${newId()}",["k${round}"],30000,{"wait":false}]]`]);
    const opened = got.some((line) => line.includes('"held"'));
    expect(opened, text.replaceAll(ana.credential, "...")).toBe(isRight);
    counts[opened ? "in" : "out"]++;
    if (random.chance(0.1)) await world.clock.pass(10);
    const refusal = got.map((line) => decodeRefusal(line.trimEnd())).find((it) => it !== null);
    if (refusal != null) codes.add(refusal.code);
    link.ended();
  }
  expect(counts.in).toBeGreaterThan(HELLOS / 50);
  for (const code of ["AUTH", "PROTOCOL", "VERSION", "LIMIT"]) expect(codes).toContain(code);
  // nothing of all that is left
  await world.clock.pass(60_000);
  expect([hub.door.inside, hub.door.strangers, hub.door.refused]).toEqual([0, 0, 0]);
  expect(world.kept?.sessions.all.size).toBe(0);
  expect(world.logged.join("\n")).not.toContain(ana.credential);
});

test("the hellos of a probe and of a tether open nothing, either", async () => {
  const world = new World({ access: accessFor(known("ana")) });
  await world.start();
  for (const more of [{ probe: true }, { tether: true }]) {
    const got: string[] = [];
    const stream = { write: (text: string) => void got.push(text), close: () => undefined };
    const link = world.hub?.accept(stream, { local: true, address: "" });
    const claim = `["${world.hub?.start}",["claim",1,"${newId()}",["k"],30000]]`;
    link?.lines([JSON.stringify({ hello: { protocol: 1, session: newId(), ...more } }), claim]);
    expect(got.join("")).not.toContain("held");
    expect(link?.reads).toBe(false);
  }
  expect(world.kept?.keeper.table.entries.size).toBe(0);
});

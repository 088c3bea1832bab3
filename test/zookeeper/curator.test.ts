// Curator's InterProcessMutex and our locks on one path: real contenders of both, each with a session of its own.

import { expect, test } from "vitest";
import { crews } from "../support/curator/crews.ts";
import { until } from "../support/wait-for.ts";

const here = crews();
const WITHIN = 20_000;
/** Of each contender. */
const LAPS = process.env.HOLDFAST_LONG === "1" ? 250 : 50;
/** In which all laps are done, however busy the machine is. */
const LOAD_MS = 100 * 8 * LAPS;
const OURS = ["ours-1", "ours-2", "ours-3", "ours-4"];
const THEIRS = ["theirs-1", "theirs-2", "theirs-3", "theirs-4"];
/** Whoever enters must have the lowest node, and a higher one than whoever entered before. */
function orderOf(path: string): (name: string) => Promise<string | null> {
  let last = -1;
  return async (name) => {
    const [first] = await here.lineOf(path);
    if (first === undefined) return `${name} entered, and no node is there`;
    const { data } = await here.zk().get(`${path}/${first.name}`);
    if (!data.toString().includes(name)) return `${name} entered, but first is ${data}`;
    const before = last;
    last = first.number;
    return first.number > before ? null : `${name} entered with ${first.number} after ${before}`;
  };
}

test(
  "4 of ours and 4 of Curator's on one path: nobody inside beside another, all in order of arrival, nobody starved",
  async () => {
    const path = "/contended";
    const { register, ours, theirs } = await here.meet({ witness: orderOf(path) });
    for (const name of OURS) ours.tell(`open ${name} mutex ${path}`);
    for (const name of THEIRS) theirs.tell(`open ${name} mutex ${path}`);
    for (const name of OURS) ours.tell(`laps ${name} ${LAPS} 1`);
    for (const name of THEIRS) theirs.tell(`laps ${name} ${LAPS} 1`);
    await Promise.all([
      ...OURS.map((name) => ours.told(`${name} done`, 1, LOAD_MS)),
      ...THEIRS.map((name) => theirs.told(`${name} done`, 1, LOAD_MS)),
    ]);
    expect(register.faults).toEqual([]);
    expect(register.entered).toHaveLength(8 * LAPS);
    const turns = register.entered.filter((name, at) => at > 0 && name[0] !== register.entered[at - 1]?.[0]).length;
    expect(turns, "ours and theirs had met").toBeGreaterThan(LAPS);
    console.log(`figure: ${register.entered.length} grants, ${turns} of them from one kind to the other`);
  },
  LOAD_MS + 60_000,
);

test("ours and Curator's are granted in the order in which they came", async () => {
  const path = "/ordered";
  const { ours, theirs } = await here.meet();
  const order = [0, 1, 2, 3].flatMap((n) => [
    { crew: ours, name: OURS[n] as string },
    { crew: theirs, name: THEIRS[n] as string },
  ]);
  for (const [at, { crew, name }] of order.entries()) {
    crew.tell(`open ${name} mutex ${path}`);
    crew.tell(`acquire ${name}`);
    await here.placesAt(path, at + 1);
  }
  for (const [at, { crew, name }] of order.entries()) {
    await crew.told(`${name} held`);
    const others = order.slice(at + 1).filter((one) => one.crew.hasTold(`${one.name} held`));
    expect(others, `while ${name} holds`).toEqual([]);
    crew.tell(`release ${name}`);
  }
}, 60_000);

test.each(["ours", "theirs"] as const)(
  "when %s are killed, holding and waiting, the others go on, and nobody is inside twice",
  async (killed) => {
    const path = `/killed-${killed}`;
    const { register, ours, theirs } = await here.meet();
    const [dying, living] = killed === "ours" ? [ours, theirs] : [theirs, ours];
    for (const name of ["dying-1", "dying-2"]) dying.tell(`open ${name} mutex ${path}`);
    for (const name of ["living-1", "living-2"]) living.tell(`open ${name} mutex ${path}`);
    for (const name of ["dying-1", "dying-2"]) dying.tell(`laps ${name} 1000 5`);
    for (const name of ["living-1", "living-2"]) living.tell(`laps ${name} 1000 5`);
    await until(() => new Set(register.entered).size === 4, { within: WITHIN, what: "a turn for everybody" });
    await until(() => [...register.inside].some((name) => name.startsWith("dying")), {
      within: WITHIN,
      what: "a holder to kill",
    });
    await dying.kill();
    const before = register.entered.length;
    await until(() => register.entered.length >= before + 20, { within: WITHIN, what: "the living to go on" });
    expect(register.faults).toEqual([]);
    expect(new Set(register.entered.slice(before))).toEqual(new Set(["living-1", "living-2"]));
    await living.kill();
  },
  60_000,
);

test("Curator's Revoker asks a holder of ours to go, and ours asks Curator's", async () => {
  const path = "/revoked";
  const { ours, theirs } = await here.meet();
  ours.tell(`open us mutex ${path}`);
  theirs.tell(`open them mutex ${path}`);
  ours.tell("revocable us");
  theirs.tell("revocable them");
  ours.tell("acquire us");
  await ours.told("us held");
  const [node] = await here.lineOf(path);
  theirs.tell(`revoke them ${path}/${node?.name}`);
  await theirs.told("them revoked");
  await ours.told("us asked");
  await ours.told("us released");
  theirs.tell("acquire them");
  await theirs.told("them held");
  ours.tell("revoke us");
  await ours.told("us revoked");
  await theirs.told("them asked");
  await theirs.told("them released");
  ours.tell("acquire us");
  await ours.told("us held", 2);
}, 60_000);

test("who gives up leaves no node behind, of either kind", async () => {
  const path = "/given-up";
  const { ours, theirs } = await here.meet();
  ours.tell(`open us mutex ${path}`);
  theirs.tell(`open them mutex ${path}`);
  ours.tell("acquire us");
  await ours.told("us held");
  theirs.tell("try them 200");
  await theirs.told("them busy");
  await here.placesAt(path, 1);
  ours.tell("release us");
  theirs.tell("acquire them");
  await theirs.told("them held");
  ours.tell("try us 200");
  await ours.told("us busy");
  await here.placesAt(path, 1);
  theirs.tell("release them");
  await here.placesAt(path, 0);
}, 60_000);

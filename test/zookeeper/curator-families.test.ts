// Other kinds of ours beside Curator: claims that keep no place, and its read-write lock.

import { expect, test } from "vitest";
import { crews } from "../support/curator/crews.ts";
import type { Crew } from "../support/services/curator.ts";

const here = crews();
const long = process.env.HOLDFAST_LONG === "1";
/** In which all laps are done, however busy the machine is. */
const LOAD_MS = long ? 200_000 : 60_000;
const named = (kind: string, count: number): string[] => Array.from({ length: count }, (_, n) => `${kind}-${n}`);

/** Each does so many laps on the path, all at once, until all are done. */
async function contend(
  path: string,
  laps: number,
  groups: readonly { readonly crew: Crew; readonly recipe: string; readonly names: readonly string[] }[],
): Promise<void> {
  const all = groups.flatMap(({ crew, recipe, names }) => names.map((name) => ({ crew, recipe, name })));
  for (const { crew, recipe, name } of all) crew.tell(`open ${name} ${recipe} ${path}`);
  await Promise.all(all.map(({ crew, name }) => crew.told(`${name} open`)));
  for (const { crew, name } of all) crew.tell(`laps ${name} ${laps} 1`);
  await Promise.all(all.map(({ crew, name }) => crew.told(`${name} done`, 1, LOAD_MS)));
}

test(
  "5 that keep their place, 5 that keep none and 2 of Curator's on one path: never two inside",
  async () => {
    const { register, ours, theirs } = await here.meet();
    const laps = long ? 100 : 15;
    await contend("/mixed", laps, [
      { crew: ours, recipe: "mutex", names: named("fair", 5) },
      { crew: ours, recipe: "unfair", names: named("unfair", 5) },
      { crew: theirs, recipe: "mutex", names: named("theirs", 2) },
    ]);
    expect(register.faults).toEqual([]);
    expect(register.entered).toHaveLength(12 * laps);
    await here.placesAt("/mixed", 0);
  },
  LOAD_MS + 60_000,
);

test(
  "readers and writers of Curator's read-write lock and of ours under load: nobody beside a writer",
  async () => {
    const isReader = (name: string): boolean => name.includes("reads");
    const { register, ours, theirs } = await here.meet({ together: (one, other) => isReader(one) && isReader(other) });
    const laps = long ? 200 : 25;
    await contend("/read-write", laps, [
      { crew: ours, recipe: "read", names: named("our_reads", 3) },
      { crew: ours, recipe: "write", names: named("our_writes", 1) },
      { crew: theirs, recipe: "read", names: named("their_reads", 3) },
      { crew: theirs, recipe: "write", names: named("their_writes", 1) },
    ]);
    expect(register.faults).toEqual([]);
    expect(register.entered).toHaveLength(8 * laps);
  },
  LOAD_MS + 60_000,
);

test("a reader of ours and one of Curator's hold together; writers of both wait for them, and each other, in order", async () => {
  const path = "/order-of-both";
  const { ours, theirs } = await here.meet();
  const all = [
    { crew: ours, name: "our-reader", recipe: "read" },
    { crew: theirs, name: "their-reader", recipe: "read" },
    { crew: theirs, name: "their-writer", recipe: "write" },
    { crew: ours, name: "our-writer", recipe: "write" },
    { crew: theirs, name: "late-reader", recipe: "read" },
    { crew: ours, name: "last-reader", recipe: "read" },
  ] as const;
  for (const [at, { crew, name, recipe }] of all.entries()) {
    crew.tell(`open ${name} ${recipe} ${path}`);
    crew.tell(`acquire ${name}`);
    await here.placesAt(path, at + 1);
  }
  const inTurn = async (holders: readonly number[]): Promise<void> => {
    for (const at of holders) await all[at]?.crew.told(`${all[at].name} held`);
    const later = all.slice((holders.at(-1) ?? 0) + 1).filter(({ crew, name }) => crew.hasTold(`${name} held`));
    expect(later).toEqual([]);
    for (const at of holders) all[at]?.crew.tell(`release ${all[at].name}`);
  };
  await inTurn([0, 1]);
  await inTurn([2]);
  await inTurn([3]);
  await inTurn([4, 5]);
  await here.placesAt(path, 0);
}, 60_000);

test("Curator's LeaderSelector and InterProcessMultiLock stand in the same line as our mutex", async () => {
  const { ours, theirs } = await here.meet();
  ours.tell("open us mutex /leaders");
  theirs.tell("open leader selector /leaders");
  theirs.tell("open both multi /leaders,/others");
  ours.tell("acquire us");
  await ours.told("us held");
  theirs.tell("acquire leader");
  await here.placesAt("/leaders", 2);
  theirs.tell("acquire both");
  await here.placesAt("/leaders", 3);
  expect([theirs.hasTold("leader held"), theirs.hasTold("both held")]).toEqual([false, false]);
  ours.tell("release us");
  await theirs.told("leader held");
  ours.tell("try us 200");
  await ours.told("us busy");
  theirs.tell("release leader");
  await theirs.told("both held");
  ours.tell("try us 200");
  await ours.told("us busy", 2);
  theirs.tell("release both");
  ours.tell("acquire us");
  await ours.told("us held", 2);
}, 60_000);

test("a path where another recipe of Curator's stands is refused to our mutex, which names it and leaves no node", async () => {
  const { ours, theirs } = await here.meet();
  const others = [
    ["read", /a place of Curator's read-write lock/],
    ["latch", /latch-/],
    ["semaphoreMutex", /holds (leases|locks)/],
  ] as const;
  for (const [recipe, why] of others) {
    const path = `/one-recipe-${recipe}`;
    here.leaveTo(path);
    theirs.tell(`open ${recipe} ${recipe} ${path}`);
    theirs.tell(`acquire ${recipe}`);
    await theirs.told(`${recipe} held`);
    const before = (await here.lineOf(path)).length;
    ours.tell(`open beside-${recipe} mutex ${path}`);
    ours.tell(`acquire beside-${recipe}`);
    await expect(ours.told(`beside-${recipe} held`)).rejects.toThrow(why);
    await here.placesAt(path, before);
  }
}, 60_000);

// Other kinds of ours beside Curator: claims that keep no place, and its read-write lock.

import { expect, test } from "vitest";
import { crews } from "../support/curator/crews.ts";
import type { Crew } from "../support/services/curator.ts";

const here = crews();
const long = process.env.HOLDFAST_LONG === "1";
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
  await Promise.all(all.map(({ crew, name }) => crew.told(`${name} done`)));
}

test("5 that keep their place, 5 that keep none and 2 of Curator's on one path: never two inside", async () => {
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
}, 120_000);

test("readers and writers of Curator's read-write lock and of ours: writers alone, readers of both kinds together", async () => {
  const isReader = (name: string): boolean => name.includes("reads");
  const met = new Set<string>();
  const { register, ours, theirs } = await here.meet({
    together(one, other) {
      met.add([one.split("-")[0], other.split("-")[0]].sort().join(" beside "));
      return isReader(one) && isReader(other);
    },
  });
  const laps = long ? 200 : 25;
  await contend("/read-write", laps, [
    { crew: ours, recipe: "read", names: named("our_reads", 3) },
    { crew: ours, recipe: "write", names: named("our_writes", 1) },
    { crew: theirs, recipe: "read", names: named("their_reads", 3) },
    { crew: theirs, recipe: "write", names: named("their_writes", 1) },
  ]);
  expect(register.faults).toEqual([]);
  expect(register.entered).toHaveLength(8 * laps);
  expect(met).toContain("our_reads beside their_reads");
}, 120_000);

test("a path where Curator's read-write lock stands is refused to our mutex, which names it; and left clean", async () => {
  const { ours, theirs } = await here.meet();
  theirs.tell("open them read /one-recipe");
  theirs.tell("acquire them");
  await theirs.told("them held");
  ours.tell("open us mutex /one-recipe");
  ours.tell("acquire us");
  await expect(ours.told("us held")).rejects.toThrow(/read-write lock/);
  await here.placesAt("/one-recipe", 1);
}, 60_000);

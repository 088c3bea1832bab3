// Other kinds of Holdfast claims beside Curator: unfair ones, and its read-write lock.

import { expect, test } from "vitest";
import type { ContenderProcess } from "../../support/curator/contender-process.ts";
import { curatorFixture } from "../../support/curator/curator-fixture.ts";

const fixture = curatorFixture();
const long = process.env.HOLDFAST_LONG === "1";
/** In which all cycles are done, however busy the machine is. */
const LOAD_MS = long ? 200_000 : 60_000;
const contenderNames = (kind: string, count: number): string[] =>
  Array.from({ length: count }, (_, n) => `${kind}-${n}`);

/** Each runs this number of cycles on the path, all at once, until all are done. */
async function contend(
  path: string,
  cycles: number,
  groups: readonly { readonly client: ContenderProcess; readonly recipe: string; readonly names: readonly string[] }[],
): Promise<void> {
  const contenders = groups.flatMap(({ client, recipe, names }) => names.map((name) => ({ client, recipe, name })));
  for (const { client, recipe, name } of contenders) client.send(`open ${name} ${recipe} ${path}`);
  await Promise.all(contenders.map(({ client, name }) => client.waitForReport(`${name} open`)));
  for (const { client, name } of contenders) client.send(`cycles ${name} ${cycles} 1`);
  await Promise.all(contenders.map(({ client, name }) => client.waitForReport(`${name} done`, 1, LOAD_MS)));
}

test(
  "5 fair, 5 unfair and 2 Curator clients on one path: never two holders",
  async () => {
    const { register, holdfast, curator } = await fixture.startContest();
    const cycles = long ? 100 : 15;
    await contend("/mixed", cycles, [
      { client: holdfast, recipe: "mutex", names: contenderNames("fair", 5) },
      { client: holdfast, recipe: "unfair", names: contenderNames("unfair", 5) },
      { client: curator, recipe: "mutex", names: contenderNames("theirs", 2) },
    ]);
    expect(register.faults).toEqual([]);
    expect(register.entries).toHaveLength(12 * cycles);
    await fixture.waitForNodes("/mixed", 0);
  },
  LOAD_MS + 60_000,
);

test(
  "readers and writers of Curator's read-write lock and of Holdfast's under load: none overlaps a writer",
  async () => {
    const isReader = (name: string): boolean => name.includes("reads");
    const { register, holdfast, curator } = await fixture.startContest({
      mayOverlap: (one, other) => isReader(one) && isReader(other),
    });
    const cycles = long ? 200 : 25;
    await contend("/read-write", cycles, [
      { client: holdfast, recipe: "read", names: contenderNames("our_reads", 3) },
      { client: holdfast, recipe: "write", names: contenderNames("our_writes", 1) },
      { client: curator, recipe: "read", names: contenderNames("their_reads", 3) },
      { client: curator, recipe: "write", names: contenderNames("their_writes", 1) },
    ]);
    expect(register.faults).toEqual([]);
    expect(register.entries).toHaveLength(8 * cycles);
  },
  LOAD_MS + 60_000,
);

test("a Holdfast reader and a Curator one hold together; writers of both wait for them, and each other, in order", async () => {
  const path = "/order-of-both";
  const { holdfast, curator } = await fixture.startContest();
  const contenders = [
    { client: holdfast, name: "our-reader", recipe: "read" },
    { client: curator, name: "their-reader", recipe: "read" },
    { client: curator, name: "their-writer", recipe: "write" },
    { client: holdfast, name: "our-writer", recipe: "write" },
    { client: curator, name: "late-reader", recipe: "read" },
    { client: holdfast, name: "last-reader", recipe: "read" },
  ] as const;
  for (const [index, { client, name, recipe }] of contenders.entries()) {
    client.send(`open ${name} ${recipe} ${path}`);
    client.send(`acquire ${name}`);
    await fixture.waitForNodes(path, index + 1);
  }
  const inTurn = async (holders: readonly number[]): Promise<void> => {
    for (const index of holders) await contenders[index]?.client.waitForReport(`${contenders[index].name} held`);
    const earlyHolders = contenders
      .slice((holders.at(-1) ?? 0) + 1)
      .filter(({ client, name }) => client.hasReported(`${name} held`));
    expect(earlyHolders).toEqual([]);
    for (const index of holders) contenders[index]?.client.send(`release ${contenders[index].name}`);
  };
  await inTurn([0, 1]);
  await inTurn([2]);
  await inTurn([3]);
  await inTurn([4, 5]);
  await fixture.waitForNodes(path, 0);
}, 60_000);

test("Curator's LeaderSelector and InterProcessMultiLock share one queue with Holdfast's mutex", async () => {
  const { holdfast, curator } = await fixture.startContest();
  holdfast.send("open us mutex /leaders");
  curator.send("open leader selector /leaders");
  curator.send("open both multi /leaders,/others");
  holdfast.send("acquire us");
  await holdfast.waitForReport("us held");
  curator.send("acquire leader");
  await fixture.waitForNodes("/leaders", 2);
  curator.send("acquire both");
  await fixture.waitForNodes("/leaders", 3);
  expect([curator.hasReported("leader held"), curator.hasReported("both held")]).toEqual([false, false]);
  holdfast.send("release us");
  await curator.waitForReport("leader held");
  holdfast.send("try us 200");
  await holdfast.waitForReport("us busy");
  curator.send("release leader");
  await curator.waitForReport("both held");
  holdfast.send("try us 200");
  await holdfast.waitForReport("us busy", 2);
  curator.send("release both");
  holdfast.send("acquire us");
  await holdfast.waitForReport("us held", 2);
}, 60_000);

test("a path used by another Curator recipe is refused to a Holdfast mutex, which names it and leaves no node", async () => {
  const { holdfast, curator } = await fixture.startContest();
  const otherRecipes = [
    ["read", /a node of Curator's read-write lock/],
    ["latch", /latch-/],
    ["semaphoreMutex", /contains (leases|locks)/],
  ] as const;
  for (const [recipe, reason] of otherRecipes) {
    const path = `/one-recipe-${recipe}`;
    fixture.excludePath(path);
    curator.send(`open ${recipe} ${recipe} ${path}`);
    curator.send(`acquire ${recipe}`);
    await curator.waitForReport(`${recipe} held`);
    const before = (await fixture.listQueue(path)).length;
    holdfast.send(`open beside-${recipe} mutex ${path}`);
    holdfast.send(`acquire beside-${recipe}`);
    await expect(holdfast.waitForReport(`beside-${recipe} held`)).rejects.toThrow(reason);
    await fixture.waitForNodes(path, before);
  }
}, 60_000);

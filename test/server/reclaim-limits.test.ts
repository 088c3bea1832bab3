// After an unclean start clients tell what they had, and whoever tells more than any client may have is not believed for
// the rest: reclaims are bounded as claims are. What the table itself has is looked at, not only what clients are told.

import { expect, test } from "vitest";
import { newId } from "../../src/ids.ts";
import type { ServerLimits } from "../../src/server/limits.ts";
import { limitsFrom } from "../../src/server/limits.ts";
import { leakCheck } from "../support/leak-check.ts";
import type { RawAnswer } from "../support/raw-client.ts";
import { RawClient, rawAddress } from "../support/raw-client.ts";
import { accessFor, known } from "./accounts.ts";
import { claimOf, cleanUp, held, later, running } from "./support.ts";
import type { Player } from "./world.ts";
import { turns, World } from "./world.ts";

leakCheck();
cleanUp();

type Terms = readonly [id: string, keys: readonly unknown[], ttlMs: number];

const shared = (key: string): readonly unknown[] => [key, 1, 1_000_000];
const heldAs = (terms: Terms, token = 1_000): unknown => [terms, ["held", String(token), 1, 30_000]];
const waitingAs = (terms: Terms, arrival = 1): unknown => [terms, ["waiting", arrival]];
const terms = (key: unknown): Terms => [newId(), [key], 30_000];

/** A server that has just lost its memory, and believes what it is told. */
async function forgetful(limits: Partial<ServerLimits>, more: Parameters<typeof running>[0] = {}) {
  const it = await running({ state: "none", limits, ...more });
  expect(it.reclaimMs).toBeGreaterThan(0);
  const open = async (hello: Readonly<Record<string, string>> = {}): Promise<RawClient> => {
    const one = await RawClient.open(rawAddress(it.addresses[0] as string), hello);
    later(() => one.end());
    return one;
  };
  return { server: it, open };
}

async function told(client: RawClient, items: readonly unknown[]): Promise<string[]> {
  const answers = (await client.call("reclaim", items, false)) as readonly RawAnswer[];
  return answers.map(([state]) => state);
}

function counts(states: readonly string[]): Record<string, number> {
  const all: Record<string, number> = {};
  for (const state of states) all[state] = (all[state] ?? 0) + 1;
  return all;
}

test("claimsPerSession: however many frames a session tells in, it has no more than it may have; another has its own", async () => {
  const { server, open } = await forgetful({ claimsPerSession: 100 });
  const [greedy, other] = [await open(), await open()];
  const many = Array.from({ length: 300 }, (_, n) => heldAs(terms(`k${n}`)));
  expect(counts(await told(greedy, many))).toEqual({ held: 100, none: 200 });
  expect(counts(await told(greedy, [waitingAs(terms("w"))]))).toEqual({ none: 1 });
  expect(server.stats().claims).toBe(100);
  expect(counts(await told(other, many.slice(200)))).toEqual({ held: 100 });
  // what it has told of before is no new claim
  expect(counts(await told(greedy, many.slice(0, 100)))).toEqual({ held: 100 });
});

test("claims: in all, however many sessions tell", async () => {
  const { server, open } = await forgetful({ claimsPerSession: 100, claims: 250 });
  for (let session = 0; session < 5; session++) {
    const many = Array.from({ length: 150 }, (_, n) => heldAs(terms(`${session}/${n}`)));
    await told(await open(), many);
  }
  expect(server.stats().claims).toBe(250);
});

test("waiters and waitersPerKey: those who wait do not keep the holders of a key from coming back", async () => {
  const { server, open } = await forgetful({ waitersPerKey: 50, waiters: 80 });
  const crowd = await open();
  expect(
    counts(
      await told(
        crowd,
        Array.from({ length: 90 }, (_, n) => waitingAs(terms("k"), n + 1)),
      ),
    ),
  ).toEqual({
    waiting: 50,
    none: 40,
  });
  // the holder comes last
  const holder = await open();
  expect(await told(holder, [heldAs(terms("k"), 7_000)])).toEqual(["held"]);
  const readers = Array.from({ length: 120 }, (_, n) => heldAs(terms(shared("r")), 2_000 + n));
  expect(counts(await told(holder, readers))).toEqual({ held: 100, none: 20 });
  expect(
    counts(
      await told(
        crowd,
        Array.from({ length: 50 }, (_, n) => waitingAs(terms(`other${n}`))),
      ),
    ),
  ).toEqual({
    waiting: 30,
    none: 20,
  });
  expect(server.stats().claims).toBe(50 + 1 + 100 + 30);
});

test("claimsPerAccount and rights: of all sessions of an account, only what its rules allow, and what it loses counts no more", async () => {
  const [ana, ben] = [known("ana", "team-a/"), known("ben", "")];
  const { server, open } = await forgetful({ claimsPerAccount: 100 }, { access: accessFor(ana, ben) });
  const [one, two] = [await open({ credential: ana.credential }), await open({ credential: ana.credential })];
  const many = (client: string): unknown[] =>
    Array.from({ length: 80 }, (_, n) => heldAs(terms(`team-a/${client}/${n}`)));
  expect(counts(await told(one, many("one")))).toEqual({ held: 80 });
  expect(counts(await told(two, many("two")))).toEqual({ held: 20, none: 60 });
  expect(await told(two, [heldAs(terms("team-b/x"))])).toEqual(["none"]);
  expect(server.stats().claims).toBe(100);
  const other = await open({ credential: ben.credential });
  expect(await told(other, [heldAs(terms("team-b/x"))])).toEqual(["held"]);
  // ben shows the higher token: ana's hold goes, and she has room for another
  expect(await told(other, [heldAs(terms("team-a/one/0"), 9_000)])).toEqual(["held"]);
  expect(counts(await told(two, many("three")))).toEqual({ held: 1, none: 79 });
});

test("what was told counts when the server has opened: new claims find the room that is left", async () => {
  const world = new World({ state: "none", limits: { claimsPerSession: 10, claims: 15 } });
  await world.start();
  const session = newId();
  const line = (...frames: unknown[]): string => JSON.stringify([world.hub?.start, ...frames]);
  const replies: string[] = [];
  const stream = { write: (text: string) => void replies.push(text), close: () => undefined };
  const link = world.hub?.accept(stream, { local: true, address: "" });
  link?.lines([JSON.stringify({ hello: { protocol: 1, session } })]);
  const items = Array.from({ length: 12 }, (_, n) => heldAs(terms(`k${n}`)));
  link?.lines([line(["reclaim", 1, items, true])]);
  expect(world.kept?.keeper.table.entries.size).toBe(10);
  await world.clock.pass(25_000);
  link?.lines([line(["renew", 2, items.map((item) => (item as [Terms])[0][0])])]);
  await world.clock.pass(36_000);
  // what it was not believed is not there; what it was, was released by nobody and has run out
  expect(world.kept?.keeper.reclaiming).toBe(false);
  expect(world.kept?.keeper.table.entries.size).toBe(0);
  link?.lines([line(...items.map((_, n) => ["claim", 10 + n, ...terms(`n${n}`)]))]);
  expect(world.kept?.keeper.table.entries.size).toBe(10);
  expect(replies.join("")).toContain("at most 10 claims of one client");
});

async function holding(player: Player, count: number, prefix: string) {
  const claims = Array.from({ length: count }, (_, n) => claimOf(`${prefix}${n}`));
  for (const claim of claims) held(await player.driver.claim(claim));
  return claims;
}

test("limits x recovery: clients that had all that they may have come back with all of it, in whichever order", async () => {
  const world = new World({ limits: { claimsPerSession: 20, claims: 40, waitersPerKey: 3, waiters: 5 } });
  await world.start();
  const [one, two] = [await world.client(), await world.client()];
  const mine = await holding(one, 18, "a");
  const theirs = await holding(two, 18, "b");
  const [first, second, third, fourth] = [claimOf("a0"), claimOf("a0"), claimOf("b0"), claimOf("b0")];
  for (const claim of [first, second]) expect(await two.driver.claim(claim)).toMatchObject({ state: "waiting" });
  for (const claim of [third, fourth]) expect(await one.driver.claim(claim)).toMatchObject({ state: "waiting" });
  world.crash();
  await world.start();
  await world.clock.pass(3_000);
  expect(world.kept?.keeper.reclaiming).toBe(false);
  expect(world.kept?.keeper.table.entries.size).toBe(40);
  expect((await one.driver.renew([...mine, third, fourth])).map((answer) => answer?.state)).toEqual([
    ...mine.map(() => "held"),
    "waiting",
    "waiting",
  ]);
  expect((await two.driver.renew(theirs)).every((answer) => answer?.state === "held")).toBe(true);
  // full as before, and a release makes room as before
  await expect(two.driver.claim(claimOf("more"))).rejects.toThrow("at most 40 claims on this server");
  await one.driver.release(mine.slice(1, 2));
  held(await one.driver.claim(claimOf("more")));
  await turns();
});

test("limits x recovery: what was held under wider limits comes back, also over two crashes; after a clean stop the new ones count", async () => {
  const world = new World({ limits: { claimsPerSession: 20 } });
  await world.start();
  const one = await world.client();
  const mine = await holding(one, 18, "a");
  for (const limits of [
    { claimsPerSession: 5, claims: 9 },
    { claimsPerSession: 4, claims: 8 },
  ]) {
    world.crash();
    world.limits = limitsFrom(limits);
    await world.start();
    await world.clock.pass(3_000);
    expect(world.kept?.keeper.table.entries.size).toBe(18);
    expect((await one.driver.renew(mine)).every((answer) => answer?.state === "held")).toBe(true);
    await expect(one.driver.claim(claimOf("more"))).rejects.toThrow("at most");
  }
  await one.driver.release(mine.slice(3));
  await world.stop();
  await world.start();
  await world.clock.pass(3_000);
  expect(world.disk?.state).toContain('"claimsPerSession":4');
  held(await one.driver.claim(claimOf("more")));
  await expect(one.driver.claim(claimOf("one more"))).rejects.toThrow("at most 4 claims of one client");
});

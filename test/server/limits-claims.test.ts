// Each bound on claims, hit once. What is full refuses what is new; renewals and releases go on, and room comes back.

import { expect, test } from "vitest";
import { FatalDriverError } from "../../src/errors.ts";
import type { ServerLimits } from "../../src/server/limits.ts";
import { leakCheck } from "../support/leak-check.ts";
import { accessFor, known } from "./accounts.ts";
import type { Opened } from "./support.ts";
import { claimOf, cleanUp, client, held, running } from "./support.ts";
import { World } from "./world.ts";

leakCheck();
cleanUp();

const DAY = 86_400_000;
const hold = (key: string) => ({ key, permits: 1, limit: 1_000 });

async function served(limits: Partial<ServerLimits>, clients: number): Promise<Opened[]> {
  const it = await running({ limits });
  return Promise.all(Array.from({ length: clients }, () => client(it.addresses[0] as string)));
}

/** Full: nothing new comes in, all else goes on; a release makes room. */
async function isFull({ driver }: Opened, mine: ReturnType<typeof claimOf>[], what: string): Promise<void> {
  const more = claimOf("new");
  await expect(driver.claim(more)).rejects.toThrow(what);
  await expect(driver.claim(more)).rejects.toBeInstanceOf(FatalDriverError);
  // a claim call that is repeated is no new claim
  expect(await driver.claim(mine[0] as never)).toMatchObject({ state: "held" });
  expect((await driver.renew(mine)).every((answer) => answer?.state === "held")).toBe(true);
  expect(await driver.release(mine.slice(0, 1))).toEqual([true]);
  held(await driver.claim(more));
  expect(await driver.release([more, ...mine.slice(1)])).toEqual(mine.map(() => true));
}

async function claims({ driver }: Opened, count: number, from = 0): Promise<ReturnType<typeof claimOf>[]> {
  const all = Array.from({ length: count }, (_, n) => claimOf(`k${from + n}`));
  for (const claim of all) held(await driver.claim(claim));
  return all;
}

test("claims: of all clients together", async () => {
  const [first, second] = (await served({ claims: 5 }, 2)) as [Opened, Opened];
  const mine = await claims(first, 3);
  await claims(second, 2, 10);
  await isFull(first, mine, "at most 5 claims on this server");
});

test("claims and claimsPerAccount: one of several keys is counted once for each of them, also when it comes back", async () => {
  const ana = known("ana");
  const world = new World({ limits: { claims: 10, claimsPerAccount: 8 }, access: accessFor(ana, known("ben")) });
  await world.start();
  const one = await world.client(true, ana.credential);
  const three = claimOf(["a", "b", "c"]);
  held(await one.driver.claim(three));
  await expect(one.driver.claim(claimOf(["d", "e", "f", "g", "h", "i"]))).rejects.toThrow(
    "at most 8 claims of one account, each of its 6 keys counted",
  );
  held(await one.driver.claim(claimOf(["d", "e", "f", "g", "h"])));
  await expect(one.driver.claim(claimOf("j"))).rejects.toThrow("at most 8 claims of one account");
  world.crash();
  await world.start();
  await world.clock.pass(3_000);
  expect(world.kept?.keeper.table.entries.size).toBe(2);
  await expect(one.driver.claim(claimOf("j"))).rejects.toThrow("at most 8 claims of one account");
  expect(await one.driver.release([three])).toEqual([true]);
  held(await one.driver.claim(claimOf(["a", "b", "c"])));
});

test("claims: also of those that never were, however many a client gives back", async () => {
  const world = new World({ limits: { claims: 100 } });
  await world.start();
  const { driver } = await world.client();
  for (let turn = 0; turn < 3; turn++) {
    const never = Array.from({ length: 90 }, (_, n) => claimOf(`never${n}`, { ttlMs: DAY }));
    await driver.release(never, new Set(never.map(({ id }) => id)));
    // a claim call that comes late still takes no place
    expect(await driver.claim(never.at(-1) as never)).toMatchObject({ state: "none" });
  }
  expect(world.kept?.keeper.table.endings.size).toBe(100);
});

test("claimsPerSession: of one client; others have their own room", async () => {
  const [first, second] = (await served({ claimsPerSession: 3 }, 2)) as [Opened, Opened];
  const mine = await claims(first, 3);
  await claims(second, 3, 10);
  await isFull(first, mine, "at most 3 claims of one client");
});

test("claimsPerAccount: of all clients of an account, detached ones too; others have their own room", async () => {
  const [ana, ben] = [known("ana"), known("ben")];
  const it = await running({ limits: { claimsPerAccount: 4 }, access: accessFor(ana, ben) });
  const address = it.addresses[0] as string;
  const [first, second] = [
    await client(address, { credential: ana.credential }),
    await client(address, { credential: ana.credential }),
  ];
  const other = await client(address, { credential: ben.credential });
  const mine = await claims(first, 2);
  const [detached, plain] = await claims(second, 2, 10);
  expect(await second.driver.detach?.([detached as never])).toEqual([true]);
  await claims(other, 4, 20);
  await isFull(first, mine, "at most 4 claims of one account");
  // what has gone, whichever way, is counted no more
  await second.driver.release([detached as never, plain as never]);
  await claims(first, 4, 30);
});

test("waitersPerKey: places in one line; other lines have their own", async () => {
  const [first, second] = (await served({ waitersPerKey: 3 }, 2)) as [Opened, Opened];
  const line = [claimOf("k"), claimOf("k"), claimOf("k")];
  for (const claim of line) await first.driver.claim(claim);
  await expect(second.driver.claim(claimOf("k"))).rejects.toThrow("at most 3 places in the line of a key");
  await expect(second.driver.claim(claimOf(["j", "k"]))).rejects.toThrow("at most 3 places");
  expect(await second.driver.claim(claimOf("k", { wait: false }))).toEqual({ state: "none" });
  held(await second.driver.claim(claimOf("j")));
  expect(await first.driver.release(line.slice(0, 1))).toEqual([true]);
  expect(await second.driver.claim(claimOf("k"))).toMatchObject({ state: "waiting" });
  expect((await first.driver.renew(line.slice(1))).map((answer) => answer?.state)).toEqual(["held", "waiting"]);
});

test("waitersPerKey: its holders among them, also those that were granted without waiting", async () => {
  const [first, second] = (await served({ waitersPerKey: 3 }, 2)) as [Opened, Opened];
  const once = () => claimOf([hold("k")], { wait: false });
  for (let at = 0; at < 3; at++) held(await first.driver.claim(once()));
  await expect(second.driver.claim(once())).rejects.toThrow("at most 3 places in the line of a key");
  // what is not free is no matter of room: of a line so full as well
  expect(await second.driver.claim(claimOf("k", { wait: false }))).toEqual({ state: "none" });
});

test("waiters: those who wait in all; those who hold are not counted", async () => {
  const [first, second] = (await served({ waiters: 2 }, 2)) as [Opened, Opened];
  await claims(first, 5);
  const waiting = [claimOf("k0"), claimOf("k1")];
  for (const claim of waiting) expect(await second.driver.claim(claim)).toMatchObject({ state: "waiting" });
  await expect(second.driver.claim(claimOf("k2"))).rejects.toThrow("at most 2 waiting claims");
  expect(await second.driver.claim(claimOf("k2", { wait: false }))).toEqual({ state: "none" });
  expect((await second.driver.renew(waiting)).map((answer) => answer?.state)).toEqual(["waiting", "waiting"]);
  await second.driver.release(waiting.slice(1));
  expect(await second.driver.claim(claimOf("k2"))).toMatchObject({ state: "waiting" });
});

test("the counts of held, of accounts and of sessions come back to nothing however claims end", async () => {
  const ana = known("ana", "", ["acquire", "force"]);
  const limits = { waiters: 2, claimsPerAccount: 6, claimsPerSession: 6 };
  const it = await running({ limits, access: accessFor(ana) });
  const address = it.addresses[0] as string;
  for (let round = 0; round < 4; round++) {
    const [one, two] = [
      await client(address, { credential: ana.credential }),
      await client(address, { credential: ana.credential }),
    ];
    const [revoked, removed, expired, left] = await claims(one, 4);
    const [waits, drops] = [claimOf("k3"), claimOf("k3")];
    await two.driver.claim(waits);
    await two.driver.claim(drops);
    const token = async (claim: unknown) => held((await one.driver.renew([claim as never]))[0]).token;
    await one.driver.revoke?.([{ key: "k0", token: await token(revoked), now: false }]);
    await one.driver.revoke?.([{ key: "k1", token: await token(removed), now: true }]);
    await one.driver.release([revoked as never, left as never, expired as never]);
    expect(await two.pushes.granted(waits)).toMatchObject({ state: "held" });
    await two.driver.close();
    await one.driver.close();
    await expect.poll(() => it.stats().claims).toBe(0);
  }
  // whoever was counted as a holder for ever would make room for more who wait
  const { driver } = await client(address, { credential: ana.credential });
  held(await driver.claim(claimOf("k")));
  for (let at = 0; at < 2; at++) await driver.claim(claimOf("k"));
  await expect(driver.claim(claimOf("k"))).rejects.toThrow("at most 2 waiting claims");
});

test("ttlMs: a longer lease is refused, in a claim, a renewal and a reclaim", async () => {
  const [{ driver }] = (await served({ ttlMs: DAY }, 1)) as [Opened];
  held(await driver.claim(claimOf("k", { ttlMs: DAY })));
  await expect(driver.claim(claimOf("j", { ttlMs: DAY + 1 }))).rejects.toThrow("no lease over 24 h");
  await expect(driver.renew([claimOf("j", { ttlMs: DAY + 1 })])).rejects.toThrow("no lease over");
});

test("holds: a claim of more keys than fit ends the connection that sent it", async () => {
  const [first, second] = (await served({}, 2)) as [Opened, Opened];
  const keys = Array.from({ length: 129 }, (_, n) => hold(`k${String(n).padStart(3, "0")}`));
  await expect(first.driver.claim(claimOf(keys))).rejects.toThrow("connection");
  held(await second.driver.claim(claimOf(keys.slice(1))));
});

test("floorMs: a floor more than a day ahead of the clock is refused", async () => {
  const [{ driver }] = (await served({}, 1)) as [Opened];
  const ahead = (ms: number): bigint => BigInt(Date.now() + ms) * 1_000n;
  held(await driver.claim(claimOf("k", { floor: ahead(DAY - 60_000) })));
  await expect(driver.claim(claimOf("j", { floor: ahead(DAY + 60_000) }))).rejects.toThrow("more than a day ahead");
});

test("labelBytes: a longer label is cut between two characters, and cannot move a cursor; so is that of a hello", async () => {
  const it = await running();
  const long = `\u001b[2J${"é".repeat(500)}`;
  const { driver } = await client(it.addresses[0] as string, { label: `${long}!` });
  const [own, common] = [claimOf("own", { label: long }), claimOf("common", { label: `${long}!` })];
  for (const claim of [own, common]) held(await driver.claim(claim));
  const labels = (await driver.list({ prefix: "" }, 10)).map(({ label }) => label);
  expect(labels).toEqual([` [2J${"é".repeat(126)}`, ` [2J${"é".repeat(126)}`]);
  expect(Buffer.byteLength(labels[0] as string)).toBe(256);
});

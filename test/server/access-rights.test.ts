// What a credential may do, and that it sees and touches nothing else.

import { expect, test } from "vitest";
import { FatalDriverError } from "../../src/errors.ts";
import { newId, tagOf } from "../../src/ids.ts";
import type { Right } from "../../src/server/access.ts";
import { createAccess } from "../../src/server/access.ts";
import { leakCheck } from "../support/leak-check.ts";
import { RawClient, rawAddress } from "../support/raw-client.ts";
import type { Known } from "./accounts.ts";
import { accessFor, known } from "./accounts.ts";
import type { Opened } from "./support.ts";
import { claimOf, cleanUp, client, held, later, running } from "./support.ts";
import { World } from "./world.ts";

leakCheck();
cleanUp();

const ana = known("ana", "a/");
const ben = known("ben", "b/");
const root = known("root");

/** A server for these accounts, and a client of each. */
async function served(...all: readonly Known[]): Promise<{
  readonly clients: readonly Opened[];
  readonly it: Awaited<ReturnType<typeof running>>;
  readonly address: string;
}> {
  const it = await running({ access: accessFor(...all), listen: "tcp://127.0.0.1:0" });
  const address = it.addresses[0] as string;
  const clients: Opened[] = [];
  for (const { credential } of all) clients.push(await client(address, { credential }));
  return { clients, it, address };
}

async function raw(address: string, { credential }: Known): Promise<RawClient> {
  const it = await RawClient.open(rawAddress(address), { credential });
  later(() => it.end());
  return it;
}

test("a claim is refused unless acquire is allowed on every one of its keys", async () => {
  const { clients } = await served(ana);
  const [{ driver }] = clients as readonly [Opened];
  held(await driver.claim(claimOf("a/1")));
  for (const keys of [["b/1"], ["a"], ["a/2", "b/1"], ["A/1"]]) {
    await expect(driver.claim(claimOf(keys))).rejects.toThrow("may not acquire");
  }
  await expect(driver.claim(claimOf("b/1"))).rejects.toBeInstanceOf(FatalDriverError);
});

test("a prefix is met letter by letter: team-a/ is neither team-ab/ nor team-a, and a rule for one key is for that key", async () => {
  const team = known("team", "team-a/");
  const one = known("one", "deploy", ["acquire"], { whole: true });
  const { clients } = await served(team, one);
  const [first, second] = clients as readonly [Opened, Opened];
  held(await first.driver.claim(claimOf("team-a/x")));
  for (const key of ["team-ab", "team-ab/x", "team-a", "team-", "xteam-a/x"]) {
    await expect(first.driver.claim(claimOf(key))).rejects.toThrow("may not acquire");
  }
  held(await second.driver.claim(claimOf("deploy")));
  for (const key of ["deploy2", "deploy/x", "deplo"]) {
    await expect(second.driver.claim(claimOf(key))).rejects.toThrow("may not acquire");
  }
});

test("what no rule allows is refused: each right alone gives nothing of the others", async () => {
  const rights: readonly Right[] = ["acquire", "inspect", "force", "admin"];
  const all = rights.map((right) => known(right, "k/", [right]));
  const { clients, it } = await served(...all, root);
  const holder = clients.at(-1) as Opened;
  const { token } = held(await holder.driver.claim(claimOf("k/1", { label: "root's" })));
  const [acquire, inspect, force, admin] = clients as readonly [Opened, Opened, Opened, Opened];
  held(await acquire.driver.claim(claimOf("k/2")));
  for (const { driver } of [inspect, force, admin]) {
    await expect(driver.claim(claimOf("k/2"))).rejects.toThrow("may not acquire");
  }
  expect((await inspect.driver.list({ prefix: "" }, 10)).map(({ holds }) => holds[0].key)).toEqual(["k/1", "k/2"]);
  for (const { driver } of [acquire, force, admin]) expect(await driver.list({ prefix: "" }, 10)).toEqual([]);
  const target = { key: "k/1", token, now: false };
  for (const { driver } of [acquire, inspect, admin]) {
    await expect(driver.revoke?.([target])).rejects.toThrow("may not revoke");
    // whether there is anything to revoke makes no difference
    await expect(driver.revoke?.([{ ...target, key: "k/nothing" }])).rejects.toThrow("may not revoke");
  }
  expect(await force.driver.revoke?.([target])).toEqual([true]);
  expect(it.stats().claims).toBe(2);
});

test("to another account a claim is as if it did not exist, whoever knows its id", async () => {
  const other = known("other");
  const { clients, address } = await served(root, other);
  const [owner, thief] = clients as readonly [Opened, Opened];
  const claim = claimOf("k");
  const waiting = claimOf("k");
  const { token } = held(await owner.driver.claim(claim));
  await owner.driver.claim(waiting);
  const id = claim.id;
  expect(await thief.driver.renew([claim])).toEqual([{ state: "none" }]);
  expect(await thief.driver.release([claim, waiting])).toEqual([false, false]);
  expect(await thief.driver.detach?.([claim])).toEqual([false]);
  expect(await thief.driver.claim(claim)).toEqual({ state: "none" });
  const line = await raw(address, other);
  const was = [
    [
      [id, ["k"], 30_000],
      ["held", String(token), 1, 30_000],
    ],
  ];
  expect(await line.call("reclaim", was, true)).toEqual([["none"]]);
  // with one of its own in between each answer stands in its place
  const own = newId();
  await line.claim(own, "mine");
  expect(await line.call("renew", [id, own, id])).toEqual([["none"], expect.arrayContaining(["held"]), ["none"]]);
  expect(await line.call("release", [id, own])).toEqual([0, 1]);
  expect(await owner.driver.renew([claim, waiting])).toMatchObject([{ state: "held", token }, { state: "waiting" }]);
});

test("while the server asks what was held, what another holds answers as what nobody has told of", async () => {
  const [owner, other] = [known("owner"), known("other")];
  // nothing is kept: every start asks
  const it = await running({ access: accessFor(owner, other), state: "none" });
  const address = it.addresses[0] as string;
  expect(it.reclaimMs).toBeGreaterThan(0);
  const holder = await raw(address, owner);
  const [id, unknown] = [newId(), newId()];
  const was = [
    [
      [id, ["k"], 30_000],
      ["held", "1000", 1, 30_000],
    ],
  ];
  expect(await holder.call("reclaim", was, true)).toEqual([expect.arrayContaining(["held"])]);
  const line = await raw(address, other);
  await line.call("reclaim", [], true);
  const answers = (call: (of: string) => Promise<unknown>): Promise<unknown[]> =>
    Promise.all([id, unknown].map((of) => call(of).catch((error: Error) => error.message)));
  for (const verb of ["renew", "release", "detach"]) {
    const [known_, unknown_] = await answers((of) => line.call(verb, [of]));
    expect(known_, verb).toEqual(unknown_);
  }
  expect((await answers((of) => line.call("renew", [of])))[0]).toEqual([null]);
  // its holder has it all the same
  expect(await holder.call("renew", [id])).toEqual([expect.arrayContaining(["held", "1000"])]);
});

test("another credential of the same account may go on with what it placed, and a detached claim stays the account's", async () => {
  const { clients, address } = await served(ana, root);
  const [first, other] = clients as readonly [Opened, Opened];
  const claim = claimOf("a/1");
  const { token } = held(await first.driver.claim(claim));
  expect(await first.driver.detach?.([claim])).toEqual([true]);
  expect(await other.driver.renew([claim])).toEqual([{ state: "none" }]);
  const second = await client(address, { credential: ana.credential });
  expect(await second.driver.renew([claim])).toMatchObject([{ state: "held", token }]);
  expect(await other.driver.release([claim])).toEqual([false]);
  expect(await second.driver.release([claim])).toEqual([true]);
});

test("who may no longer acquire a key cannot renew what it holds there, but may give it back", async () => {
  const access = accessFor(root);
  const it = await running({ access });
  const { driver } = await client(it.addresses[0] as string, { credential: root.credential });
  const [kept, lost] = [claimOf("a/1"), claimOf("b/1")];
  held(await driver.claim(kept));
  held(await driver.claim(lost));
  access.replace([{ ...root.account, rules: ana.account.rules }]);
  expect(await driver.renew([lost, kept])).toMatchObject([{ state: "none" }, { state: "held" }]);
  // nor by naming other keys with its id
  expect(await driver.claim({ ...lost, holds: claimOf("a/2").holds })).toEqual({ state: "none" });
  expect(it.stats().claims).toBe(2);
  expect(await driver.release([lost, kept])).toEqual([true, true]);
});

test("a list shows only what may be inspected, and that is left out before the page is cut", async () => {
  const { clients, address } = await served(ana, root);
  const [mine, all] = clients as readonly [Opened, Opened];
  const line = await raw(address, root);
  const frames = Array.from({ length: 3_000 }, (_, n) => `["claim",${n + 9_000},"${newId()}",["0/${n}"],30000]`);
  line.say(...frames);
  await line.call("ping");
  const both = claimOf(["a/1", "z/secret"], { label: "both" });
  await all.driver.claim(both);
  await all.driver.claim(claimOf("a/2"));
  expect((await all.driver.list({ prefix: "" }, 5_000)).length).toBe(3_002);
  const seen = await mine.driver.list({ prefix: "" }, 2);
  // of a claim that holds other keys, too, only those that may be seen
  expect(seen.map(({ holds }) => holds.map(({ key }) => key))).toEqual([["a/1"], ["a/2"]]);
  expect(seen[0]?.tag).toBe(tagOf(both.id));
  expect(await mine.driver.list({ prefix: "z/" }, 10)).toEqual([]);
  expect(await mine.driver.list({ prefix: "" }, 1, seen[0]?.tag)).toMatchObject([{ tag: seen[1]?.tag }]);
});

test("a revocation needs a token that the holder has, any of its run, and is told with its reason", async () => {
  const { clients, it } = await served(root, known("ops", "", ["force", "inspect"]));
  const [holder, ops] = clients as readonly [Opened, Opened];
  const claim = claimOf("k", { tokens: 8 });
  const { token } = held(await holder.driver.claim(claim));
  const targets = (token: bigint) => [{ key: "k", token, now: false, reason: "hung\u0007 since\nnoon" }];
  expect(await ops.driver.revoke?.(targets(token - 1n))).toEqual([false]);
  expect(await ops.driver.revoke?.(targets(token + 8n))).toEqual([false]);
  expect(it.logged.filter((line) => line.includes("revoked"))).toEqual([]);
  expect(await ops.driver.revoke?.(targets(token + 7n))).toEqual([true]);
  const [told] = it.logged.filter((line) => line.includes("revoked"));
  expect(told).toContain('"account":"ops"');
  expect(told).toContain("hung  since noon");
  expect(await holder.driver.renew([claim])).toEqual([{ state: "none", reason: "revoked" }]);
});

test("accounts that were given credentials later do not shut out what was placed before there were any", async () => {
  const first = await running();
  const before = claimOf("a/1");
  const early = await client(first.addresses[0] as string);
  const { token } = held(await early.driver.claim(before));
  expect(await early.driver.detach?.([before])).toEqual([true]);
  await first.close();
  const it = await running({ in: first.dir, access: createAccess([ana.account, ben.account]) });
  const [mine, other] = [
    await client(it.addresses[0] as string, { credential: ana.credential }),
    await client(it.addresses[0] as string, { credential: ben.credential }),
  ];
  // ben knows the id, but may not acquire the key
  expect(await other.driver.renew([before])).toEqual([{ state: "none" }]);
  expect(await mine.driver.renew([before])).toMatchObject([{ state: "held", token }]);
});

test.each(["is stopped", "dies"])("whose a claim is outlives a server that %s", async (how) => {
  const other = known("other");
  const world = new World({ access: accessFor(root, other) });
  await world.start();
  const owner = await world.client(true, root.credential);
  const [detached, session] = [claimOf("d", { ttlMs: 600_000 }), claimOf("s")];
  held(await owner.driver.claim(detached));
  held(await owner.driver.claim(session));
  expect(await owner.driver.detach?.([detached])).toEqual([true]);
  if (how === "dies") world.crash();
  else await world.stop();
  await world.start();
  await world.clock.pass(5_000);
  const thief = await world.client(true, other.credential);
  expect(await thief.driver.renew([detached, session])).toEqual([{ state: "none" }, { state: "none" }]);
  expect(await thief.driver.release([detached, session])).toEqual([false, false]);
  expect(await owner.driver.renew([detached, session])).toMatchObject([{ state: "held" }, { state: "held" }]);
});

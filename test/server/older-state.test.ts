// A state that is older than what clients have seen: an older copy of the folder was put back, or the folder was emptied.

import { cpSync, rmSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { newId } from "../../src/ids.ts";
import type { Claim } from "../../src/spi/driver.ts";
import { leakCheck } from "../support/leak-check.ts";
import { until } from "../support/wait-for.ts";
import { claimOf, cleanUp, client, folder, held, running } from "./support.ts";
import type { FakeDisk, Player } from "./world.ts";
import { World } from "./world.ts";

leakCheck();
cleanUp();

/** A client that says what it likes. */
function speaker({ hub }: World, session: string): (frame: string) => unknown[][] {
  if (hub === null) throw new Error("the world has started");
  const got: string[] = [];
  const link = hub.accept({ write: (text) => got.push(text), close: () => undefined }, { local: true, address: "" });
  link.lines([JSON.stringify({ hello: { protocol: 1, session } })]);
  return (frame) => {
    got.length = 0;
    link.lines([`["${hub.start}",${frame}]`]);
    return got.flatMap((text) => (JSON.parse(text) as unknown[][]).slice(1));
  };
}

const stands = async (player: Player, claim: Claim) => (await player.driver.renew([claim]))[0];

/** What the disk keeps, to be put back later. */
function copied(disk: FakeDisk): () => void {
  const { state, journal, sessions, fresh } = disk;
  return () => Object.assign(disk, { state, journal, sessions, fresh });
}

for (const local of [true, false]) {
  const over = local ? "a Unix socket" : "TCP";

  test(`over ${over}: an older copy of a clean state grants nothing over a holder that comes back`, async () => {
    const world = new World({ remote: !local });
    await world.start();
    await world.stop();
    const putBack = copied(world.disk as FakeDisk);
    await world.start();
    const holder = await world.client(local);
    const idle = await world.client(local);
    const [a, b] = [claimOf("k"), claimOf("other")];
    const { token } = held(await holder.driver.claim(a));
    await idle.driver.claim(b);
    await idle.driver.release([b]);
    holder.unreachable = true;
    world.crash();
    putBack();
    await world.start();
    expect(world.kept?.keeper.reclaiming).toBe(false);
    // one that holds nothing has seen a later start
    await world.clock.pass(2_500);
    expect(world.kept?.keeper.recovery.reason).toBe("outdated");
    expect(world.logged.join()).toMatch(/a client has seen a later state than this one.*for up to \d+ s/);
    const newcomer = await world.client(local);
    const wants = claimOf("k");
    expect(await newcomer.driver.claim(wants)).toMatchObject({ state: "waiting" });
    holder.unreachable = false;
    await world.clock.pass(2_500);
    expect(await stands(holder, a)).toMatchObject({ state: "held", token });
    expect(await stands(newcomer, wants)).toMatchObject({ state: "waiting" });
    // it lasts as long as leases from before the start can
    for (const ms of [20_000, 20_000, 10_000]) {
      await world.clock.pass(ms);
      await holder.driver.renew([a]);
    }
    expect(world.kept?.keeper.reclaiming).toBe(true);
    await world.clock.pass(6_000);
    expect(world.kept?.keeper.reclaiming).toBe(false);
    expect(await stands(holder, a)).toMatchObject({ state: "held", token });
  });

  test(`over ${over}: in an emptied folder a claim of an earlier life ends the others that cannot stand beside it, and they are told at once`, async () => {
    const world = new World({ remote: !local });
    // the next server's clock is behind, so that its tokens are lower
    world.serverAheadMs = 100_000;
    await world.start();
    const holder = await world.client(local);
    const long = claimOf("long", { ttlMs: 600_000 });
    const a = claimOf("k");
    const { token } = held(await holder.driver.claim(a));
    held(await holder.driver.claim(long));
    holder.unreachable = true;
    world.crash();
    world.serverAheadMs = 0;
    Object.assign(world.disk as FakeDisk, { state: null, journal: "", sessions: null, fresh: true });
    await world.start();
    const newer = await world.client(local);
    const b = claimOf("k");
    held(await newer.driver.claim(b));
    holder.unreachable = false;
    await world.clock.pass(2_500);
    expect(newer.pushes).toContainEqual({ id: b.id, answer: { state: "none", reason: "expired" } });
    expect(await stands(holder, a)).toMatchObject({ state: "held", token });
    expect(await stands(holder, long)).toMatchObject({ state: "held" });
    expect(world.kept?.keeper.recovery.reason).toBe("outdated");
    expect(await newer.driver.claim(claimOf("free", { wait: false }))).toMatchObject({ state: "none" });
    // a crash meanwhile does not shorten it
    world.crash();
    await world.start();
    expect(world.kept?.keeper.reclaimMs()).toBe(60_000);
    // nor do those that this state knows end it by coming back
    await world.clock.pass(5_000);
    expect(world.kept?.keeper.reclaiming).toBe(true);
  });
}

test("a crash in a recovery that a client has begun makes nobody forget those who have not come back yet", async () => {
  const world = new World();
  await world.start();
  await world.stop();
  const putBack = copied(world.disk as FakeDisk);
  await world.start();
  const [holder, other] = [await world.client(), await world.client()];
  const [a, b] = [claimOf("k"), claimOf("other")];
  const { token } = held(await holder.driver.claim(a));
  await other.driver.claim(b);
  holder.unreachable = true;
  world.crash();
  putBack();
  await world.start();
  await world.clock.pass(2_500);
  expect(world.kept?.keeper.recovery.reason).toBe("outdated");
  // the list of this start names the other one only, and it comes back
  world.crash();
  await world.start();
  await world.clock.pass(2_500);
  expect(await stands(other, b)).toMatchObject({ state: "held" });
  expect(world.kept?.keeper.reclaiming).toBe(true);
  holder.unreachable = false;
  await world.clock.pass(2_500);
  expect(await stands(holder, a)).toMatchObject({ state: "held", token });
});

test("a client that says nothing of what it has seen shows it by its token", async () => {
  const world = new World();
  await world.start();
  const bound = BigInt(JSON.parse((world.disk?.state ?? "").slice(17)).bound);
  await world.stop();
  await world.start();
  const say = speaker(world, newId());
  const token = bound + 1n;
  const reclaim = `["reclaim",1,[[["${newId()}",["k"],30000],["held","${token}",1,20000]]],true]`;
  expect(say(reclaim)).toEqual([["ok", 1, [["held", `${token}`, 1, 20_000]]]]);
  expect(world.kept?.keeper.recovery.reason).toBe("outdated");
  await world.clock.pass(21_000);
  const { driver } = await world.client();
  expect(await driver.claim(claimOf("k", { wait: false }))).toMatchObject({ state: "none" });
});

test("a state is not older for a client that has seen the start before it, nor for one that comes back to the same start", async () => {
  const world = new World({ remote: true });
  await world.start();
  const one = await world.client(false);
  await one.driver.claim(claimOf("k"));
  one.cut();
  await world.clock.pass(2_500);
  expect(world.kept?.keeper.reclaiming).toBe(false);
  await world.stop();
  await world.start();
  await world.clock.pass(2_500);
  expect(world.kept?.keeper.reclaiming).toBe(false);
  expect(one.dials).toBeGreaterThan(2);
});

test("a minute after the start nobody can hold by a short lease from before: a client that comes back then stops nothing", async () => {
  const world = new World({ remote: true });
  await world.start();
  const late = await world.client(false);
  const a = claimOf("k", { ttlMs: 600_000 });
  await late.driver.claim(a);
  late.unreachable = true;
  world.crash();
  Object.assign(world.disk as FakeDisk, { state: null, journal: "", sessions: null, fresh: true });
  await world.start();
  await world.clock.pass(60_000);
  late.unreachable = false;
  await world.clock.pass(5_000);
  expect(world.kept?.keeper.reclaiming).toBe(false);
  expect(await stands(late, a)).toMatchObject({ state: "none" });
});

test("a folder that was copied back under living clients: the files themselves", async () => {
  const dir = folder();
  const first = await running({ in: dir });
  await first.close();
  cpSync(join(dir, "state"), join(dir, "copy"), { recursive: true });
  const second = await running({ in: dir });
  const holder = await client(second.addresses[0] as string);
  const a = claimOf("k");
  const { token } = held(await holder.driver.claim(a));
  await second.close();
  rmSync(join(dir, "state"), { recursive: true });
  cpSync(join(dir, "copy"), join(dir, "state"), { recursive: true });
  const third = await running({ in: dir });
  await until(() => third.reclaimMs > 0, { within: 5_000, what: "the recovery" });
  const other = await client(third.addresses[0] as string);
  expect(await other.driver.claim(claimOf("k", { wait: false }))).toMatchObject({ state: "none" });
  expect((await holder.driver.renew([a]))[0]).toMatchObject({ state: "held", token });
});

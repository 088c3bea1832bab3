import { expect, test } from "vitest";
import { newId } from "../../src/ids.ts";
import { leakCheck } from "../support/leak-check.ts";
import { claimOf, cleanUp, held } from "./support.ts";
import type { Player } from "./world.ts";
import { turns, World } from "./world.ts";

leakCheck();
cleanUp();

const grants = (player: Player, id: string): number =>
  player.pushes.filter((push) => push.id === id && push.answer?.state === "held").length;

/** What the server itself says, without changing anything. */
const stands = async (player: Player, claim: Parameters<Player["driver"]["renew"]>[0][0]) =>
  (await player.driver.renew([claim]))[0];

test("a fresh start is open at once", async () => {
  const world = new World();
  await world.start();
  expect(world.kept?.keeper.reclaimMs()).toBe(0);
  const { driver } = await world.client();
  held(await driver.claim(claimOf("k")));
});

test("after a crash holds are taken back by their clients, and nobody is granted before", async () => {
  const world = new World();
  await world.start();
  const one = await world.client();
  const silent = await world.client();
  const a = claimOf("a");
  const b = claimOf("b");
  const before = held(await one.driver.claim(a));
  await silent.driver.claim(b);
  silent.unreachable = true;
  await world.clock.pass(1_000);
  world.crash();
  await world.start();
  await world.clock.pass(2_000);
  const other = await world.client();
  expect(await other.driver.claim(claimOf("a", { wait: false }))).toEqual({ state: "none" });
  const wantsB = claimOf("b");
  expect(await other.driver.claim(wantsB)).toMatchObject({ state: "waiting" });
  expect(one.pushes).toContainEqual({ id: null, answer: undefined });
  expect(await stands(one, a)).toMatchObject({ state: "held", token: before.token });
  await world.clock.pass(26_000);
  expect(grants(other, wantsB.id)).toBe(0);
  await world.clock.pass(2_500);
  expect(grants(other, wantsB.id)).toBe(1);
  expect(await stands(one, a)).toMatchObject({ state: "held", token: before.token });
});

test("what a broken connection kept from the new start is told again over the next one", async () => {
  const world = new World({ remote: true });
  await world.start();
  const one = await world.client(false);
  const waiter = await world.client(false);
  const [a, waits] = [claimOf("a"), claimOf("a")];
  const before = held(await one.driver.claim(a));
  expect(await waiter.driver.claim(waits)).toMatchObject({ state: "waiting" });
  world.crash();
  await world.start();
  const { sent, dials } = one;
  const passed = world.clock.pass(5_000);
  // its hello, and what it tells behind the welcome
  while (one.sent < sent + 2) await turns(1);
  one.cut();
  await passed;
  expect(one.dials - dials).toBeGreaterThan(1);
  expect(await stands(one, a)).toMatchObject({ state: "held", token: before.token });
  // far sooner than after the longest recovery
  expect(world.kept?.keeper.reclaiming).toBe(false);
  held(await waiter.driver.claim(claimOf("b", { wait: false })));
  await one.driver.release([a]);
  await turns();
  expect(grants(waiter, waits.id)).toBe(1);
  // what was answered is not told once more
  const after = one.sent;
  one.cut();
  await world.clock.pass(2_000);
  expect(one.sent - after).toBeLessThanOrEqual(1);
});

test.for([
  ["stop", "lives"],
  ["crash", "lives"],
  ["stop", "is gone"],
  ["crash", "is gone"],
] as const)(
  "on a Unix socket, after a %s, a connection ends before it has told anything, its process %s: that alone is not its death",
  async ([how, then]) => {
    const world = new World();
    await world.start();
    const one = await world.client();
    const a = claimOf("a", { ttlMs: "session" });
    const { token } = held(await one.driver.claim(a));
    if (how === "stop") await world.stop();
    else world.crash();
    await world.start();
    const { sent } = one;
    const { session } = one.driver as unknown as { readonly session: string };
    const passed = world.clock.pass(2_000);
    while (!world.kept?.sessions.all.get(session)?.link) await turns(1);
    one.unreachable = true;
    if (then === "is gone") one.process = "gone";
    one.cut();
    await passed;
    // its hello, and nothing else
    expect(one.sent).toBe(sent + 1);
    const other = await world.client();
    const answer = await other.driver.claim(claimOf("a", { wait: false }));
    if (then === "is gone") return void held(answer);
    expect(answer.state).toBe("none");
    one.unreachable = false;
    await world.clock.pass(10_000);
    expect(await stands(one, a)).toMatchObject({ state: "held", token });
    expect(world.kept?.keeper.reclaiming).toBe(false);
    // from then on the end of its connection is its death again
    one.unreachable = true;
    one.cut();
    await turns();
    held(await other.driver.claim(claimOf("a", { wait: false })));
  },
);

test("on a Unix socket it opens as soon as every client has come back or its process is gone", async () => {
  const world = new World();
  await world.start();
  const one = await world.client();
  const dead = await world.client();
  const a = claimOf("a");
  const b = claimOf("b");
  await one.driver.claim(a);
  await dead.driver.claim(b);
  dead.unreachable = true;
  dead.process = "gone";
  world.crash();
  await world.start();
  await world.clock.pass(1_500);
  expect(world.kept?.keeper.reclaiming).toBe(false);
  expect(await stands(one, a)).toMatchObject({ state: "held" });
  held(await one.driver.claim(claimOf("b", { wait: false })));
});

test("a client with nothing to tell comes back all the same, so that nobody waits for it", async () => {
  const world = new World();
  await world.start();
  const one = await world.client();
  const idle = await world.client();
  const [a, b] = [claimOf("a"), claimOf("b")];
  await one.driver.claim(a);
  await idle.driver.claim(b);
  await idle.driver.release([b]);
  world.crash();
  await world.start();
  await world.clock.pass(2_500);
  expect(world.kept?.keeper.reclaiming).toBe(false);
  expect(await stands(one, a)).toMatchObject({ state: "held" });
});

test("a client with nothing to tell does not look for long for a server that has gone, and not at all if it said so", async () => {
  for (const crashed of [true, false]) {
    const world = new World();
    await world.start();
    const idle = await world.client();
    const dials = idle.dials;
    if (crashed) world.crash();
    else await world.stop();
    await world.clock.pass(30_000);
    expect(idle.dials > dials).toBe(crashed);
    const after = idle.dials;
    await world.clock.pass(600_000);
    expect(idle.dials - after).toBeLessThanOrEqual(1);
  }
});

test("a client over TCP cannot be seen to be gone: it is waited for", async () => {
  const world = new World({ remote: true });
  await world.start();
  const one = await world.client(false);
  await one.driver.claim(claimOf("a"));
  one.unreachable = true;
  one.process = "gone";
  world.crash();
  await world.start();
  await world.clock.pass(29_000);
  expect(world.kept?.keeper.reclaiming).toBe(true);
  await world.clock.pass(1_100);
  expect(world.kept?.keeper.reclaiming).toBe(false);
});

test("after the machine itself was started anew nobody of it is waited for, but those of other machines are", async () => {
  for (const remote of [false, true]) {
    const world = new World({ remote });
    await world.start();
    const one = await world.client(!remote);
    await one.driver.claim(claimOf("a"));
    one.unreachable = true;
    world.crash();
    if (world.disk !== null) world.disk.sameBoot = false;
    await world.start();
    expect(world.kept?.keeper.reclaiming).toBe(remote);
  }
});

test("tokens rise over a crash, although the wall clock was set back", async () => {
  const world = new World();
  await world.start();
  const { driver } = await world.client();
  const a = claimOf("a");
  const before = held(await driver.claim(a));
  await driver.release([a]);
  world.crash();
  world.clock.wallAhead -= 3_600_000;
  await world.start();
  await world.clock.pass(31_000);
  const after = held(await driver.claim(claimOf("a")));
  expect(after.token).toBeGreaterThan(before.token);
});

test("a line keeps its order over a crash, although its clients come back in another", async () => {
  const world = new World();
  await world.start();
  const players = [await world.client(), await world.client(), await world.client(), await world.client()] as const;
  const claims = players.map(() => claimOf("k"));
  for (const [at, { driver }] of players.entries()) await driver.claim(claims[at] as (typeof claims)[0]);
  for (const player of players) player.unreachable = true;
  world.crash();
  await world.start();
  for (const at of [3, 1, 2, 0]) {
    (players[at] as Player).unreachable = false;
    await world.clock.pass(2_500);
  }
  expect(world.kept?.keeper.reclaiming).toBe(false);
  for (const [at, player] of players.entries()) {
    const claim = claims[at] as (typeof claims)[0];
    expect(await stands(player, claim)).toMatchObject({ state: "held" });
    if (at < 3)
      expect(await stands(players[at + 1] as Player, claims[at + 1] as typeof claim)).toMatchObject({
        state: "waiting",
      });
    await player.driver.release([claim]);
  }
});

test("of two conflicting assertions the higher token stays, whoever comes first", async () => {
  for (const order of [0, 1]) {
    const world = new World();
    await world.start();
    const lower = await world.client();
    const higher = await world.client();
    const a = claimOf("k");
    const b = claimOf("k");
    await lower.driver.claim(a);
    // the lower one is cut off and its hold taken away; it does not know
    lower.unreachable = true;
    lower.cut();
    await turns();
    held(await higher.driver.claim(b));
    higher.unreachable = true;
    world.crash();
    await world.start();
    const [first, second] = order === 0 ? [lower, higher] : [higher, lower];
    first.unreachable = false;
    await world.clock.pass(2_500);
    second.unreachable = false;
    await world.clock.pass(2_500);
    expect(await stands(higher, b)).toMatchObject({ state: "held" });
    expect(await stands(lower, a)).toMatchObject({ state: "none" });
  }
});

test("who lost to a higher token is told so while the server still reclaims, and renews its other claims by the same call", async () => {
  const world = new World({ remote: true });
  await world.start();
  const [lower, higher, silent] = [await world.client(false), await world.client(false), await world.client(false)];
  const [a, other, b] = [claimOf("k"), claimOf("other"), claimOf("k")];
  await silent.driver.claim(claimOf("s"));
  await lower.driver.claim(other);
  await lower.driver.claim(a);
  // its hold is taken away; it does not know, and will assert it beside the later one
  lower.unreachable = true;
  lower.cut();
  world.kept?.keeper.table.drop(a.id, 0, world.clock.now(), 0);
  held(await higher.driver.claim(b));
  for (const one of [higher, silent]) one.unreachable = true;
  world.crash();
  await world.start();
  lower.unreachable = false;
  await world.clock.pass(2_500);
  expect(await stands(lower, a)).toMatchObject({ state: "held" });
  higher.unreachable = false;
  await world.clock.pass(2_500);
  expect(world.kept?.keeper.reclaiming).toBe(true);
  expect(await lower.driver.renew([a, other])).toMatchObject([{ state: "none", reason: "expired" }, { state: "held" }]);
});

test("while the server reclaims, a claim that it does not know yet costs those renewed by the same call nothing", async () => {
  const world = new World({ remote: true });
  await world.start();
  const [one, silent] = [await world.client(false), await world.client(false)];
  const [mine, unknown] = [claimOf("mine"), claimOf("unknown")];
  await one.driver.claim(mine);
  await silent.driver.claim(unknown);
  silent.unreachable = true;
  world.crash();
  await world.start();
  await world.clock.pass(2_500);
  expect(world.kept?.keeper.reclaiming).toBe(true);
  const before = world.kept?.keeper.table.entries.get(mine.id)?.expiresAt as number;
  const answers = await one.driver.renew([unknown, mine]);
  expect([answers[0], answers[1]?.state]).toEqual([undefined, "held"]);
  expect(world.kept?.keeper.table.entries.get(mine.id)?.expiresAt).toBeGreaterThan(before);
});

test("a hold whose own lease has run out is not asked back", async () => {
  const world = new World();
  await world.start();
  const one = await world.client();
  const a = claimOf("k", { ttlMs: 20_000 });
  await one.driver.claim(a);
  one.unreachable = true;
  world.crash();
  await world.start();
  // nine tenths have passed: the client has stopped believing, although the server would still have kept it
  await world.clock.pass(18_050);
  one.unreachable = false;
  await world.clock.pass(1_500);
  expect(world.kept?.keeper.reclaiming).toBe(false);
  expect(await stands(one, a)).toMatchObject({ state: "none" });
});

test("a session claim on a Unix socket is asked back after a minute's stop of its process, if the server waits so long", async () => {
  const world = new World();
  await world.start();
  const one = await world.client();
  const a = claimOf("k", { ttlMs: "session" });
  await one.driver.claim(a);
  one.unreachable = true;
  one.process = "stopped";
  world.crash();
  await world.start();
  await world.clock.pass(28_000);
  one.unreachable = false;
  await world.clock.pass(2_500);
  expect(await stands(one, a)).toMatchObject({ state: "held" });
});

test("while reclaiming: a renewal leaves out what was not told yet, and answers the rest; its release is remembered", async () => {
  const world = new World();
  await world.start();
  const one = await world.client();
  const keeper = await world.client();
  const a = claimOf("a");
  await one.driver.claim(a);
  await keeper.driver.claim(claimOf("b"));
  one.unreachable = true;
  keeper.unreachable = true;
  world.crash();
  await world.start();
  const other = await world.client();
  const known = claimOf("known");
  expect(await other.driver.claim(known)).toMatchObject({ state: "waiting" });
  expect(await other.driver.renew([a, known])).toMatchObject([undefined, { state: "waiting" }]);
  expect(await other.driver.release([known])).toEqual([true]);
  expect(await other.driver.release([a])).toEqual([true]);
  one.unreachable = false;
  await world.clock.pass(2_500);
  expect(await stands(one, a)).toMatchObject({ state: "none" });
});

test("a reclaim after the window is answered none", async () => {
  const world = new World();
  await world.start();
  const one = await world.client();
  const a = claimOf("a", { ttlMs: "session" });
  await one.driver.claim(a);
  one.unreachable = true;
  world.crash();
  await world.start();
  await world.clock.pass(31_000);
  one.unreachable = false;
  await world.clock.pass(2_500);
  expect(await stands(one, a)).toMatchObject({ state: "none" });
});

test("a longer short lease is written before it is granted, and a restart waits for it", async () => {
  const world = new World();
  await world.start();
  const one = await world.client();
  const writes = world.disk?.writes.length ?? 0;
  await one.driver.claim(claimOf("usual"));
  expect(world.disk?.writes.length).toBe(writes);
  held(await one.driver.claim(claimOf("a", { ttlMs: 50_000 })));
  expect(world.disk?.writes.length).toBe(writes + 1);
  one.unreachable = true;
  world.crash();
  await world.start();
  expect(world.kept?.keeper.reclaimMs()).toBe(50_000);
});

test("a grant that would pass the bound of tokens waits for the write", async () => {
  const world = new World();
  await world.start();
  const { driver } = await world.client();
  const { disk } = world;
  if (disk === null) throw new Error("there is a disk");
  await world.clock.pass(60_000);
  let open = (): void => undefined;
  disk.gate = new Promise((resolve) => {
    open = resolve;
  });
  let answered = false;
  const claim = driver.claim(claimOf("k")).then((answer) => {
    answered = true;
    return answer;
  });
  await turns(40);
  expect(answered).toBe(false);
  open();
  const { token } = held(await claim);
  expect(token).toBeLessThan(BigInt(JSON.parse((disk.state as string).slice(17)).bound));
});

test("a waiting claim whose token would pass the bound is granted once it is written", async () => {
  const world = new World();
  await world.start();
  const one = await world.client();
  const a = claimOf("k");
  const b = claimOf("k", { ttlMs: 50_000 });
  await one.driver.claim(a);
  await one.driver.claim(b);
  await world.clock.pass(29_000);
  await one.driver.renew([a, b]);
  await world.clock.pass(29_000);
  const floor = BigInt(Math.floor(world.clock.wall() * 1_000) + 3_600_000_000);
  const c = claimOf("k", { floor });
  await one.driver.claim(c);
  await one.driver.release([a]);
  await one.driver.release([b]);
  await turns(40);
  expect(grants(one, b.id)).toBe(1);
  expect(grants(one, c.id)).toBe(1);
});

test("without a state every start waits a minute, and grants no longer lease", async () => {
  const world = new World({ state: "none" });
  await world.start();
  const one = await world.client();
  const a = claimOf("k");
  expect(await one.driver.claim(a)).toMatchObject({ state: "waiting" });
  await expect(one.driver.claim(claimOf("other", { ttlMs: 61_000 }))).rejects.toThrow(/without a state/);
  for (let passed = 0; passed < 60; passed += 10) {
    await one.driver.renew([a]);
    expect(grants(one, a.id)).toBe(0);
    await world.clock.pass(10_100);
  }
  expect(grants(one, a.id)).toBe(1);
});

/** Speaks for a client that says what it likes. */
function speaker(world: World, session: string): (frames: string) => unknown[][] {
  const { hub } = world;
  if (hub === null) throw new Error("the world has started");
  const got: string[] = [];
  const link = hub.accept({ write: (text) => got.push(text), close: () => undefined }, { local: true, address: "" });
  link.lines([JSON.stringify({ hello: { protocol: 1, session } })]);
  return (frames) => {
    got.length = 0;
    link.lines([`["${hub.start}",${frames}]`]);
    return got.flatMap((text) => (JSON.parse(text) as unknown[][]).slice(1));
  };
}

test("a token that no server can have granted is not taken back, and shows nothing", async () => {
  const world = new World();
  await world.start();
  (await world.client()).unreachable = true;
  const bound = BigInt(JSON.parse((world.disk?.state ?? "").slice(17)).bound);
  world.disk?.note({ id: "x", local: false, label: "", pid: null, pidStart: null });
  world.crash();
  await world.start();
  const say = speaker(world, newId());
  const was = (token: bigint): string =>
    `["reclaim",1,[[["${newId()}",["k"],30000],["held","${token}",1,20000]]],false]`;
  const aDay = 86_400_000_000n;
  expect(say(was(bound + 2n * aDay))).toEqual([["ok", 1, [["none"]]]]);
  expect(world.kept?.keeper.recovery.reason).toBe("crash");
  expect(say(was(bound - 1n))).toEqual([["ok", 1, [["held", `${bound - 1n}`, 1, 20_000]]]]);
});

test("a reclaimed lease that is longer than any on disk is written before it is taken back", async () => {
  const world = new World();
  await world.start();
  world.disk?.note({ id: "x", local: false, label: "", pid: null, pidStart: null });
  world.crash();
  await world.start();
  const say = speaker(world, newId());
  expect(say(`["reclaim",1,[[["${newId()}",["k"],55000],["held","17",1,50000]]],false]`)).toEqual([]);
  await turns();
  world.crash();
  await world.start();
  expect(world.kept?.keeper.reclaimMs()).toBe(55_000);
});

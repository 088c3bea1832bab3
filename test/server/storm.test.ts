// Very many holders and a server that has crashed, without sockets or real time: a minute of reclaiming takes none. The
// same with real processes and connections is in test/crash/network-restart.test.ts.

import { expect, test } from "vitest";
import type { Claim } from "../../src/spi/driver.ts";
import { leakCheck } from "../support/leak-check.ts";
import { claimOf, cleanUp, held } from "./support.ts";
import type { Player } from "./world.ts";
import { turns, World } from "./world.ts";

leakCheck();
cleanUp();

const CLIENTS = 20;
const LOCKS_EACH = 50;
const LEASE_MS = 30_000;

type Holding = { readonly player: Player; readonly claims: readonly Claim[]; readonly tokens: readonly bigint[] };

/** A thousand holders on a server for other machines. */
async function crowd(): Promise<{ readonly world: World; readonly all: readonly Holding[] }> {
  const world = new World({ remote: true });
  await world.start();
  const all: Holding[] = [];
  for (let one = 0; one < CLIENTS; one++) {
    const player = await world.client(false);
    const claims = Array.from({ length: LOCKS_EACH }, (_, at) => claimOf(`${one}:${at}`, { ttlMs: LEASE_MS }));
    const answers = await Promise.all(claims.map((claim) => player.driver.claim(claim)));
    all.push({ player, claims, tokens: answers.map((answer) => held(answer).token) });
  }
  return { world, all };
}

const everyOther = (at: number): boolean => at % 2 === 0;

test(`of ${CLIENTS * LOCKS_EACH} holders half never come back after a crash: nothing new is granted until their leases must have ended; the others keep their locks and tokens; then everybody proceeds`, async () => {
  const { world, all } = await crowd();
  for (const { player } of all) player.unreachable = true;
  world.crash();
  await world.start();
  for (const [at, { player }] of all.entries()) player.unreachable = !everyOther(at);
  const next = await world.client(false);
  const wanted = all.map((_, one) => claimOf(`${one}:0`, { ttlMs: 120_000 }));
  for (const claim of wanted) void next.driver.claim(claim);
  await world.clock.pass(LEASE_MS - 1_000);
  const granted = (): (string | null)[] =>
    next.pushes.filter(({ answer }) => answer?.state === "held").map(({ id }) => id);
  expect(granted()).toEqual([]);

  for (const [at, { player, claims, tokens }] of all.entries()) {
    if (!everyOther(at)) continue;
    const answers = await player.driver.renew(claims);
    expect(answers.map((answer) => held(answer).token)).toEqual(tokens);
  }
  await world.clock.pass(5_000);
  expect(world.kept?.keeper.reclaimMs()).toBe(0);
  const ofTheLost = wanted.filter((_, one) => !everyOther(one)).map(({ id }) => id);
  const highest = all.flatMap(({ tokens }) => tokens).reduce((most, token) => (token > most ? token : most), 0n);
  const answers = await next.driver.renew(wanted);
  for (const [one, answer] of answers.entries()) {
    if (everyOther(one)) expect(answer?.state).toBe("waiting");
    else expect(held(answer).token).toBeGreaterThan(highest);
  }
  expect(ofTheLost).toHaveLength(CLIENTS / 2);
});

test(`${CLIENTS * LOCKS_EACH} holders who all come back: the server opens at once, long before any lease has ended`, async () => {
  const { world, all } = await crowd();
  world.crash();
  await world.start();
  await world.clock.pass(3_000);
  expect(world.kept?.keeper.reclaimMs()).toBe(0);
  for (const { player, claims, tokens } of all) {
    const answers = await player.driver.renew(claims);
    expect(answers.map((answer) => held(answer).token)).toEqual(tokens);
  }
  const next = await world.client(false);
  held(await next.driver.claim(claimOf("free", { wait: false })));
});

test("a client that was cut off during the whole reclaim has lost its locks, and is told so", async () => {
  const { world, all } = await crowd();
  const cut = all[0] as Holding;
  for (const { player } of all) player.unreachable = player === cut.player;
  world.crash();
  await world.start();
  await world.clock.pass(LEASE_MS + 1_000);
  expect(world.kept?.keeper.reclaimMs()).toBe(0);
  const next = await world.client(false);
  held(await next.driver.claim(claimOf("0:0", { wait: false })));
  cut.player.unreachable = false;
  await world.clock.pass(5_000);
  const answers = await cut.player.driver.renew(cut.claims);
  expect(answers.map((answer) => answer?.state)).toEqual(cut.claims.map(() => "none"));
  await turns();
});

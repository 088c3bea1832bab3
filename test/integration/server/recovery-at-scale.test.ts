// Very many holders and a crashed server, without sockets or real time: a minute of recovery takes no time. The
// same with real processes and connections is in test/fault-injection/server-restart.test.ts.

import { expect, test } from "vitest";
import type { Claim } from "../../../src/spi/driver.ts";
import { flushEventLoop } from "../../support/fake-clock.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { cleanUpAfterEach, expectHeld, makeClaim } from "../../support/server-fixture.ts";
import type { HarnessClient } from "../../support/server-harness.ts";
import { ServerHarness } from "../../support/server-harness.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

const CLIENT_COUNT = 20;
const LOCKS_PER_CLIENT = 50;
const LEASE_MS = 30_000;

type ClientLocks = {
  readonly player: HarnessClient;
  readonly claims: readonly Claim[];
  readonly tokens: readonly bigint[];
};

/** A thousand holders on a server for other machines. */
async function connectHolders(): Promise<{ readonly world: ServerHarness; readonly all: readonly ClientLocks[] }> {
  const harness = new ServerHarness({ remote: true });
  await harness.start();
  const all: ClientLocks[] = [];
  for (let one = 0; one < CLIENT_COUNT; one++) {
    const client = await harness.connectClient(false);
    const claims = Array.from({ length: LOCKS_PER_CLIENT }, (_, index) =>
      makeClaim(`${one}:${index}`, { ttlMs: LEASE_MS }),
    );
    const answers = await Promise.all(claims.map((claim) => client.driver.claim(claim)));
    all.push({ player: client, claims, tokens: answers.map((answer) => expectHeld(answer).token) });
  }
  return { world: harness, all };
}

const isEven = (index: number): boolean => index % 2 === 0;

test(`when half of ${CLIENT_COUNT * LOCKS_PER_CLIENT} holders never return after a crash, nothing new is granted until their leases must have ended; the others keep their locks and tokens; then all waiters proceed`, async () => {
  const { world, all } = await connectHolders();
  for (const { player } of all) player.isUnreachable = true;
  world.crash();
  await world.start();
  for (const [index, { player }] of all.entries()) player.isUnreachable = !isEven(index);
  const next = await world.connectClient(false);
  const wanted = all.map((_, one) => makeClaim(`${one}:0`, { ttlMs: 120_000 }));
  for (const claim of wanted) void next.driver.claim(claim);
  await world.clock.advance(LEASE_MS - 1_000);
  const granted = (): (string | null)[] =>
    next.pushes.filter(({ answer }) => answer?.state === "held").map(({ id }) => id);
  expect(granted()).toEqual([]);

  for (const [index, { player, claims, tokens }] of all.entries()) {
    if (!isEven(index)) continue;
    const answers = await player.driver.renew(claims);
    expect(answers.map((answer) => expectHeld(answer).token)).toEqual(tokens);
  }
  await world.clock.advance(5_000);
  expect(world.inspect().recoveryRemainingMs).toBe(0);
  const ofTheLost = wanted.filter((_, one) => !isEven(one)).map(({ id }) => id);
  const highest = all.flatMap(({ tokens }) => tokens).reduce((most, token) => (token > most ? token : most), 0n);
  const answers = await next.driver.renew(wanted);
  for (const [one, answer] of answers.entries()) {
    if (isEven(one)) expect(answer?.state).toBe("waiting");
    else expect(expectHeld(answer).token).toBeGreaterThan(highest);
  }
  expect(ofTheLost).toHaveLength(CLIENT_COUNT / 2);
});

test(`when all ${CLIENT_COUNT * LOCKS_PER_CLIENT} holders return, recovery ends at once, long before any lease has ended`, async () => {
  const { world, all } = await connectHolders();
  world.crash();
  await world.start();
  await world.clock.advance(3_000);
  expect(world.inspect().recoveryRemainingMs).toBe(0);
  for (const { player, claims, tokens } of all) {
    const answers = await player.driver.renew(claims);
    expect(answers.map((answer) => expectHeld(answer).token)).toEqual(tokens);
  }
  const next = await world.connectClient(false);
  expectHeld(await next.driver.claim(makeClaim("free", { wait: false })));
});

test("a client that was cut off during all of the recovery has lost its locks, and learns so", async () => {
  const { world, all } = await connectHolders();
  const cut = all[0] as ClientLocks;
  for (const { player } of all) player.isUnreachable = player === cut.player;
  world.crash();
  await world.start();
  await world.clock.advance(LEASE_MS + 1_000);
  expect(world.inspect().recoveryRemainingMs).toBe(0);
  const next = await world.connectClient(false);
  expectHeld(await next.driver.claim(makeClaim("0:0", { wait: false })));
  cut.player.isUnreachable = false;
  await world.clock.advance(5_000);
  const answers = await cut.player.driver.renew(cut.claims);
  expect(answers.map((answer) => answer?.state)).toEqual(cut.claims.map(() => "none"));
  await flushEventLoop();
});

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
async function connectHolders(): Promise<{
  readonly harness: ServerHarness;
  readonly clients: readonly ClientLocks[];
}> {
  const harness = new ServerHarness({ remote: true });
  await harness.start();
  const clients: ClientLocks[] = [];
  for (let clientIndex = 0; clientIndex < CLIENT_COUNT; clientIndex++) {
    const client = await harness.connectClient(false);
    const claims = Array.from({ length: LOCKS_PER_CLIENT }, (_, index) =>
      makeClaim(`${clientIndex}:${index}`, { ttlMs: LEASE_MS }),
    );
    const answers = await Promise.all(claims.map((claim) => client.driver.claim(claim)));
    clients.push({ player: client, claims, tokens: answers.map((answer) => expectHeld(answer).token) });
  }
  return { harness, clients };
}

const isEven = (index: number): boolean => index % 2 === 0;

test(`when half of ${CLIENT_COUNT * LOCKS_PER_CLIENT} holders never return after a crash, nothing new is granted until their leases must have ended; the others keep their locks and tokens; then all waiters proceed`, async () => {
  const { harness, clients } = await connectHolders();
  for (const { player } of clients) player.isUnreachable = true;
  harness.crash();
  await harness.start();
  for (const [index, { player }] of clients.entries()) player.isUnreachable = !isEven(index);
  const next = await harness.connectClient(false);
  const claims = clients.map((_, clientIndex) => makeClaim(`${clientIndex}:0`, { ttlMs: 120_000 }));
  for (const claim of claims) void next.driver.claim(claim);
  await harness.clock.advance(LEASE_MS - 1_000);
  const granted = (): (string | null)[] =>
    next.pushes.filter(({ answer }) => answer?.state === "held").map(({ id }) => id);
  expect(granted()).toEqual([]);

  for (const [index, { player, claims, tokens }] of clients.entries()) {
    if (!isEven(index)) continue;
    const answers = await player.driver.renew(claims);
    expect(answers.map((answer) => expectHeld(answer).token)).toEqual(tokens);
  }
  await harness.clock.advance(5_000);
  expect(harness.inspect().recoveryRemainingMs).toBe(0);
  const lostIds = claims.filter((_, clientIndex) => !isEven(clientIndex)).map(({ id }) => id);
  const highest = clients.flatMap(({ tokens }) => tokens).reduce((max, token) => (token > max ? token : max), 0n);
  const answers = await next.driver.renew(claims);
  for (const [clientIndex, answer] of answers.entries()) {
    if (isEven(clientIndex)) expect(answer?.state).toBe("waiting");
    else expect(expectHeld(answer).token).toBeGreaterThan(highest);
  }
  expect(lostIds).toHaveLength(CLIENT_COUNT / 2);
});

test(`when all ${CLIENT_COUNT * LOCKS_PER_CLIENT} holders return, recovery ends at once, long before any lease has ended`, async () => {
  const { harness, clients } = await connectHolders();
  harness.crash();
  await harness.start();
  await harness.clock.advance(3_000);
  expect(harness.inspect().recoveryRemainingMs).toBe(0);
  for (const { player, claims, tokens } of clients) {
    const answers = await player.driver.renew(claims);
    expect(answers.map((answer) => expectHeld(answer).token)).toEqual(tokens);
  }
  const next = await harness.connectClient(false);
  expectHeld(await next.driver.claim(makeClaim("free", { wait: false })));
});

test("a client that was cut off during all of the recovery has lost its locks, and learns so", async () => {
  const { harness, clients } = await connectHolders();
  const firstClient = clients[0] as ClientLocks;
  for (const { player } of clients) player.isUnreachable = player === firstClient.player;
  harness.crash();
  await harness.start();
  await harness.clock.advance(LEASE_MS + 1_000);
  expect(harness.inspect().recoveryRemainingMs).toBe(0);
  const next = await harness.connectClient(false);
  expectHeld(await next.driver.claim(makeClaim("0:0", { wait: false })));
  firstClient.player.isUnreachable = false;
  await harness.clock.advance(5_000);
  const answers = await firstClient.player.driver.renew(firstClient.claims);
  expect(answers.map((answer) => answer?.state)).toEqual(firstClient.claims.map(() => "none"));
  await flushEventLoop();
});

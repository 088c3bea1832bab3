// During recovery clients report their claims. A client that reports more than it may have loses the excess: reclaims
// are limited like claims. The tests look at the lock table itself, not only at the clients' answers.

import { expect, test } from "vitest";
import type { ServerLimits } from "../../../src/server/limits.ts";
import { resolveLimits } from "../../../src/server/limits.ts";
import { randomId } from "../../../src/util/ids.ts";
import { flushEventLoop } from "../../support/fake-clock.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import type { RawAnswer } from "../../support/raw-client.ts";
import { parseRawAddress, RawClient } from "../../support/raw-client.ts";
import { toReleases } from "../../support/releases.ts";
import { cleanUpAfterEach, expectHeld, makeClaim, onCleanup, startServer } from "../../support/server-fixture.ts";
import type { HarnessClient } from "../../support/server-harness.ts";
import { ServerHarness } from "../../support/server-harness.ts";
import { createTestAccess, testAccount } from "../../support/test-accounts.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

type ReclaimTerms = readonly [id: string, keys: readonly unknown[], ttlMs: number];

const sharedSpec = (key: string): readonly unknown[] => [key, 1, 1_000_000];
const reportedHeld = (terms: ReclaimTerms, token = 1_000): unknown => [terms, ["held", String(token), 1, 30_000]];
const reportedWaiting = (terms: ReclaimTerms, arrival = 1): unknown => [terms, ["waiting", arrival]];
const reclaimTerms = (key: unknown): ReclaimTerms => [randomId(), [key], 30_000];

/** A server that has lost its memory and is recovering from its clients' reports. */
async function restartWithoutState(limits: Partial<ServerLimits>, options: Parameters<typeof startServer>[0] = {}) {
  const it = await startServer({ state: "none", limits, ...options });
  expect(it.recoveryRemainingMs).toBeGreaterThan(0);
  const open = async (hello: Readonly<Record<string, string>> = {}): Promise<RawClient> => {
    const rawClient = await RawClient.open(parseRawAddress(it.addresses[0] as string), hello);
    onCleanup(() => rawClient.end());
    return rawClient;
  };
  return { server: it, open };
}

async function reclaim(client: RawClient, items: readonly unknown[]): Promise<string[]> {
  const answers = (await client.call("reclaim", items, false)) as readonly RawAnswer[];
  return answers.map(([state]) => state);
}

function countStates(states: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const state of states) counts[state] = (counts[state] ?? 0) + 1;
  return counts;
}

test("claimsPerAccount: without accounts, however many frames a session reports in, it gets no more than its limit; other sessions have their own", async () => {
  const { server, open } = await restartWithoutState({ claimsPerAccount: 100 });
  const [greedyClient, other] = [await open(), await open()];
  const items = Array.from({ length: 300 }, (_, n) => reportedHeld(reclaimTerms(`k${n}`)));
  expect(countStates(await reclaim(greedyClient, items))).toEqual({ held: 100, none: 200 });
  expect(countStates(await reclaim(greedyClient, [reportedWaiting(reclaimTerms("w"))]))).toEqual({ none: 1 });
  expect(server.stats().claims).toBe(100);
  expect(countStates(await reclaim(other, items.slice(200)))).toEqual({ held: 100 });
  // a claim that it has reported before is not a new one
  expect(countStates(await reclaim(greedyClient, items.slice(0, 100)))).toEqual({ held: 100 });
});

test("claims: the limit holds in all, however many sessions report", async () => {
  const { server, open } = await restartWithoutState({ claimsPerAccount: 100, claims: 250 });
  for (let session = 0; session < 5; session++) {
    const items = Array.from({ length: 150 }, (_, n) => reportedHeld(reclaimTerms(`${session}/${n}`)));
    await reclaim(await open(), items);
  }
  expect(server.stats().claims).toBe(250);
});

test("waitersPerKey: waiting claims do not keep a key's holders from reclaiming", async () => {
  const { server, open } = await restartWithoutState({ waitersPerKey: 50 });
  const crowdClient = await open();
  expect(
    countStates(
      await reclaim(
        crowdClient,
        Array.from({ length: 90 }, (_, n) => reportedWaiting(reclaimTerms("k"), n + 1)),
      ),
    ),
  ).toEqual({
    waiting: 50,
    none: 40,
  });
  // the holder comes last
  const holder = await open();
  expect(await reclaim(holder, [reportedHeld(reclaimTerms("k"), 7_000)])).toEqual(["held"]);
  const readers = Array.from({ length: 120 }, (_, n) => reportedHeld(reclaimTerms(sharedSpec("r")), 2_000 + n));
  expect(countStates(await reclaim(holder, readers))).toEqual({ held: 100, none: 20 });
  expect(server.stats().claims).toBe(50 + 1 + 100);
});

test("claimsPerAccount and rights: over all sessions of an account, only what its rules allow; a lost claim no longer counts", async () => {
  const [ana, ben] = [testAccount("ana", "team-a/"), testAccount("ben", "")];
  const { server, open } = await restartWithoutState({ claimsPerAccount: 100 }, { access: createTestAccess(ana, ben) });
  const [one, two] = [await open({ credential: ana.credential }), await open({ credential: ana.credential })];
  const makeItems = (client: string): unknown[] =>
    Array.from({ length: 80 }, (_, n) => reportedHeld(reclaimTerms(`team-a/${client}/${n}`)));
  expect(countStates(await reclaim(one, makeItems("one")))).toEqual({ held: 80 });
  expect(countStates(await reclaim(two, makeItems("two")))).toEqual({ held: 20, none: 60 });
  expect(await reclaim(two, [reportedHeld(reclaimTerms("team-b/x"))])).toEqual(["none"]);
  expect(server.stats().claims).toBe(100);
  const otherRawClient = await open({ credential: ben.credential });
  expect(await reclaim(otherRawClient, [reportedHeld(reclaimTerms("team-b/x"))])).toEqual(["held"]);
  // ben has the higher token: ana loses her claim, and has room for another
  expect(await reclaim(otherRawClient, [reportedHeld(reclaimTerms("team-a/one/0"), 9_000)])).toEqual(["held"]);
  expect(countStates(await reclaim(two, makeItems("three")))).toEqual({ held: 1, none: 79 });
});

test("reclaimed claims count after recovery: new claims find the remaining room", async () => {
  const harness = new ServerHarness({ state: "none", limits: { claimsPerAccount: 10, claims: 15 } });
  await harness.start();
  const session = randomId();
  const line = (...frames: unknown[]): string => JSON.stringify([harness.service?.runId, ...frames]);
  const replies: string[] = [];
  const stream = { write: (text: string) => void replies.push(text), close: () => undefined };
  const connection = harness.service?.accept(stream, { isLocal: true, address: "" });
  connection?.receive([JSON.stringify({ hello: { protocol: 1, session } })]);
  const items = Array.from({ length: 12 }, (_, n) => reportedHeld(reclaimTerms(`k${n}`)));
  connection?.receive([line(["reclaim", 1, items, true])]);
  expect(harness.inspect().records.size).toBe(10);
  await harness.clock.advance(25_000);
  connection?.receive([line(["renew", 2, items.map((item) => (item as [ReclaimTerms])[0][0])])]);
  await harness.clock.advance(36_000);
  // refused reclaims are not there; the others have expired, since no client released them
  expect(harness.inspect().isRecovering).toBe(false);
  expect(harness.inspect().records.size).toBe(0);
  connection?.receive([line(...items.map((_, n) => ["claim", 10 + n, ...reclaimTerms(`n${n}`)]))]);
  expect(harness.inspect().records.size).toBe(10);
  expect(replies.join("")).toContain("at most 10 claims of one client");
});

async function connectHolding(client: HarnessClient, count: number, prefix: string) {
  const claims = Array.from({ length: count }, (_, n) => makeClaim(`${prefix}${n}`));
  for (const claim of claims) expectHeld(await client.driver.claim(claim));
  return claims;
}

test("limits and recovery: clients that had reached every limit reclaim everything, in any order", async () => {
  const harness = new ServerHarness({ limits: { claimsPerAccount: 20, claims: 40, waitersPerKey: 3 } });
  await harness.start();
  const [one, two] = [await harness.connectClient(), await harness.connectClient()];
  const firstHolding = await connectHolding(one, 18, "a");
  const otherHolding = await connectHolding(two, 18, "b");
  const [first, second, third, fourth] = [makeClaim("a0"), makeClaim("a0"), makeClaim("b0"), makeClaim("b0")];
  for (const claim of [first, second]) expect(await two.driver.claim(claim)).toMatchObject({ state: "waiting" });
  for (const claim of [third, fourth]) expect(await one.driver.claim(claim)).toMatchObject({ state: "waiting" });
  harness.crash();
  await harness.start();
  await harness.clock.advance(3_000);
  expect(harness.inspect().isRecovering).toBe(false);
  expect(harness.inspect().records.size).toBe(40);
  expect((await one.driver.renew([...firstHolding, third, fourth])).map((answer) => answer?.state)).toEqual([
    ...firstHolding.map(() => "held"),
    "waiting",
    "waiting",
  ]);
  expect((await two.driver.renew(otherHolding)).every((answer) => answer?.state === "held")).toBe(true);
  // full as before, and a release makes room as before
  await expect(two.driver.claim(makeClaim("more"))).rejects.toThrow("at most 40 claims on this server");
  await one.driver.release(toReleases(...firstHolding.slice(1, 2)));
  expectHeld(await one.driver.claim(makeClaim("more")));
  await flushEventLoop();
});

test("limits and recovery: claims placed under higher limits survive crashes and clean stops; the new limits count when a start finds no claim", async () => {
  const harness = new ServerHarness({ limits: { claimsPerAccount: 20 } });
  await harness.start();
  const client = await harness.connectClient();
  const firstHolding = await connectHolding(client, 18, "a");
  for (const [end, limits] of [
    ["crash", { claimsPerAccount: 5, claims: 9 }],
    ["stop", { claimsPerAccount: 5, claims: 9 }],
    ["crash", { claimsPerAccount: 4, claims: 8 }],
  ] as const) {
    if (end === "crash") harness.crash();
    else await harness.stop();
    harness.limits = resolveLimits(limits);
    await harness.start();
    await harness.clock.advance(3_000);
    expect(harness.inspect().records.size).toBe(18);
    expect((await client.driver.renew(firstHolding)).every((answer) => answer?.state === "held")).toBe(true);
    await expect(client.driver.claim(makeClaim("more"))).rejects.toThrow("at most");
  }
  await client.driver.release(toReleases(...firstHolding));
  await harness.stop();
  await harness.start();
  await harness.clock.advance(3_000);
  expect(harness.storage?.state).toContain('"claimsPerAccount":4');
  await connectHolding(client, 4, "b");
  await expect(client.driver.claim(makeClaim("one more"))).rejects.toThrow("at most 4 claims of one client");
});

// Each limit on claims, reached once. A full server refuses new claims; renewals and releases continue, and room returns.

import { expect, test } from "vitest";
import { StoreRefusedError } from "../../../src/errors.ts";
import type { ServerLimits } from "../../../src/server/limits.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { toReleases } from "../../support/releases.ts";
import type { OpenDriver } from "../../support/server-fixture.ts";
import { cleanUpAfterEach, expectHeld, makeClaim, openClient, startServer } from "../../support/server-fixture.ts";
import { ServerHarness } from "../../support/server-harness.ts";
import { createTestAccess, testAccount } from "../../support/test-accounts.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

const DAY_MS = 86_400_000;
const lockSpec = (key: string) => ({ key, permits: 1, limit: 1_000 });

async function startHarness(limits: Partial<ServerLimits>, clients: number): Promise<OpenDriver[]> {
  const it = await startServer({ limits });
  return Promise.all(Array.from({ length: clients }, () => openClient(it.addresses[0] as string)));
}

/** Full: new claims are refused, all other calls work; a release makes room. */
async function expectLimitReached(
  { driver }: OpenDriver,
  ownClaims: ReturnType<typeof makeClaim>[],
  description: string,
): Promise<void> {
  const newClaim = makeClaim("new");
  await expect(driver.claim(newClaim)).rejects.toThrow(description);
  await expect(driver.claim(newClaim)).rejects.toBeInstanceOf(StoreRefusedError);
  // a repeated claim call is not a new claim
  expect(await driver.claim(ownClaims[0] as never)).toMatchObject({ state: "held" });
  expect((await driver.renew(ownClaims)).every((answer) => answer?.state === "held")).toBe(true);
  expect(await driver.release(toReleases(...ownClaims.slice(0, 1)))).toEqual([true]);
  expectHeld(await driver.claim(newClaim));
  expect(await driver.release(toReleases(newClaim, ...ownClaims.slice(1)))).toEqual(ownClaims.map(() => true));
}

async function placeClaims(
  { driver }: Pick<OpenDriver, "driver">,
  count: number,
  from = 0,
): Promise<ReturnType<typeof makeClaim>[]> {
  const claims = Array.from({ length: count }, (_, n) => makeClaim(`k${from + n}`));
  for (const claim of claims) expectHeld(await driver.claim(claim));
  return claims;
}

test("claims: the limit counts the claims of all clients", async () => {
  const [first, second] = (await startHarness({ claims: 5 }, 2)) as [OpenDriver, OpenDriver];
  const ownClaims = await placeClaims(first, 3);
  await placeClaims(second, 2, 10);
  await expectLimitReached(first, ownClaims, "at most 5 claims on this server");
});

test("claims and claimsPerAccount: a claim of several keys counts once for each key, also when it is reclaimed", async () => {
  const ana = testAccount("ana");
  const harness = new ServerHarness({
    limits: { claims: 10, claimsPerAccount: 8 },
    access: createTestAccess(ana, testAccount("ben")),
  });
  await harness.start();
  const client = await harness.connectClient(true, ana.credential);
  const three = makeClaim(["a", "b", "c"]);
  expectHeld(await client.driver.claim(three));
  await expect(client.driver.claim(makeClaim(["d", "e", "f", "g", "h", "i"]))).rejects.toThrow(
    "at most 8 claims of one account, counting each of its 6 keys",
  );
  expectHeld(await client.driver.claim(makeClaim(["d", "e", "f", "g", "h"])));
  await expect(client.driver.claim(makeClaim("j"))).rejects.toThrow("at most 8 claims of one account");
  harness.crash();
  await harness.start();
  await harness.clock.advance(3_000);
  expect(harness.inspect().records.size).toBe(2);
  await expect(client.driver.claim(makeClaim("j"))).rejects.toThrow("at most 8 claims of one account");
  expect(await client.driver.release(toReleases(three))).toEqual([true]);
  expectHeld(await client.driver.claim(makeClaim(["a", "b", "c"])));
});

test("claims: the limit also bounds the tombstones that releases of unknown ids leave", async () => {
  const harness = new ServerHarness({ limits: { claims: 100 } });
  await harness.start();
  const { driver } = await harness.connectClient();
  for (let turn = 0; turn < 3; turn++) {
    const rejectedClaims = Array.from({ length: 90 }, (_, n) => makeClaim(`never${n}`, { ttlMs: DAY_MS }));
    await driver.release(rejectedClaims.map((claim) => ({ claim, hasUnansweredClaim: true })));
    // a late claim call still takes no entry
    expect(await driver.claim(rejectedClaims.at(-1) as never)).toMatchObject({ state: "none" });
  }
  expect(harness.inspect().table.tombstones.size).toBe(100);
});

test("claimsPerAccount: on a server without accounts the limit counts the claims of one client; other clients have their own", async () => {
  const [first, second] = (await startHarness({ claimsPerAccount: 3 }, 2)) as [OpenDriver, OpenDriver];
  const ownClaims = await placeClaims(first, 3);
  await placeClaims(second, 3, 10);
  await expectLimitReached(first, ownClaims, "at most 3 claims of one client");
});

test("claimsPerAccount: the limit counts the claims of all clients of an account, detached ones too; other accounts have their own", async () => {
  const [ana, ben] = [testAccount("ana"), testAccount("ben")];
  const it = await startServer({ limits: { claimsPerAccount: 4 }, access: createTestAccess(ana, ben) });
  const address = it.addresses[0] as string;
  const [first, second] = [
    await openClient(address, { credential: ana.credential }),
    await openClient(address, { credential: ana.credential }),
  ];
  const other = await openClient(address, { credential: ben.credential });
  const ownClaims = await placeClaims(first, 2);
  const [detached, plain] = await placeClaims(second, 2, 10);
  expect(await second.driver.detach?.([detached as never])).toEqual([true]);
  await placeClaims(other, 4, 20);
  await expectLimitReached(first, ownClaims, "at most 4 claims of one account");
  // an ended claim is no longer counted, however it ended
  await second.driver.release(toReleases(detached as never, plain as never));
  await placeClaims(first, 4, 30);
});

test("waitersPerKey: the limit counts the entries of one queue; other queues have their own", async () => {
  const [first, second] = (await startHarness({ waitersPerKey: 3 }, 2)) as [OpenDriver, OpenDriver];
  const line = [makeClaim("k"), makeClaim("k"), makeClaim("k")];
  for (const claim of line) await first.driver.claim(claim);
  await expect(second.driver.claim(makeClaim("k"))).rejects.toThrow("at most 3 entries in the queue of a key");
  await expect(second.driver.claim(makeClaim(["j", "k"]))).rejects.toThrow("at most 3 entries");
  expect(await second.driver.claim(makeClaim("k", { wait: false }))).toEqual({ state: "none" });
  expectHeld(await second.driver.claim(makeClaim("j")));
  expect(await first.driver.release(toReleases(...line.slice(0, 1)))).toEqual([true]);
  expect(await second.driver.claim(makeClaim("k"))).toMatchObject({ state: "waiting" });
  expect((await first.driver.renew(line.slice(1))).map((answer) => answer?.state)).toEqual(["held", "waiting"]);
});

test("waitersPerKey: the limit includes the holders, also those granted without waiting", async () => {
  const [first, second] = (await startHarness({ waitersPerKey: 3 }, 2)) as [OpenDriver, OpenDriver];
  const makeTryClaim = () => makeClaim([lockSpec("k")], { wait: false });
  for (let index = 0; index < 3; index++) expectHeld(await first.driver.claim(makeTryClaim()));
  await expect(second.driver.claim(makeTryClaim())).rejects.toThrow("at most 3 entries in the queue of a key");
  // a busy key is refused as busy, not as full, even when its queue is full
  expect(await second.driver.claim(makeClaim("k", { wait: false }))).toEqual({ state: "none" });
});

test("the counts of held claims, accounts and sessions return to zero however claims end", async () => {
  const ana = testAccount("ana", "", ["acquire", "revoke"]);
  const harness = new ServerHarness({ limits: { claimsPerAccount: 6 }, access: createTestAccess(ana) });
  await harness.start();
  for (let round = 0; round < 4; round++) {
    const [one, two] = [
      await harness.connectClient(true, ana.credential),
      await harness.connectClient(true, ana.credential),
    ];
    const [revoked, removed, expired, left] = await placeClaims(one, 4);
    const [waits, drops] = [makeClaim("k3"), makeClaim("k3")];
    await two.driver.claim(waits);
    await two.driver.claim(drops);
    const token = async (claim: unknown) => expectHeld((await one.driver.renew([claim as never]))[0]).token;
    await one.driver.revoke?.([{ key: "k0", token: await token(revoked), now: false }]);
    await one.driver.revoke?.([{ key: "k1", token: await token(removed), now: true }]);
    await one.driver.release(toReleases(revoked as never, left as never, expired as never));
    await harness.clock.advance(100);
    expect(two.pushes.find(({ id, answer }) => id === waits.id && answer?.state === "held")).toBeDefined();
    await two.driver.close();
    await one.driver.close();
    await harness.clock.advance(100);
    const { records, table } = harness.inspect();
    // a holder that stays counted for ever would make room for more waiters
    expect([records.size, table.waitingCount]).toEqual([0, 0]);
  }
  await placeClaims(await harness.connectClient(true, ana.credential), 6);
});

test("ttlMs: a longer lease is refused, in a claim, a renewal and a reclaim", async () => {
  const [{ driver }] = (await startHarness({ ttlMs: DAY_MS }, 1)) as [OpenDriver];
  expectHeld(await driver.claim(makeClaim("k", { ttlMs: DAY_MS })));
  await expect(driver.claim(makeClaim("j", { ttlMs: DAY_MS + 1 }))).rejects.toThrow("the longest lease is 24 h");
  await expect(driver.renew([makeClaim("j", { ttlMs: DAY_MS + 1 })])).rejects.toThrow("the longest lease is");
});

test("a claim of too many keys ends the connection that sent it", async () => {
  const [first, second] = (await startHarness({}, 2)) as [OpenDriver, OpenDriver];
  const keys = Array.from({ length: 129 }, (_, n) => lockSpec(`k${String(n).padStart(3, "0")}`));
  await expect(first.driver.claim(makeClaim(keys))).rejects.toThrow("connection");
  expectHeld(await second.driver.claim(makeClaim(keys.slice(1))));
});

test("a token floor more than a day ahead of the clock is refused", async () => {
  const [{ driver }] = (await startHarness({}, 1)) as [OpenDriver];
  const futureToken = (ms: number): bigint => BigInt(Date.now() + ms) * 1_000n;
  expectHeld(await driver.claim(makeClaim("k", { floor: futureToken(DAY_MS - 60_000) })));
  await expect(driver.claim(makeClaim("j", { floor: futureToken(DAY_MS + 60_000) }))).rejects.toThrow(
    "more than a day ahead",
  );
});

test("a label of more than 256 bytes is cut between two characters, and cannot move a cursor; neither can the label of a hello", async () => {
  const it = await startServer();
  const long = `\u001b[2J${"é".repeat(500)}`;
  const { driver } = await openClient(it.addresses[0] as string, { label: `${long}!` });
  const [own, common] = [makeClaim("own", { label: long }), makeClaim("common", { label: `${long}!` })];
  for (const claim of [own, common]) expectHeld(await driver.claim(claim));
  const labels = (await driver.list({ prefix: "" }, { max: 10 })).items.map(({ label }) => label);
  expect(labels).toEqual([` [2J${"é".repeat(126)}`, ` [2J${"é".repeat(126)}`]);
  expect(Buffer.byteLength(labels[0] as string)).toBe(256);
});

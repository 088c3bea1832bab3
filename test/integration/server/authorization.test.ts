// What a credential may do, and that it can neither see nor change anything else.

import { expect, test } from "vitest";
import type { Right } from "../../../src/auth/access-control.ts";
import { createAccessControl } from "../../../src/auth/access-control.ts";
import { connect } from "../../../src/client/connect.ts";
import type { Locks } from "../../../src/client/locks.ts";
import { StoreRefusedError } from "../../../src/errors.ts";
import { until } from "../../../src/testing/until.ts";
import { publicTag, randomId } from "../../../src/util/ids.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { parseRawAddress, RawClient } from "../../support/raw-client.ts";
import { toReleases } from "../../support/releases.ts";
import type { OpenDriver } from "../../support/server-fixture.ts";
import {
  cleanUpAfterEach,
  expectHeld,
  makeClaim,
  onCleanup,
  openClient,
  startServer,
} from "../../support/server-fixture.ts";
import { ServerHarness } from "../../support/server-harness.ts";
import type { TestAccount } from "../../support/test-accounts.ts";
import { createTestAccess, testAccount } from "../../support/test-accounts.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

const ana = testAccount("ana", "a/");
const ben = testAccount("ben", "b/");
const root = testAccount("root");

/** A server for these accounts, and a client of each. */
async function startHarness(...accounts: readonly TestAccount[]): Promise<{
  readonly clients: readonly OpenDriver[];
  readonly it: Awaited<ReturnType<typeof startServer>>;
  readonly address: string;
}> {
  const it = await startServer({ access: createTestAccess(...accounts), listen: "holdfast://127.0.0.1:0" });
  const address = it.addresses[0] as string;
  const clients: OpenDriver[] = [];
  for (const { credential } of accounts) clients.push(await openClient(address, { credential }));
  return { clients, it, address };
}

function toError(acquire: Promise<unknown>): Promise<unknown> {
  return acquire.then(
    () => "granted",
    (error: unknown) => error,
  );
}

async function openRawClient(address: string, { credential }: TestAccount): Promise<RawClient> {
  const rawClient = await RawClient.open(parseRawAddress(address), { credential });
  onCleanup(() => rawClient.end());
  return rawClient;
}

test("a claim is refused unless acquire is allowed on every one of its keys", async () => {
  const { clients } = await startHarness(ana);
  const [{ driver }] = clients as readonly [OpenDriver];
  expectHeld(await driver.claim(makeClaim("a/1")));
  for (const keys of [["b/1"], ["a"], ["a/2", "b/1"], ["A/1"]]) {
    await expect(driver.claim(makeClaim(keys))).rejects.toThrow("may not acquire");
  }
  await expect(driver.claim(makeClaim("b/1"))).rejects.toBeInstanceOf(StoreRefusedError);
});

test("a prefix matches character by character: team-a/ matches neither team-ab/ nor team-a, and a rule for one key matches that key only", async () => {
  const teamAccount = testAccount("team", "team-a/");
  const account = testAccount("one", "deploy", ["acquire"], { isExactKey: true });
  const { clients } = await startHarness(teamAccount, account);
  const [first, second] = clients as readonly [OpenDriver, OpenDriver];
  expectHeld(await first.driver.claim(makeClaim("team-a/x")));
  for (const key of ["team-ab", "team-ab/x", "team-a", "team-", "xteam-a/x"]) {
    await expect(first.driver.claim(makeClaim(key))).rejects.toThrow("may not acquire");
  }
  expectHeld(await second.driver.claim(makeClaim("deploy")));
  for (const key of ["deploy2", "deploy/x", "deplo"]) {
    await expect(second.driver.claim(makeClaim(key))).rejects.toThrow("may not acquire");
  }
});

test("an action that no rule allows is refused: no right implies another", async () => {
  const rights: readonly Right[] = ["acquire", "inspect", "revoke", "admin"];
  const accounts = rights.map((right) => testAccount(right, "k/", [right]));
  const { clients, it } = await startHarness(...accounts, root);
  const holder = clients.at(-1) as OpenDriver;
  const { token } = expectHeld(await holder.driver.claim(makeClaim("k/1", { label: "root's" })));
  const [acquire, inspect, revoke, admin] = clients as readonly [OpenDriver, OpenDriver, OpenDriver, OpenDriver];
  expectHeld(await acquire.driver.claim(makeClaim("k/2")));
  for (const { driver } of [inspect, revoke, admin]) {
    await expect(driver.claim(makeClaim("k/2"))).rejects.toThrow("may not acquire");
  }
  expect((await inspect.driver.list({ prefix: "" }, { max: 10 })).items.map(({ locks }) => locks[0].key)).toEqual([
    "k/1",
    "k/2",
  ]);
  for (const { driver } of [acquire, revoke, admin])
    expect((await driver.list({ prefix: "" }, { max: 10 })).items).toEqual([]);
  const target = { key: "k/1", token, now: false };
  for (const { driver } of [acquire, inspect, admin]) {
    await expect(driver.revoke?.([target])).rejects.toThrow("may not revoke");
    // the answer does not depend on whether there is a claim to revoke
    await expect(driver.revoke?.([{ ...target, key: "k/nothing" }])).rejects.toThrow("may not revoke");
  }
  expect(await revoke.driver.revoke?.([target])).toEqual([true]);
  expect(it.stats().claims).toBe(2);
});

test("to another account a claim does not exist, even if that account knows its id", async () => {
  const otherAccount = testAccount("other");
  const { clients, address } = await startHarness(root, otherAccount);
  const [owner, impostor] = clients as readonly [OpenDriver, OpenDriver];
  const claim = makeClaim("k");
  const waiting = makeClaim("k");
  const { token } = expectHeld(await owner.driver.claim(claim));
  await owner.driver.claim(waiting);
  const id = claim.id;
  expect(await impostor.driver.renew([claim])).toEqual([{ state: "none" }]);
  expect(await impostor.driver.release(toReleases(claim, waiting))).toEqual([false, false]);
  expect(await impostor.driver.detach?.([claim])).toEqual([false]);
  expect(await impostor.driver.claim(claim)).toEqual({ state: "none" });
  const line = await openRawClient(address, otherAccount);
  const was = [
    [
      [id, ["k"], 30_000],
      ["held", String(token), 1, 30_000],
    ],
  ];
  expect(await line.call("reclaim", was, true)).toEqual([["none"]]);
  // answers keep their positions when the account's own claim is among them
  const ownId = randomId();
  await line.claim(ownId, "mine");
  expect(await line.call("renew", [id, ownId, id])).toEqual([["none"], expect.arrayContaining(["held"]), ["none"]]);
  expect(await line.call("release", [id, ownId])).toEqual([0, 1]);
  expect(await owner.driver.renew([claim, waiting])).toMatchObject([{ state: "held", token }, { state: "waiting" }]);
});

test("during recovery a claim held by another account is answered like an unreported one", async () => {
  const [owner, other] = [testAccount("owner"), testAccount("other")];
  // no claim was saved: every start is a recovery
  const it = await startServer({ access: createTestAccess(owner, other), state: "none" });
  const address = it.addresses[0] as string;
  expect(it.recoveryRemainingMs).toBeGreaterThan(0);
  const holder = await openRawClient(address, owner);
  const [id, unknown] = [randomId(), randomId()];
  const was = [
    [
      [id, ["k"], 30_000],
      ["held", "1000", 1, 30_000],
    ],
  ];
  expect(await holder.call("reclaim", was, true)).toEqual([expect.arrayContaining(["held"])]);
  const line = await openRawClient(address, other);
  await line.call("reclaim", [], true);
  const answers = (call: (of: string) => Promise<unknown>): Promise<unknown[]> =>
    Promise.all([id, unknown].map((claimId) => call(claimId).catch((error: Error) => error.message)));
  for (const verb of ["renew", "release", "detach"]) {
    const [known_, unknown_] = await answers((claimId) => line.call(verb, [claimId]));
    expect(known_, verb).toEqual(unknown_);
  }
  expect((await answers((claimId) => line.call("renew", [claimId])))[0]).toEqual([null]);
  // its holder still has it
  expect(await holder.call("renew", [id])).toEqual([expect.arrayContaining(["held", "1000"])]);
});

test("another credential of the same account can continue with its claims, and a detached claim stays with the account", async () => {
  const { clients, address } = await startHarness(ana, root);
  const [first, other] = clients as readonly [OpenDriver, OpenDriver];
  const claim = makeClaim("a/1");
  const { token } = expectHeld(await first.driver.claim(claim));
  expect(await first.driver.detach?.([claim])).toEqual([true]);
  expect(await other.driver.renew([claim])).toEqual([{ state: "none" }]);
  const second = await openClient(address, { credential: ana.credential });
  expect(await second.driver.renew([claim])).toMatchObject([{ state: "held", token }]);
  expect(await other.driver.release(toReleases(claim))).toEqual([false]);
  expect(await second.driver.release(toReleases(claim))).toEqual([true]);
});

test("an account that may no longer acquire a key cannot renew its claim there, but can release it", async () => {
  const access = createTestAccess(root);
  const it = await startServer({ access });
  const { driver } = await openClient(it.addresses[0] as string, { credential: root.credential });
  const [keptClaim, lostClaim] = [makeClaim("a/1"), makeClaim("b/1")];
  expectHeld(await driver.claim(keptClaim));
  expectHeld(await driver.claim(lostClaim));
  access.replace([{ ...root.account, rules: ana.account.rules }]);
  const revoked = { state: "none", reason: "revoked" };
  expect(await driver.renew([lostClaim, keptClaim])).toMatchObject([revoked, { state: "held" }]);
  // nor can it by sending other keys with its id
  expect(await driver.claim({ ...lostClaim, locks: makeClaim("a/2").locks })).toEqual(revoked);
  expect(it.stats().claims).toBe(2);
  expect(await driver.release(toReleases(lostClaim, keptClaim))).toEqual([true, true]);
});

test("a client whose account may no longer acquire a key leaves its queue at the reload, and its holders stop", async () => {
  const access = createTestAccess(root, ben);
  const it = await startServer({ access });
  const connectAs = async ({ credential }: TestAccount): Promise<Locks> => {
    const locks = await connect(it.addresses[0] as string, { credential });
    onCleanup(() => locks.close());
    return locks;
  };
  const [losing, other] = [await connectAs(root), await connectAs(ben)];
  const held = await losing.acquire("b/held");
  const busy = await other.acquire("b/busy");
  const readers = await other.rw("b/rw").read.acquire();
  const waits = [losing.acquire("b/busy"), losing.rw("b/rw").write.acquire()].map(toError);
  await until(() => it.stats().claims === 5, { within: 5_000, what: "the waits" });
  // behind the writer: it must not be admitted when the writer has left
  waits.push(toError((await connectAs(root)).rw("b/rw").read.acquire()));
  await until(() => it.stats().claims === 6, { within: 5_000, what: "the wait of the reader" });
  access.replace([{ ...root.account, rules: ana.account.rules }, ben.account]);
  // at once, whatever their client does when it receives the frame "lost"
  expect(it.stats().claims).toBe(3);
  for (const error of await Promise.all(waits)) {
    expect(error).toBeInstanceOf(StoreRefusedError);
    expect((error as Error).message).toContain("may not acquire");
  }
  await until(() => held.signal.aborted, { within: 5_000, what: "the loss of the held lock" });
  expect(held.signal.reason).toMatchObject({ code: "LOCK_LOST", reason: "revoked" });
  // its lease has not ended, so no other session acquires the lock before it is released
  expect(await other.tryAcquire("b/held")).toBeNull();
  await held.release();
  await (await other.acquire("b/held", { wait: 5_000 })).release();
  await busy.release();
  await readers.release();
  await until(() => it.stats().claims === 0, { within: 5_000, what: "the end of all claims" });
});

test("a waiter that returns with a credential whose rules do not allow its key any more is not granted", async () => {
  const next = testAccount("root");
  const access = createTestAccess(root, ben);
  const it = await startServer({ access, listen: "holdfast://127.0.0.1:0" });
  const address = it.addresses[0] as string;
  const { driver } = await openClient(address, { credential: ben.credential });
  const busy = makeClaim("b/1");
  expectHeld(await driver.claim(busy));
  let { credential } = root;
  const returning = await openClient(address, { credential: () => credential });
  const waiting = makeClaim("b/1");
  expect(await returning.driver.claim(waiting)).toMatchObject({ state: "waiting" });
  credential = next.credential;
  // its credential is removed: until it has come back with another one, its place is kept for a moment
  access.replace([{ ...next.account, rules: ana.account.rules }, ben.account]);
  await until(() => it.stats().claims === 1, { within: 3_000, what: "the end of its place, when it is back" });
  expect(await driver.release(toReleases(busy))).toEqual([true]);
  expect(returning.pushes.all.filter(({ answer }) => answer?.state === "held")).toEqual([]);
  expect(it.stats().claims).toBe(0);
});

test("in the queue of a key that it may not inspect, an account sees its own claims", async () => {
  const eve = testAccount("eve", "", ["acquire"]);
  const { clients } = await startHarness(eve, root);
  const [{ driver: own }, { driver: other }] = clients as readonly [OpenDriver, OpenDriver];
  const shared = [{ key: "k", permits: 1, limit: 2 }] as const;
  expectHeld(await other.claim(makeClaim(shared, { label: "root's" })));
  expectHeld(await own.claim(makeClaim(shared, { label: "held" })));
  await other.claim(makeClaim(shared));
  await own.claim(makeClaim(shared, { label: "waits" }));
  const list = async (max: number): Promise<readonly string[]> =>
    (await own.list({ key: "k" }, { max })).items.map(({ label }) => label);
  expect(await list(10)).toEqual(["held", "waits"]);
  expect(await list(1)).toEqual(["held"]);
  const [first] = (await own.list({ key: "k" }, { max: 1 })).items;
  expect((await own.list({ key: "k" }, { max: 9, after: first?.tag as string })).items).toMatchObject([
    { label: "waits" },
  ]);
  expect((await own.list({ prefix: "" }, { max: 10 })).items).toEqual([]);
});

test("a list contains only what the account may inspect, and is filtered before the page is cut", async () => {
  const { clients, address } = await startHarness(ana, root);
  const [ownClient, all] = clients as readonly [OpenDriver, OpenDriver];
  const line = await openRawClient(address, root);
  const frames = Array.from({ length: 3_000 }, (_, n) => `["claim",${n + 9_000},"${randomId()}",["0/${n}"],30000]`);
  line.send(...frames);
  await line.call("ping");
  const multiKeyClaim = makeClaim(["a/1", "z/secret"], { label: "both" });
  await all.driver.claim(multiKeyClaim);
  await all.driver.claim(makeClaim("a/2"));
  expect((await all.driver.list({ prefix: "" }, { max: 5_000 })).items.length).toBe(3_002);
  const seenClaimViews = (await ownClient.driver.list({ prefix: "" }, { max: 2 })).items;
  // for a claim of several keys, only the keys that the account may inspect
  expect(seenClaimViews.map(({ locks }) => locks.map(({ key }) => key))).toEqual([["a/1"], ["a/2"]]);
  expect(seenClaimViews[0]?.tag).toBe(publicTag(multiKeyClaim.id));
  expect((await ownClient.driver.list({ prefix: "z/" }, { max: 10 })).items).toEqual([]);
  expect((await ownClient.driver.list({ prefix: "" }, { max: 1, after: seenClaimViews[0]?.tag })).items).toMatchObject([
    { tag: seenClaimViews[1]?.tag },
  ]);
});

test("a revocation needs a token of the holder, any in its range, and reports its reason", async () => {
  const { clients, it } = await startHarness(root, testAccount("ops", "", ["revoke", "inspect"]));
  const [holder, ops] = clients as readonly [OpenDriver, OpenDriver];
  const claim = makeClaim("k", { tokenCount: 8 });
  const { token } = expectHeld(await holder.driver.claim(claim));
  const targets = (token: bigint) => [{ key: "k", token, now: false, reason: "hung\u0007 since\nnoon" }];
  expect(await ops.driver.revoke?.(targets(token - 1n))).toEqual([false]);
  expect(await ops.driver.revoke?.(targets(token + 8n))).toEqual([false]);
  expect(it.logged.filter((line) => line.includes("revoked"))).toEqual([]);
  expect(await ops.driver.revoke?.(targets(token + 7n))).toEqual([true]);
  const [logLine] = it.logged.filter((line) => line.includes("revoked"));
  expect(logLine).toContain('"account":"ops"');
  expect(logLine).toContain("hung  since noon");
  expect(await holder.driver.renew([claim])).toEqual([{ state: "none", reason: "revoked" }]);
});

test("accounts that are configured later can still use claims that were placed without accounts", async () => {
  const first = await startServer();
  const before = makeClaim("a/1");
  const earlyClient = await openClient(first.addresses[0] as string);
  const { token } = expectHeld(await earlyClient.driver.claim(before));
  expect(await earlyClient.driver.detach?.([before])).toEqual([true]);
  await first.close();
  const it = await startServer({ in: first.dir, access: createAccessControl([ana.account, ben.account]) });
  const [ownClient, other] = [
    await openClient(it.addresses[0] as string, { credential: ana.credential }),
    await openClient(it.addresses[0] as string, { credential: ben.credential }),
  ];
  // ben knows the id, but may not acquire the key
  expect(await other.driver.renew([before])).toEqual([{ state: "none", reason: "revoked" }]);
  expect(await ownClient.driver.renew([before])).toMatchObject([{ state: "held", token }]);
});

test.each(["is stopped", "dies"])("the owner of a claim is known after a server %s", async (ending) => {
  const otherAccount = testAccount("other");
  const harness = new ServerHarness({ access: createTestAccess(root, otherAccount) });
  await harness.start();
  const owner = await harness.connectClient(true, root.credential);
  const [detached, session] = [makeClaim("d", { ttlMs: 600_000 }), makeClaim("s")];
  expectHeld(await owner.driver.claim(detached));
  expectHeld(await owner.driver.claim(session));
  expect(await owner.driver.detach?.([detached])).toEqual([true]);
  if (ending === "dies") harness.crash();
  else await harness.stop();
  await harness.start();
  await harness.clock.advance(5_000);
  const impostor = await harness.connectClient(true, otherAccount.credential);
  expect(await impostor.driver.renew([detached, session])).toEqual([{ state: "none" }, { state: "none" }]);
  expect(await impostor.driver.release(toReleases(detached, session))).toEqual([false, false]);
  expect(await owner.driver.renew([detached, session])).toMatchObject([{ state: "held" }, { state: "held" }]);
});

import { expect, test } from "vitest";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { lockServer } from "../../../src/drivers/server/driver.ts";
import type { Claim, Driver } from "../../../src/spi/driver.ts";
import { NO_EVENTS, withTraits } from "../../support/driver-events.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { toReleases } from "../../support/releases.ts";
import { cleanUpAfterEach, expectHeld, makeClaim, openClient, startServer } from "../../support/server-fixture.ts";
import { until } from "../../support/until.ts";

/** A store whose claims take as long as the test wants: before they are carried out, or on the way back. */
function createSlowStore(side: "there" | "back"): {
  driver: Driver;
  other: Driver;
  callCount: () => number;
  resume: () => void;
} {
  const store = memoryStore();
  const inner = memory({ store });
  let resume: () => void = () => undefined;
  const gate = new Promise<void>((resolve) => {
    resume = resolve;
  });
  let callCount = 0;
  const driver: Driver = {
    ...inner,
    async claim(claim) {
      callCount++;
      if (side === "there") await gate;
      const answer = await inner.claim(claim);
      if (side === "back") await gate;
      return answer;
    },
  };
  return { driver, other: memory({ store }), callCount: () => callCount, resume };
}

checkLeaksAfterEach();
cleanUpAfterEach();

test("a driver behind a server: claims, pushes, lists and releases go through", async () => {
  const store = memoryStore();
  const it = await startServer({ driver: memory({ store }) });
  const client = await openClient(it.addresses[0] as string);
  const other = await openClient(it.addresses[0] as string);
  const [claimA, claimB] = [makeClaim("k", { label: "first" }), makeClaim("k")];
  const before = expectHeld(await client.driver.claim(claimA));
  expect(await other.driver.claim(claimB)).toMatchObject({ state: "waiting" });
  expect(await client.driver.renew([claimA])).toMatchObject([{ state: "held", token: before.token }]);
  expect((await client.driver.list({ prefix: "" }, { max: 1 })).items).toMatchObject([{ label: "first" }]);
  expect(await client.driver.release(toReleases(claimA))).toEqual([true]);
  const next = await other.pushes.waitForGrant(claimB);
  expect(next.token).toBeGreaterThan(before.token);
  expect(await other.driver.revoke?.([{ key: "k", token: next.token, now: false }])).toEqual([true]);
  expect(await other.driver.renew([claimB])).toEqual([{ state: "none", reason: "revoked" }]);
});

test("an id that the driver omits from a renewal is omitted in the client's answer; the others are answered", async () => {
  const inner = memory();
  const driver: Driver = {
    ...inner,
    async renew(claims) {
      const answers = await inner.renew(claims);
      return answers.map((answer, index) => (claims[index]?.locks[0].key === "quiet" ? undefined : answer));
    },
  };
  const it = await startServer({ driver });
  const { driver: proxyDriver } = await openClient(it.addresses[0] as string);
  const [silentClaim, answeredClaim] = [makeClaim("quiet"), makeClaim("told")];
  const before = [expectHeld(await proxyDriver.claim(silentClaim)), expectHeld(await proxyDriver.claim(answeredClaim))];
  const answers = await proxyDriver.renew([silentClaim, answeredClaim]);
  expect(answers).toMatchObject([undefined, { state: "held", token: before[1]?.token }]);
  // the proxy still knows the claim
  expect(await proxyDriver.release(toReleases(silentClaim, answeredClaim))).toEqual([true, true]);
});

test("the client has the driver's traits, except those of the driver's sessions", async () => {
  const driver = memory();
  const it = await startServer({ driver });
  const { traits } = await openClient(it.addresses[0] as string);
  expect(traits).toEqual(await memory().open(NO_EVENTS));
});

test("on a Unix socket a client's locks end with its connection; a detached claim stays", async () => {
  const it = await startServer({ driver: memory() });
  const client = await openClient(it.addresses[0] as string);
  const other = await openClient(it.addresses[0] as string);
  const [claimA, claimB, keptClaim] = [makeClaim("a"), makeClaim("a"), makeClaim("kept")];
  await client.driver.claim(claimA);
  const before = expectHeld(await client.driver.claim(keptClaim));
  expect(await client.driver.detach?.([keptClaim])).toEqual([true]);
  await other.driver.claim(claimB);
  await client.driver.close();
  await other.pushes.waitForGrant(claimB);
  expect(await other.driver.renew([keptClaim])).toMatchObject([{ state: "held", token: before.token }]);
});

test("an id that another client uses is refused", async () => {
  const it = await startServer({ driver: memory() });
  const client = await openClient(it.addresses[0] as string);
  const other = await openClient(it.addresses[0] as string);
  const claimA = makeClaim("a");
  await client.driver.claim(claimA);
  await expect(other.driver.claim(claimA)).rejects.toMatchObject({ code: "LOCK_STORE_REFUSED" });
  expect(await client.driver.release(toReleases(claimA))).toEqual([true]);
});

test("after a restart of the proxy its clients' claims are known again, since the store kept them", async () => {
  const store = memoryStore();
  const first = await startServer({ driver: memory({ store }) });
  const client = await openClient(first.addresses[0] as string);
  const claimA = makeClaim("a");
  const before = expectHeld(await client.driver.claim(claimA));
  await first.close();
  await startServer({ driver: memory({ store }), in: first.dir });
  await until(() => client.pushes.all.some(({ id }) => id === null), { within: 3_000, what: "the reconnect" });
  expect(await client.driver.renew([claimA])).toMatchObject([{ state: "held", token: before.token }]);
  expect(await client.driver.release(toReleases(claimA))).toEqual([true]);
});

test("an error of the store fails the call; its message is logged and not sent to the client", async () => {
  const driver: Driver = { ...memory(), claim: () => Promise.reject(new Error("password=hunter2")) };
  const it = await startServer({ driver });
  const { driver: proxyDriver } = await openClient(it.addresses[0] as string);
  await expect(proxyDriver.claim(makeClaim("k"))).rejects.toThrow("the server's call to its store failed (memory)");
  expect(it.logged.join()).toContain("hunter2");
});

test("an outage of the store is logged once at its start, and once at its end with the number of failed calls", async () => {
  const clock = new FakeClock();
  const inner = memory({ store: memoryStore(clock) });
  let isDown = true;
  const claim: Driver["claim"] = (claim) => (isDown ? Promise.reject(new Error("no route")) : inner.claim(claim));
  const it = await startServer({ driver: { ...inner, name: "redis", claim }, clock });
  const { driver } = await openClient(it.addresses[0] as string);
  for (let n = 0; n < 20; n++)
    await expect(driver.claim(makeClaim(`k${n}`))).rejects.toThrow("call to its store failed");
  // one answered call among failing ones does not end the outage
  isDown = false;
  await expect(driver.claim(makeClaim("a"))).resolves.toMatchObject({ state: "held" });
  isDown = true;
  await expect(driver.claim(makeClaim("b"))).rejects.toThrow("call to its store failed");
  isDown = false;
  await expect(driver.claim(makeClaim("b"))).resolves.toMatchObject({ state: "held" });
  expect(it.logged).toEqual(["redis failed: Error: no route"]);
  await clock.advance(5_000);
  await expect(driver.claim(makeClaim("c"))).resolves.toMatchObject({ state: "held" });
  expect(it.logged.slice(1)).toEqual(['redis can be reached again {"calls":21,"ms":5000}']);
});

test.each([true, false])(
  "the holder of a lock that another client releases by its reference is notified at once (attached before: %s)",
  async (isTaken) => {
    const it = await startServer({ driver: memory() });
    const holder = await openClient(it.addresses[0] as string);
    const other = await openClient(it.addresses[0] as string);
    const lock = makeClaim("k");
    expectHeld(await holder.driver.claim(lock));
    if (isTaken) await other.driver.renew([lock]);
    expect(await other.driver.release(toReleases(lock))).toEqual([true]);
    await until(() => holder.pushes.all.some(({ id }) => id === lock.id), { within: 2_000, what: "the recheck" });
    expect(await holder.driver.renew([lock])).toMatchObject([{ state: "none" }]);
  },
);

test("claims that the store has dropped are dropped by the proxy, too", async () => {
  const clock = new FakeClock();
  const store = memoryStore(clock);
  const it = await startServer({ driver: memory({ store }), clock });
  const { driver } = await openClient(it.addresses[0] as string);
  for (let turn = 0; turn < 3; turn++) {
    await Promise.all(
      Array.from({ length: 600 }, (_, index) => driver.claim(makeClaim(`k${turn}-${index}`, { ttlMs: 1_000 }))),
    );
    await clock.advance(10_000);
  }
  expect(it.stats().claims).toBeLessThan(1_300);
});

test.each(["there", "back"] as const)(
  "a client that disconnects during its claim (%s) leaves no queue entry",
  async (side) => {
    const { driver, other, callCount, resume } = createSlowStore(side);
    const it = await startServer({ driver });
    const client = await openClient(it.addresses[0] as string);
    const call = client.driver.claim(makeClaim("k", { ttlMs: 60_000 }));
    call.catch(() => undefined);
    await until(() => callCount() > 0, { within: 2_000, what: "the call at the store" });
    await client.driver.close();
    await until(() => it.stats().claims === 0, { within: 2_000, what: "the end of the session" });
    resume();
    await other.open(NO_EVENTS);
    const next = makeClaim("k", { wait: false });
    await expect.poll(async () => (await other.claim(next)).state, { timeout: 2_000 }).toBe("held");
    await other.release(toReleases(next));
  },
);

test("a store that did not remember the release of an unanswered claim is asked again when the late answer arrives", async () => {
  const { driver, other, callCount, resume } = createSlowStore("there");
  const driverWithoutDetach: Driver = {
    ...driver,
    release: (releases) => driver.release(toReleases(...releases.map(({ claim }) => claim))),
  };
  const it = await startServer({ driver: driverWithoutDetach });
  const client = await openClient(it.addresses[0] as string);
  client.driver.claim(makeClaim("k", { ttlMs: 60_000 })).catch(() => undefined);
  await until(() => callCount() > 0, { within: 2_000, what: "the call at the store" });
  await client.driver.close();
  await until(() => it.stats().claims === 0, { within: 2_000, what: "the end of the session" });
  resume();
  await other.open(NO_EVENTS);
  const next = makeClaim("k", { wait: false });
  await expect.poll(async () => (await other.claim(next)).state, { timeout: 2_000 }).toBe("held");
});

test("a failed release for a disconnected client is repeated, unless the client has claimed the id again", async () => {
  const store = memoryStore();
  const inner = memory({ store });
  let isAway = false;
  let refusalCount = 0;
  const driver: Driver = {
    ...inner,
    async release(releases) {
      if (isAway) refusalCount++;
      if (isAway) throw new Error("away");
      return inner.release(releases);
    },
  };
  const it = await startServer({ driver });
  const client = await openClient(it.addresses[0] as string);
  const [claimA, claimB] = [makeClaim("a", { ttlMs: 3_600_000 }), makeClaim("b", { ttlMs: 3_600_000 })];
  await client.driver.claim(claimA);
  const before = expectHeld(await client.driver.claim(claimB));
  isAway = true;
  await client.driver.close();
  await until(() => refusalCount > 0, { within: 2_000, what: "the release that fails" });
  const other = await openClient(it.addresses[0] as string);
  const expectedAnswers = [{ state: "held", token: before.token }];
  expect(await other.driver.renew([claimB])).toMatchObject(expectedAnswers);
  isAway = false;
  await until(async () => (await other.driver.claim(makeClaim("a", { wait: false }))).state === "held", {
    within: 2_000,
    what: "the key that nobody wants",
  });
  expect(await other.driver.renew([claimB])).toMatchObject(expectedAnswers);
});

test("a claim that the store cannot carry out is refused, not carried out in part: of several keys it would take one", async () => {
  const receivedClaims: Claim[] = [];
  const inner = memory();
  const driver: Driver = {
    ...inner,
    ...withTraits(inner, { lease: { claim: false, sessionMs: 5_000 }, manyKeys: false, permits: "shared" }),
    async claim(claim) {
      receivedClaims.push(claim);
      return inner.claim(claim);
    },
  };
  const it = await startServer({ driver });
  const { driver: proxyDriver } = await openClient(it.addresses[0] as string);
  const ttlMs = "session" as const;
  const unsupported = { code: "LOCK_STORE_REFUSED" };
  await expect(proxyDriver.claim(makeClaim(["a", "b"], { ttlMs }))).rejects.toMatchObject(unsupported);
  await expect(proxyDriver.renew([makeClaim(["a", "b"], { ttlMs })])).rejects.toMatchObject(unsupported);
  await expect(proxyDriver.claim(makeClaim([{ key: "a", permits: 1, limit: 2 }], { ttlMs }))).rejects.toMatchObject(
    unsupported,
  );
  await expect(proxyDriver.claim(makeClaim("a", { ttlMs: 5_000 }))).rejects.toMatchObject(unsupported);
  expect(receivedClaims).toEqual([]);
  expectHeld(await proxyDriver.claim(makeClaim("a", { ttlMs })));
});

test("a server on a Unix socket is refused as the store of a proxy: all locks would end with the proxy's connection", async () => {
  const store = await startServer();
  const relay = startServer({ driver: lockServer({ path: store.path }), listen: "holdfast://127.0.0.1:0" });
  await expect(relay).rejects.toThrow("a server on a Unix socket cannot be the store of another server");
  await until(() => store.stats().sessions === 0, { within: 2_000, what: "the end of the relay's session" });
});

test("a revoked claim keeps its entry in the store until its client releases it through the proxy", async () => {
  const it = await startServer({ driver: memory() });
  const client = await openClient(it.addresses[0] as string);
  const other = await openClient(it.addresses[0] as string);
  const [claimA, claimB] = [makeClaim("k"), makeClaim("k")];
  const { token } = expectHeld(await client.driver.claim(claimA));
  await other.driver.claim(claimB);
  expect(await other.driver.revoke?.([{ key: "k", token, now: false }])).toEqual([true]);
  expect(await client.driver.renew([claimA])).toEqual([{ state: "none", reason: "revoked" }]);
  expect(await other.driver.renew([claimB])).toMatchObject([{ state: "waiting" }]);
  await client.driver.release(toReleases(claimA));
  await other.pushes.waitForGrant(claimB);
});

test("a store that recalls does so through a server in front of it, and token ranges grow there", async () => {
  const store = memoryStore();
  const it = await startServer({ driver: memory({ store }) });
  const client = await openClient(it.addresses[0] as string);
  expect(client.traits.recall).toBe("push");
  const recalls: string[] = [];
  const holder = lockServer({ path: it.path });
  await holder.open({ ...NO_EVENTS, recalled: (id) => void recalls.push(id) });
  const [claimA, claimB] = [makeClaim("k", { recall: true }), makeClaim("k")];
  const { token } = expectHeld(await holder.claim(claimA));
  expect(await holder.renew([claimA], [40])).toMatchObject([{ token, tokenCount: 40 }]);
  expect(await client.driver.claim(claimB)).toMatchObject({ state: "waiting" });
  await until(() => recalls.length > 0, { within: 5_000, what: "the recall" });
  expect(recalls[0]).toBe(claimA.id);
  expect(await holder.renew([claimA])).toMatchObject([{ state: "held", recalled: true }]);
  expect(await client.driver.revoke?.([{ key: "k", token: token + 39n, now: true }])).toEqual([true]);
  await client.pushes.waitForGrant(claimB);
  await holder.close();
});

test("a client learns only its own claims as successors: the store takes all clients of a proxy for one", async () => {
  const it = await startServer({ driver: memory() });
  const client = await openClient(it.addresses[0] as string);
  const other = await openClient(it.addresses[0] as string);
  const makeSuccessor = (): Claim => makeClaim("k", { successors: true });
  const [holder, first, second, foreign, last] = [
    makeClaim("k"),
    makeSuccessor(),
    makeSuccessor(),
    makeSuccessor(),
    makeSuccessor(),
  ];
  const expectWaiting = async ({ driver }: typeof client, claim: Claim): Promise<void> =>
    expect(await driver.claim(claim)).toMatchObject({ state: "waiting" });
  expectHeld(await client.driver.claim(holder));
  await expectWaiting(client, first);
  await expectWaiting(client, second);
  await expectWaiting(other, foreign);
  await expectWaiting(client, last);
  await client.driver.release(toReleases(holder));
  expect((await client.pushes.waitForGrant(first)).successors).toEqual([second.id]);
  await client.driver.release(toReleases(second, first));
  expect(await other.pushes.waitForGrant(foreign)).not.toHaveProperty("successors");
});

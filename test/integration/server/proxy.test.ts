import { expect, test } from "vitest";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { server as serverDriver } from "../../../src/drivers/server/driver.ts";
import { LockTable } from "../../../src/lock-table/table.ts";
import type { Claim, Driver } from "../../../src/spi/driver.ts";
import { NO_EVENTS, withTraits } from "../../support/driver-events.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { toReleases } from "../../support/releases.ts";
import { cleanUpAfterEach, expectHeld, makeClaim, openClient, startServer } from "../../support/server-fixture.ts";
import { until } from "../../support/until.ts";

/** A store whose claims take as long as the test wants: before they are carried out, or on the way back. */
function createSlowStore(where: "there" | "back"): {
  driver: Driver;
  other: Driver;
  asked: () => number;
  go: () => void;
} {
  const store = memoryStore();
  const inner = memory({ store });
  let go: () => void = () => undefined;
  const gate = new Promise<void>((resolve) => {
    go = resolve;
  });
  let asked = 0;
  const driver: Driver = {
    ...inner,
    async claim(claim) {
      asked++;
      if (where === "there") await gate;
      const answer = await inner.claim(claim);
      if (where === "back") await gate;
      return answer;
    },
  };
  return { driver, other: memory({ store }), asked: () => asked, go };
}

checkLeaksAfterEach();
cleanUpAfterEach();

test("a driver behind a server: claims, pushes, lists and releases go through", async () => {
  const store = memoryStore();
  const it = await startServer({ driver: memory({ store }) });
  const one = await openClient(it.addresses[0] as string);
  const other = await openClient(it.addresses[0] as string);
  const [a, b] = [makeClaim("k", { label: "first" }), makeClaim("k")];
  const before = expectHeld(await one.driver.claim(a));
  expect(await other.driver.claim(b)).toMatchObject({ state: "waiting" });
  expect(await one.driver.renew([a])).toMatchObject([{ state: "held", token: before.token }]);
  expect((await one.driver.list({ prefix: "" }, { max: 1 })).items).toMatchObject([{ label: "first" }]);
  expect(await one.driver.release(toReleases(a))).toEqual([true]);
  const next = await other.pushes.waitForGrant(b);
  expect(next.token).toBeGreaterThan(before.token);
  expect(await other.driver.revoke?.([{ key: "k", token: next.token, now: false }])).toEqual([true]);
  expect(await other.driver.renew([b])).toEqual([{ state: "none", reason: "revoked" }]);
});

test("an id that the driver omits from a renewal is omitted in the client's answer; the others are answered", async () => {
  const inner = memory();
  const driver: Driver = {
    ...inner,
    async renew(claims) {
      const answers = await inner.renew(claims);
      return answers.map((answer, at) => (claims[at]?.locks[0].key === "quiet" ? undefined : answer));
    },
  };
  const it = await startServer({ driver });
  const { driver: through } = await openClient(it.addresses[0] as string);
  const [quiet, told] = [makeClaim("quiet"), makeClaim("told")];
  const before = [expectHeld(await through.claim(quiet)), expectHeld(await through.claim(told))];
  const answers = await through.renew([quiet, told]);
  expect(answers).toMatchObject([undefined, { state: "held", token: before[1]?.token }]);
  // the proxy still knows the claim
  expect(await through.release(toReleases(quiet, told))).toEqual([true, true]);
});

test("the client has the driver's traits, except those of the driver's sessions", async () => {
  const driver = memory();
  const it = await startServer({ driver });
  const { traits } = await openClient(it.addresses[0] as string);
  expect(traits).toEqual(await memory().open(NO_EVENTS));
});

test("on a Unix socket a client's locks end with its connection; a detached claim stays", async () => {
  const it = await startServer({ driver: memory() });
  const one = await openClient(it.addresses[0] as string);
  const other = await openClient(it.addresses[0] as string);
  const [a, b, kept] = [makeClaim("a"), makeClaim("a"), makeClaim("kept")];
  await one.driver.claim(a);
  const before = expectHeld(await one.driver.claim(kept));
  expect(await one.driver.detach?.([kept])).toEqual([true]);
  await other.driver.claim(b);
  await one.driver.close();
  await other.pushes.waitForGrant(b);
  expect(await other.driver.renew([kept])).toMatchObject([{ state: "held", token: before.token }]);
});

test("an id that another client uses is refused", async () => {
  const it = await startServer({ driver: memory() });
  const one = await openClient(it.addresses[0] as string);
  const other = await openClient(it.addresses[0] as string);
  const a = makeClaim("a");
  await one.driver.claim(a);
  await expect(other.driver.claim(a)).rejects.toMatchObject({ code: "DRIVER_FATAL" });
  expect(await one.driver.release(toReleases(a))).toEqual([true]);
});

test("after a restart of the proxy its clients' claims are known again, since the store kept them", async () => {
  const store = memoryStore();
  const first = await startServer({ driver: memory({ store }) });
  const one = await openClient(first.addresses[0] as string);
  const a = makeClaim("a");
  const before = expectHeld(await one.driver.claim(a));
  await first.close();
  await startServer({ driver: memory({ store }), in: first.dir });
  await until(() => one.pushes.all.some(({ id }) => id === null), { within: 3_000, what: "the reconnect" });
  expect(await one.driver.renew([a])).toMatchObject([{ state: "held", token: before.token }]);
  expect(await one.driver.release(toReleases(a))).toEqual([true]);
});

test("an error of the store fails the call; its message is logged and not sent to the client", async () => {
  const driver: Driver = { ...memory(), claim: () => Promise.reject(new Error("password=hunter2")) };
  const it = await startServer({ driver });
  const { driver: through } = await openClient(it.addresses[0] as string);
  await expect(through.claim(makeClaim("k"))).rejects.toThrow("the server's call to its store failed (memory)");
  expect(it.logged.join()).toContain("hunter2");
});

test("an outage of the store is logged once at its start, and once at its end with the number of failed calls", async () => {
  const clock = new FakeClock();
  const inner = memory({ store: { table: new LockTable(), clock } });
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
  const store = { table: new LockTable(), clock };
  const it = await startServer({ driver: memory({ store }), clock });
  const { driver } = await openClient(it.addresses[0] as string);
  for (let turn = 0; turn < 3; turn++) {
    await Promise.all(
      Array.from({ length: 600 }, (_, at) => driver.claim(makeClaim(`k${turn}-${at}`, { ttlMs: 1_000 }))),
    );
    await clock.advance(10_000);
  }
  expect(it.stats().claims).toBeLessThan(1_300);
});

test.each(["there", "back"] as const)(
  "a client that disconnects during its claim (%s) leaves no queue entry",
  async (where) => {
    const { driver, other, asked, go } = createSlowStore(where);
    const it = await startServer({ driver });
    const one = await openClient(it.addresses[0] as string);
    const call = one.driver.claim(makeClaim("k", { ttlMs: 60_000 }));
    call.catch(() => undefined);
    await until(() => asked() > 0, { within: 2_000, what: "the call at the store" });
    await one.driver.close();
    await until(() => it.stats().claims === 0, { within: 2_000, what: "the end of the session" });
    go();
    await other.open(NO_EVENTS);
    const next = makeClaim("k", { wait: false });
    await expect.poll(async () => (await other.claim(next)).state, { timeout: 2_000 }).toBe("held");
    await other.release(toReleases(next));
  },
);

test("a store that did not remember the release of an unanswered claim is asked again when the late answer arrives", async () => {
  const { driver, other, asked, go } = createSlowStore("there");
  const forgetful: Driver = {
    ...driver,
    release: (releases) => driver.release(toReleases(...releases.map(({ claim }) => claim))),
  };
  const it = await startServer({ driver: forgetful });
  const one = await openClient(it.addresses[0] as string);
  one.driver.claim(makeClaim("k", { ttlMs: 60_000 })).catch(() => undefined);
  await until(() => asked() > 0, { within: 2_000, what: "the call at the store" });
  await one.driver.close();
  await until(() => it.stats().claims === 0, { within: 2_000, what: "the end of the session" });
  go();
  await other.open(NO_EVENTS);
  const next = makeClaim("k", { wait: false });
  await expect.poll(async () => (await other.claim(next)).state, { timeout: 2_000 }).toBe("held");
});

test("a failed release for a disconnected client is repeated, unless the client has claimed the id again", async () => {
  const store = memoryStore();
  const inner = memory({ store });
  let isAway = false;
  let refused = 0;
  const driver: Driver = {
    ...inner,
    async release(releases) {
      if (isAway) refused++;
      if (isAway) throw new Error("away");
      return inner.release(releases);
    },
  };
  const it = await startServer({ driver });
  const one = await openClient(it.addresses[0] as string);
  const [a, b] = [makeClaim("a", { ttlMs: 3_600_000 }), makeClaim("b", { ttlMs: 3_600_000 })];
  await one.driver.claim(a);
  const before = expectHeld(await one.driver.claim(b));
  isAway = true;
  await one.driver.close();
  await until(() => refused > 0, { within: 2_000, what: "the release that fails" });
  const other = await openClient(it.addresses[0] as string);
  const stands = [{ state: "held", token: before.token }];
  expect(await other.driver.renew([b])).toMatchObject(stands);
  isAway = false;
  await until(async () => (await other.driver.claim(makeClaim("a", { wait: false }))).state === "held", {
    within: 2_000,
    what: "the key that nobody wants",
  });
  expect(await other.driver.renew([b])).toMatchObject(stands);
});

test("a claim that the store cannot carry out is refused, not carried out in part: of several keys it would take one", async () => {
  const asked: Claim[] = [];
  const inner = memory();
  const driver: Driver = {
    ...inner,
    ...withTraits(inner, { lease: { claim: false, sessionMs: 5_000 }, manyKeys: false, permits: "shared" }),
    async claim(claim) {
      asked.push(claim);
      return inner.claim(claim);
    },
  };
  const it = await startServer({ driver });
  const { driver: through } = await openClient(it.addresses[0] as string);
  const ttlMs = "session" as const;
  const unsupported = { code: "DRIVER_FATAL" };
  await expect(through.claim(makeClaim(["a", "b"], { ttlMs }))).rejects.toMatchObject(unsupported);
  await expect(through.renew([makeClaim(["a", "b"], { ttlMs })])).rejects.toMatchObject(unsupported);
  await expect(through.claim(makeClaim([{ key: "a", permits: 1, limit: 2 }], { ttlMs }))).rejects.toMatchObject(
    unsupported,
  );
  await expect(through.claim(makeClaim("a", { ttlMs: 5_000 }))).rejects.toMatchObject(unsupported);
  expect(asked).toEqual([]);
  expectHeld(await through.claim(makeClaim("a", { ttlMs })));
});

test("a server on a Unix socket is refused as the store of a proxy: all locks would end with the proxy's connection", async () => {
  const store = await startServer();
  const relay = startServer({ driver: serverDriver({ path: store.path }), listen: "tcp://127.0.0.1:0" });
  await expect(relay).rejects.toThrow("a server on a Unix socket cannot be the store of another server");
  await until(() => store.stats().sessions === 0, { within: 2_000, what: "the end of the relay's session" });
});

test("a revoked claim keeps its entry in the store until its client releases it through the proxy", async () => {
  const it = await startServer({ driver: memory() });
  const one = await openClient(it.addresses[0] as string);
  const other = await openClient(it.addresses[0] as string);
  const [a, b] = [makeClaim("k"), makeClaim("k")];
  const { token } = expectHeld(await one.driver.claim(a));
  await other.driver.claim(b);
  expect(await other.driver.revoke?.([{ key: "k", token, now: false }])).toEqual([true]);
  expect(await one.driver.renew([a])).toEqual([{ state: "none", reason: "revoked" }]);
  expect(await other.driver.renew([b])).toMatchObject([{ state: "waiting" }]);
  await one.driver.release(toReleases(a));
  await other.pushes.waitForGrant(b);
});

/** Holders that are told that another claim waits: by one push for a queue, by each recheck, and in answers. */

import { afterEach, beforeEach, expect, test } from "vitest";
import type { Answer, Claim, LockSpec } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture } from "../../support/stores/redis-fixture.ts";

const permitSpec = (permits: number, limit: number, key = "key"): LockSpec => ({ key, permits, limit });
const makeRecallable = (target: string | readonly LockSpec[] = "key"): Claim => makeClaim(target, { recall: true });

withRedis((server) => {
  let fixture: RedisFixture;
  beforeEach(() => {
    fixture = createRedisFixture(server().port);
  });
  afterEach(() => fixture.close());

  const publications = async (): Promise<number> =>
    Number(/cmdstat_publish:calls=(\d+)/.exec(await fixture.admin.info("commandstats"))?.[1] ?? 0);
  const isRecalled = (answer: Answer): boolean => answer.state === "held" && answer.recalled === true;
  const waitFor = (condition: () => boolean): Promise<true> =>
    until(() => condition() || null, { within: 5_000, what: "the recall" }) as Promise<true>;

  test("one push for a queue, however long it is, and the flag in the answer to each renewal", async () => {
    const [lockClient, other] = [await fixture.open(), await fixture.open()];
    const [holder, ...waiters] = [makeRecallable(), makeClaim("key"), makeClaim("key"), makeClaim("key")];
    await lockClient.claimHeld(holder as Claim);
    await fixture.admin.config("RESETSTAT");
    for (const waiter of waiters) await other.claim(waiter);
    await waitFor(() => lockClient.recalls.length === 1);
    expect(await publications()).toBe(1);
    expect(isRecalled(await lockClient.renewOnce(holder as Claim))).toBe(true);
    await other.driver.release(toReleases(...waiters));
    expect(isRecalled(await lockClient.renewOnce(holder as Claim)), "nobody waits any more").toBe(false);
    await lockClient.driver.release(toReleases(holder as Claim));
  });

  test("claims that did not ask for it cost neither a push nor a command", async () => {
    const [lockClient, other] = [await fixture.open(), await fixture.open()];
    const [holder, waiter] = [makeClaim("key"), makeRecallable()];
    await lockClient.claimHeld(holder);
    await fixture.admin.config("RESETSTAT");
    const answer = await other.claim(waiter);
    expect(answer.state === "waiting" && answer.recheckMs > 50_000).toBe(true);
    expect(await publications()).toBe(0);
    expect(await fixture.admin.info("commandstats")).not.toContain("cmdstat_zrange:");
    await lockClient.driver.release(toReleases(holder, waiter));
  });

  test("the first waiter rechecks early, and its recheck recalls again: a lost push costs a recheck", async () => {
    const [lockClient, other] = [await fixture.open(), await fixture.open()];
    const [holder, front, second] = [makeRecallable(), makeClaim("key"), makeClaim("key")];
    await lockClient.claimHeld(holder);
    const recheckOf = (answer: Answer): number => (answer.state === "waiting" ? answer.recheckMs : Number.NaN);
    expect(recheckOf(await other.claim(front))).toBe(200);
    expect(recheckOf(await other.claim(second))).toBeGreaterThan(50_000);
    await waitFor(() => lockClient.recalls.length === 1);
    expect(recheckOf(await other.renewOnce(front))).toBeGreaterThanOrEqual(200);
    await waitFor(() => lockClient.recalls.length === 2);
    const start = performance.now();
    // its age: 200, 400, 800 ms
    await until(async () => recheckOf(await other.renewOnce(front)) > 300, { within: 5_000, what: "a later recheck" });
    expect(performance.now() - start).toBeLessThan(4_000);
    await lockClient.driver.release(toReleases(holder, front, second));
  });

  test("a grant behind which another claim waits says so, in a push and in the answer to a release", async () => {
    const [lockClient, other] = [await fixture.open(), await fixture.open()];
    const [holder, next, afterNext, last] = [makeClaim("key"), makeRecallable(), makeRecallable(), makeRecallable()];
    await lockClient.claimHeld(holder);
    await other.claim(next);
    await lockClient.claim(afterNext);
    await lockClient.claim(last);
    const isPushRecalled = (id: string, client: typeof other): boolean | undefined => {
      const push = client.pushes.find((one) => one.id === id && one.answer?.state === "held");
      return push?.answer === undefined ? undefined : isRecalled(push.answer);
    };
    await lockClient.driver.release(toReleases(holder));
    await waitFor(() => isPushRecalled(next.id, other) === true);
    await other.driver.release(toReleases(next));
    await waitFor(() => isPushRecalled(afterNext.id, lockClient) === true);
    await lockClient.driver.release(toReleases(afterNext));
    expect(isPushRecalled(last.id, lockClient)).toBe(false);
    await lockClient.driver.release(toReleases(last));
  });

  test("in full form those are recalled that hold the key, and asked for it", async () => {
    const [lockClient, other] = [await fixture.open(), await fixture.open()];
    const asked = makeRecallable([permitSpec(1, ALL_PERMITS)]);
    const both = makeRecallable([permitSpec(1, ALL_PERMITS), permitSpec(ALL_PERMITS, ALL_PERMITS, "then")]);
    const [silent, onItsWay] = [makeClaim([permitSpec(1, ALL_PERMITS)]), makeRecallable(both.locks)];
    for (const claim of [asked, silent, both]) await lockClient.claimHeld(claim);
    expect((await lockClient.claim(onItsWay)).state, "which holds the first of its keys").toBe("waiting");
    await waitFor(() => lockClient.recalls.length === 1);
    expect(lockClient.recalls, "for the second key").toEqual([both.id]);
    const writer = makeClaim("key");
    await other.claim(writer);
    await waitFor(() => lockClient.recalls.length === 3);
    expect([...lockClient.recalls.slice(1)].sort()).toEqual([asked.id, both.id].sort());
    await lockClient.driver.release(toReleases(asked, silent, both, onItsWay));
    await other.waitForGrant(writer);
    await other.driver.release(toReleases(writer));
  });

  test("a detached claim and a revoked one are not recalled", async () => {
    const [lockClient, other] = [await fixture.open(), await fixture.open()];
    const [detached, revoked, marker] = [makeRecallable("a"), makeRecallable("b"), makeRecallable("c")];
    for (const claim of [detached, marker]) await lockClient.claimHeld(claim);
    const { token } = await lockClient.claimHeld(revoked);
    expect(await lockClient.driver.detach?.([detached])).toEqual([true]);
    expect(await lockClient.driver.revoke?.([{ key: "b", token, now: false }])).toEqual([true]);
    const waiters = ["a", "b", "c"].map((key) => makeClaim(key));
    for (const waiter of waiters) await other.claim(waiter);
    // published later than what must not be
    await waitFor(() => lockClient.recalls.includes(marker.id));
    expect(lockClient.recalls).toEqual([marker.id]);
    // that of another process is not on the common path
    for (const { renewOnce } of [lockClient, other]) expect(isRecalled(await renewOnce(detached))).toBe(false);
    expect(isRecalled(await lockClient.renewOnce(marker))).toBe(true);
    await lockClient.driver.release(toReleases(detached, revoked, marker));
    await other.driver.release(toReleases(...waiters));
  });

  test("a renewal lengthens the token range of a holder, and the next token is above it", async () => {
    const lockClient = await fixture.open();
    const [holder, sharing, next] = [makeClaim("key", { tokenCount: 4 }), makeClaim("other"), makeClaim("key")];
    const { token } = await lockClient.claimHeld(holder);
    const renew = async (count: number): Promise<Answer | undefined> =>
      (await lockClient.driver.renew([holder], [count]))[0];
    expect(await renew(5_000_000)).toMatchObject({ state: "held", token, tokenCount: 5_000_000 });
    expect(await renew(1), "a range does not get shorter").toMatchObject({ token, tokenCount: 5_000_000 });
    await lockClient.claimHeld(sharing);
    await lockClient.driver.release(toReleases(holder));
    expect((await lockClient.claimHeld(next)).token).toBeGreaterThan(token + 4_999_999n);
    await lockClient.driver.release(toReleases(sharing, next));
  });
});

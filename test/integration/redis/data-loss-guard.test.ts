/** The option guardDataLoss, on a server that is killed, flushed, or has lost a part of its data. */

import { setTimeout as delay } from "node:timers/promises";
import { Redis } from "ioredis";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { RedisOptions } from "../../../src/drivers/redis/driver.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { toRoutingKey } from "../../../src/drivers/redis/key-names.ts";
import RESTORE from "../../../src/drivers/redis/lua/restore.lua";
import { encodeClaim } from "../../../src/drivers/redis/script-codec.ts";
import type { Locks } from "../../../src/index.ts";
import { createLocks } from "../../../src/index.ts";
import type { Claim, Driver } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { NO_EVENTS } from "../../support/driver-events.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { toReleases } from "../../support/releases.ts";
import {
  expectNoLossAfterEnd,
  expectNotRestoredAfterSleep,
  MAX_TTL_MS,
} from "../../support/stores/data-loss-scenario.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import {
  createRedisFixture,
  markLongInUse,
  readRunRecord,
  replicationIdOf,
  withinTime,
  writeRunRecord,
} from "../../support/stores/redis-fixture.ts";

/** What is waited for. */
const TTL_MS = 1_500;
/** For holders that must not be lost on a busy machine: a restart has to fit in before the lease ends. */
const LONG_TTL_MS = 5_000;
/** For what nobody waits for. */
const GENEROUS_MS = 30_000;
const RUN_RECORD = "3:{00}:b";

withRedis((server) => {
  let fixture: RedisFixture;
  let clients: Locks[];
  let warnings: string[];
  beforeEach(async () => {
    fixture = createRedisFixture(server().port);
    await fixture.admin.flushall();
    clients = [];
    warnings = [];
  });
  afterEach(async () => {
    for (const locks of clients) await locks.close();
    await fixture.close();
  });

  const driver = (options: RedisOptions = {}): Driver =>
    redis(() => new Redis(server().port, "127.0.0.1"), {
      prefix: fixture.prefix,
      warn: (text) => warnings.push(text),
      guardDataLoss: { maxTtlMs: TTL_MS },
      ...options,
    });
  const client = (options: RedisOptions = {}): Locks => {
    const guardDataLoss = options.guardDataLoss ?? { maxTtlMs: LONG_TTL_MS };
    const locks = createLocks(driver({ ...options, guardDataLoss }), { ttl: LONG_TTL_MS, order: "strict" });
    clients.push(locks);
    return locks;
  };
  const open = (options: RedisOptions = {}): ReturnType<RedisFixture["open"]> =>
    fixture.open(driver(options), options.clock);
  /** An opened driver whose store has been in use for long. */
  const openGuarded = async (maxTtlMs = TTL_MS): Promise<Awaited<ReturnType<typeof open>>> => {
    const lockClient = await open({ guardDataLoss: { maxTtlMs } });
    await markLongInUse(fixture.admin, fixture.prefix);
    return lockClient;
  };

  for (const [what, loseData] of [
    ["killed and starts empty", () => server().restart()],
    ["flushed", () => fixture.admin.flushall()],
  ] as const) {
    describe(`a server that is ${what}`, () => {
      test("grants no lock over a live holder, which keeps its lock and its token", { timeout: 40_000 }, async () => {
        const [firstClient, other, late] = [client(), client(), client()];
        await openGuarded();
        const lock = await firstClient.acquire("key");
        const order: string[] = [];
        // waiters return in any order: a store that lost its data cannot know theirs
        const inTurn = async (clientLocks: Locks, key: string): Promise<bigint> => {
          const next = await clientLocks.acquire(key);
          order.push(key);
          await next.release();
          return next.token;
        };
        const second = inTurn(other, "key");
        await until(async () => (await firstClient.list("key")).length === 2, { within: 5_000, what: "the waiter" });
        const startedAt = performance.now();
        await loseData();
        const third = inTurn(late, "key");
        await inTurn(late, "free");
        // a new lock was granted, but only after every lease from before the loss was over
        expect(performance.now() - startedAt).toBeGreaterThanOrEqual(LONG_TTL_MS * 0.99);
        expect(order).toEqual(["free"]);
        expect(lock.signal.aborted).toBe(false);
        lock.throwIfLost();
        expect(await lock.release()).toBe(true);
        for (const token of await Promise.all([second, third])) expect(token).toBeGreaterThan(lock.token);
        expect(warnings.filter((text) => /lost/.test(text))).toEqual([]);
      });

      test("without the option reports the loss to its holders at once, with their number, and tokens rise", {
        timeout: 40_000,
      }, async () => {
        const locks = client({ guardDataLoss: false });
        const lock = await locks.acquire("key");
        await locks.acquire("another");
        await loseData();
        await until(() => lock.signal.aborted, { within: 10_000, what: "the signal of the holder" });
        expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", reason: "unknown" });
        await until(() => warnings.some((text) => /the server has lost/.test(text)), {
          within: 5_000,
          what: "warning",
        });
        const next = await client({ guardDataLoss: false }).acquire("key");
        expect(next.token).toBeGreaterThan(lock.token);
      });
    });
  }

  test("a lock that was handed on to a successor is placed again with its token, and nobody holds it beside", async () => {
    const [locks, other] = [client(), client()];
    await openGuarded();
    const first = await other.acquire("key");
    let holders = 0;
    const hold = async (request: ReturnType<Locks["acquire"]>, work: () => Promise<void>): Promise<bigint> => {
      const lock = await request;
      expect(++holders).toBe(1);
      await work();
      holders--;
      lock.throwIfLost();
      await lock.release();
      return lock.token;
    };
    const [one, two, three] = [locks.acquire("key"), locks.acquire("key"), locks.acquire("key")];
    await until(async () => (await other.list("key")).length === 4, { within: 5_000, what: "the waiters" });
    const handedOff: bigint[] = [];
    locks.on("handedOff", ({ token }) => handedOff.push(token));
    await first.release();
    const tokens = [await hold(one, async () => undefined)];
    let late: Promise<bigint> | undefined;
    tokens.push(
      await hold(two, async () => {
        expect(handedOff).toHaveLength(1);
        await fixture.admin.flushall();
        late = hold(other.acquire("key"), async () => undefined);
        const isPlacedAgain = async (): Promise<boolean> =>
          (await other.list("key")).some(({ token }) => token === tokens[0]);
        await until(isPlacedAgain, { within: LONG_TTL_MS, what: "the holder in the store" });
      }),
    );
    // those that waited return in any order
    const last = await Promise.all([hold(three, async () => undefined), late as Promise<bigint>]);
    expect(tokens[1]).toBe((tokens[0] as bigint) + 1n);
    for (const token of last) expect(token).toBeGreaterThan(tokens[1] as bigint);
  }, 40_000);

  describe("during the grace period of a store that lost its data", () => {
    test("a claim that does not wait is refused, and a waiting one asks again when the period is over", async () => {
      const lockClient = await open({ guardDataLoss: { maxTtlMs: GENEROUS_MS } });
      expect(await lockClient.claim(makeClaim("key", { wait: false, ttlMs: GENEROUS_MS }))).toEqual({
        state: "none",
        paused: { reason: "gracePeriod", remainingMs: expect.any(Number) },
      });
      const [waiter, answer] = await withinTime(TTL_MS, async (name) => {
        await writeRunRecord(fixture.admin, fixture.prefix, { graceEndsAt: Date.now() + TTL_MS });
        const waiter = makeClaim(name, { ttlMs: GENEROUS_MS });
        return [waiter, await lockClient.claim(waiter)] as const;
      });
      expect(answer.state === "waiting" && answer.recheckMs <= TTL_MS).toBe(true);
      await lockClient.waitForGrant(waiter);
      await lockClient.driver.release(toReleases(waiter));
    });

    test("releases and expired leases grant no lock", async () => {
      const lockClient = await openGuarded();
      const record = `${fixture.prefix}:${RUN_RECORD}`;
      const fullRecord = String(await fixture.admin.get(record));
      const [waiting, answer, granted] = await withinTime(TTL_MS, async (name) => {
        const [held, waiting] = [makeClaim(name, { ttlMs: TTL_MS }), makeClaim(name, { ttlMs: TTL_MS })];
        await fixture.admin.set(record, fullRecord);
        await lockClient.claimHeld(held);
        await lockClient.claim(waiting);
        await fixture.admin.del(record);
        await lockClient.driver.release(toReleases(held));
        const answer = await lockClient.renewOnce(waiting);
        return [waiting, answer, lockClient.pushes.filter(({ id }) => id === waiting.id)] as const;
      });
      expect(answer.state).toBe("waiting");
      expect(granted.filter(({ answer }) => answer?.state === "held")).toEqual([]);
      await lockClient.waitForGrant(waiting);
      await lockClient.driver.release(toReleases(waiting));
    });

    test("the release of a forgotten lock is reported as done, and no late call places it again", async () => {
      const lockClient = await openGuarded(GENEROUS_MS);
      const held = makeClaim("key", { ttlMs: GENEROUS_MS });
      await lockClient.claimHeld(held);
      await fixture.admin.flushall();
      expect(await lockClient.driver.release(toReleases(held))).toEqual([true]);
      expect(await lockClient.renewOnce(held)).toEqual({ state: "none", reason: "released" });
      expect((await lockClient.driver.list({ prefix: "" }, { max: 10 })).items).toEqual([]);
    });

    test("all holders of a semaphore return, with their tokens, in any order", async () => {
      const lockClient = await openGuarded(GENEROUS_MS);
      const hold = { key: "key", permits: 1, limit: 3 };
      const claims = [0, 1, 2].map(() => makeClaim([hold], { ttlMs: GENEROUS_MS, tokenCount: 4 }));
      const tokens = [];
      for (const claim of claims) tokens.push((await lockClient.claimHeld(claim)).token);
      await fixture.admin.flushall();
      const answers = await lockClient.driver.renew([...claims].reverse());
      expect(answers.map((answer) => answer?.state === "held" && answer.token)).toEqual([...tokens].reverse());
      const counter = await fixture.admin.hget(fixture.hashOf("key"), "n");
      expect(BigInt(String(counter))).toBe((tokens[2] as bigint) + 3n);
      await lockClient.driver.release(toReleases(...claims));
    });

    test("a waiter passed over in its first queue while it waited for another key returns, and so does the one that passed it", async () => {
      const lockClient = await openGuarded(GENEROUS_MS);
      const pair = (key: string): { key: string; permits: number; limit: number } => ({ key, permits: 2, limit: 2 });
      const [first, multiKeyClaim] = [
        makeClaim("c", { ttlMs: GENEROUS_MS }),
        makeClaim([pair("b"), pair("c")], { ttlMs: GENEROUS_MS }),
      ];
      const reader = makeClaim([{ key: "b", permits: 1, limit: ALL_PERMITS }], { ttlMs: GENEROUS_MS });
      await lockClient.claimHeld(first);
      expect((await lockClient.claim(multiKeyClaim)).state).toBe("waiting");
      const { token } = await lockClient.claimHeld(reader);
      await lockClient.driver.release(toReleases(first));
      const laterAnswer = await lockClient.waitForGrant(multiKeyClaim);
      expect(laterAnswer.token).toBeGreaterThan(token);
      await fixture.admin.flushall();
      const answers = await lockClient.driver.renew([reader, multiKeyClaim]);
      expect(answers).toMatchObject([
        { state: "held", token },
        { state: "held", token: laterAnswer.token },
      ]);
      await lockClient.driver.release(toReleases(reader, multiKeyClaim));
    });

    test("a holder returns although memory is full, and a new claim leaves no trace", async () => {
      const lockClient = await openGuarded(GENEROUS_MS);
      const held = makeClaim("key", { ttlMs: GENEROUS_MS });
      const { token } = await lockClient.claimHeld(held);
      await fixture.admin.flushall();
      await fixture.admin.config("SET", "maxmemory", "1");
      try {
        expect(await lockClient.renewOnce(held)).toMatchObject({ state: "held", token });
        await expect(lockClient.claim(makeClaim("other", { ttlMs: GENEROUS_MS }))).rejects.toThrow("OOM");
        expect(await lockClient.driver.release(toReleases(held))).toEqual([true]);
        expect((await fixture.keys()).filter((key) => /:[aw]:/.test(key))).toEqual([]);
      } finally {
        await fixture.admin.config("SET", "maxmemory", "0");
      }
    });

    test("a claim over several keys returns in all of them", async () => {
      const lockClient = await openGuarded(GENEROUS_MS);
      const lockSpecs = ["a", "b"].map((key) => ({ key, permits: 1, limit: 1 }));
      const multiKeyClaim = makeClaim(lockSpecs, { ttlMs: GENEROUS_MS });
      const { token } = await lockClient.claimHeld(multiKeyClaim);
      await fixture.admin.flushall();
      expect(await lockClient.renewOnce(multiKeyClaim)).toMatchObject({ state: "held", token });
      const views = (await lockClient.driver.list({ prefix: "" }, { max: 10 })).items;
      expect(views.map((view) => view.locks.map(({ key }) => key))).toEqual([["a", "b"]]);
      for (const key of ["a", "b"]) {
        const claim = makeClaim([{ key, permits: 1, limit: 1 }], { ttlMs: GENEROUS_MS });
        expect((await lockClient.claim(claim)).state).toBe("waiting");
        await lockClient.driver.release(toReleases(claim));
      }
      await lockClient.driver.release(toReleases(multiKeyClaim));
      expect((await lockClient.driver.list({ prefix: "" }, { max: 10 })).items).toEqual([]);
    });

    test("of two conflicting holds, as on a replica that missed the last writes, the higher token stays", async () => {
      const guardDataLoss = { maxTtlMs: GENEROUS_MS };
      const [lockClient, other] = [await openGuarded(GENEROUS_MS), await open({ guardDataLoss })];
      const [old, youngClaim] = [makeClaim("key", { ttlMs: GENEROUS_MS }), makeClaim("key", { ttlMs: GENEROUS_MS })];
      await lockClient.claimHeld(old);
      const written = await Promise.all(
        (await fixture.keys()).map(async (key) => ({ key, value: await fixture.admin.dumpBuffer(key) })),
      );
      await lockClient.driver.release(toReleases(old));
      const { token } = await other.claimHeld(youngClaim);
      await fixture.admin.del(await fixture.keys());
      for (const { key, value } of written) {
        if (value !== null && !key.endsWith(":b")) await fixture.admin.restore(key, GENEROUS_MS * 4, value);
      }
      expect((await lockClient.driver.list({ prefix: "key" }, { max: 10 })).items.length).toBe(1);
      expect(await other.renewOnce(youngClaim)).toMatchObject({ state: "held", token });
      const [view, ...otherViews] = (await lockClient.driver.list({ prefix: "key" }, { max: 10 })).items;
      expect(otherViews).toEqual([]);
      expect(view?.answer).toMatchObject({ state: "held", token });
      expect(await lockClient.renewOnce(old)).toEqual({ state: "none" });
      await other.driver.release(toReleases(youngClaim));
    });
  });

  test("a holder whose renewals the store has missed is not told that its lease has ended: it is placed again", async () => {
    const lockClient = await openGuarded(GENEROUS_MS);
    const held = makeClaim("key", { ttlMs: TTL_MS });
    const { token } = await lockClient.claimHeld(held);
    const hash = fixture.hashOf("key");
    const written = await fixture.admin.dumpBuffer(hash);
    const firstLeaseEndsAt = Date.now() + TTL_MS;
    const renewOn = async (): Promise<boolean> => {
      expect(await lockClient.renewOnce(held)).toMatchObject({ state: "held", token });
      return Date.now() > firstLeaseEndsAt;
    };
    await until(renewOn, { within: 2 * TTL_MS, what: "the end of the lease without renewals" });
    await fixture.admin.restore(hash, GENEROUS_MS * 4, written as Buffer, "REPLACE");
    await writeRunRecord(fixture.admin, fixture.prefix, { replicationId: "a".repeat(40) });
    expect(await lockClient.renewOnce(held)).toMatchObject({ state: "held", token });
    await lockClient.driver.release(toReleases(held));
  });

  test("a claim that is gone after the end of its lease is not reported as lost", async () => {
    const [{ driver: late }, { driver: other }] = [
      await open({ guardDataLoss: false }),
      await open({ guardDataLoss: false }),
    ];
    await expectNoLossAfterEnd({ late, other, warnings });
  });

  test("a holder that slept beyond the end of its lease does not restore its claim", async () => {
    const clock = new FakeClock();
    const { driver: sleeper } = await open({ guardDataLoss: { maxTtlMs: MAX_TTL_MS }, clock });
    const { driver: other } = await openGuarded(MAX_TTL_MS);
    await expectNotRestoredAfterSleep({ sleeper, clock, other, lose: () => fixture.admin.flushall() });
  });

  test("after its end, a claim that was not placed again stays lost", async () => {
    const lockClient = await openGuarded();
    const held = makeClaim("key", { ttlMs: TTL_MS });
    await lockClient.claimHeld(held);
    await fixture.admin.flushall();
    await open();
    await delay(TTL_MS + 50);
    expect(await lockClient.renewOnce(held)).toEqual({ state: "none" });
    // its store might as well have lost nothing
    expect(warnings.filter((text) => /has lost a lock that this client held/.test(text))).toEqual([]);
  });

  test("a claim that is late, known, or has a token from the future is not placed again", async () => {
    const lockClient = await openGuarded(GENEROUS_MS);
    const record = `${fixture.prefix}:${RUN_RECORD}`;
    const root = `${fixture.prefix}:3:`;
    const replace = async (claim: Claim, token: bigint): Promise<unknown> => {
      const request = `${token} ${encodeClaim({ ...claim, floor: token })}`;
      const head = [root, `${root}inbox:x`, `${GENEROUS_MS} ${record}`];
      const [answer] = (await fixture.admin.eval(
        RESTORE.text,
        1,
        toRoutingKey(root, "00"),
        ...head,
        request,
      )) as unknown[];
      return String(answer).split(" ").slice(0, 2).join(" ");
    };
    const now = BigInt(Date.now()) * 1_000n;
    const [lateClaim, knownClaim, aheadClaim, goodClaim] = ["late", "known", "ahead", "well"].map((key) =>
      makeClaim(key, { ttlMs: GENEROUS_MS }),
    );
    expect(await replace(lateClaim as Claim, now)).toBe("n");
    const { token } = await lockClient.claimHeld(knownClaim as Claim);
    await writeRunRecord(fixture.admin, fixture.prefix, { graceEndsAt: Date.now() + GENEROUS_MS });
    expect(await replace(knownClaim as Claim, token + 5n)).toBe(`h ${token}`);
    expect(await replace(aheadClaim as Claim, now + 2n * 86_400_000_000n)).toBe("n");
    expect(await replace(goodClaim as Claim, now)).toBe(`h ${now}`);
    await lockClient.driver.release(toReleases(...([knownClaim, goodClaim] as Claim[])));
    expect((await lockClient.driver.list({ prefix: "" }, { max: 10 })).items).toEqual([]);
  });

  test("the ceiling stays ahead of every token, of a claim with a floor, a longer range and a restored claim", async () => {
    const lockClient = await openGuarded(GENEROUS_MS);
    const expectLead = async (lastToken: bigint): Promise<void> => {
      const { tokenCeiling } = await readRunRecord(fixture.admin, fixture.prefix);
      expect(tokenCeiling - lastToken).toBeGreaterThanOrEqual(BigInt(GENEROUS_MS / 2) * 1_000n);
    };
    const floor = BigInt(Date.now() + 3_600_000) * 1_000n;
    const holder = makeClaim("key", { ttlMs: GENEROUS_MS, tokenCount: 4, floor });
    const { token } = await lockClient.claimHeld(holder);
    await expectLead(token + 3n);
    const tokenCount = 60_000_000;
    expect((await lockClient.driver.renew([holder], [tokenCount]))[0]).toMatchObject({ token, tokenCount });
    const lastToken = token + BigInt(tokenCount) - 1n;
    await expectLead(lastToken);
    await fixture.admin.flushall();
    expect(await lockClient.renewOnce(holder)).toMatchObject({ state: "held", token, tokenCount });
    await expectLead(lastToken);
    await lockClient.driver.release(toReleases(holder));
  });

  test("another client, and the next start of a client, find the store unchanged, without a pause", async () => {
    await openGuarded();
    const next = await open();
    const claim = makeClaim("key", { ttlMs: TTL_MS });
    await next.claimHeld(claim);
    await next.driver.release(toReleases(claim));
    expect(warnings.length).toBe(1);
    expect(warnings[0]).toMatch(
      /^redis: grace period after a possible loss of data .* no locks are granted for 1500 ms$/,
    );
  });

  test("a clock that steps back delays no claim beyond the longest ttl", async () => {
    const lockClient = await openGuarded();
    await writeRunRecord(fixture.admin, fixture.prefix, { graceEndsAt: Date.now() + 3_600_000 });
    const claim = makeClaim("key", { ttlMs: TTL_MS });
    expect((await lockClient.claim(claim)).state).toBe("waiting");
    await lockClient.waitForGrant(claim); // within seconds, and not within an hour
    await lockClient.driver.release(toReleases(claim));
  });

  test("a run record of another run, as after a restart from a file, counts as a loss", async () => {
    const lockClient = await openGuarded(GENEROUS_MS);
    await writeRunRecord(fixture.admin, fixture.prefix, { replicationId: "a".repeat(40) });
    expect((await lockClient.claim(makeClaim("key", { ttlMs: GENEROUS_MS }))).state).toBe("waiting");
    const { driver: next } = await open({ guardDataLoss: { maxTtlMs: GENEROUS_MS } });
    expect(warnings.length).toBe(2);
    expect((await readRunRecord(fixture.admin, fixture.prefix)).replicationId).toBe(
      await replicationIdOf(fixture.admin),
    );
    await next.close();
  });

  test("a longer ttl is refused before anything is sent", async () => {
    const lockClient = await open();
    await expect(lockClient.claim(makeClaim("key", { ttlMs: TTL_MS + 1 }))).rejects.toMatchObject({
      code: "LOCK_STORE_REFUSED",
      message: "redis: the ttl of 1501 ms exceeds guardDataLoss.maxTtlMs (1500 ms)",
    });
    expect((await fixture.keys()).filter((key) => /:[awc]:/.test(key))).toEqual([]);
  });

  test("a meaningless option is a TypeError that names it", () => {
    for (const maxTtlMs of [0, -1, 99, 1.5, Number.NaN, 86_400_001, "60s"]) {
      expect(() => driver({ guardDataLoss: { maxTtlMs: maxTtlMs as number } })).toThrow(
        /^guardDataLoss.maxTtlMs must be/,
      );
    }
  });

  test("a user without the right to INFO is refused, with that reason", async () => {
    const rules = ["reset", "on", ">secret", "~*", "&*", "+@all", "-info"];
    await fixture.admin.call("ACL", "SETUSER", "uninformed", ...rules);
    const guarded = redis(
      () => new Redis({ port: server().port, host: "127.0.0.1", username: "uninformed", password: "secret" }),
      { prefix: fixture.prefix, guardDataLoss: true },
    );
    await expect(guarded.open(NO_EVENTS)).rejects.toMatchObject({
      code: "LOCK_STORE_REFUSED",
      message: expect.stringContaining("+info"),
    });
    await guarded.close();
  });
});

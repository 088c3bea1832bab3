import { describe, expect, test } from "vitest";
import type { HeldAnswer } from "../../../src/claim/state.ts";
import type { Lock } from "../../../src/client/lock.ts";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import type { LocksOptions } from "../../../src/client/options.ts";
import type { MemoryStore } from "../../../src/drivers/memory.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { tableOf } from "../../../src/drivers/memory-store.ts";
import type { Claim, Driver, DriverEvents, Traits } from "../../../src/spi/driver.ts";
import { delegate } from "../../../src/testing/delegate.ts";
import { FakeClock } from "../../support/fake-clock.ts";

const CACHE_MS = 10_000;

/** A client that caches its locks, another one of the same store, and what the first one sends. */
class Fixture {
  readonly clock = new FakeClock();
  readonly store: MemoryStore = memoryStore(this.clock);
  readonly locks: Locks;
  readonly other: Locks;
  /** The verbs of the calls since the last takeCalls(). */
  readonly #calls: string[] = [];
  /** While true every call fails. */
  isCut = false;
  /** Recalls do not arrive. */
  losesRecalls = false;
  /** Answers do not say that the claim is recalled. */
  hidesFlag = false;
  /** Renewals say that a claim has at most so many tokens. */
  maxTokens = Number.POSITIVE_INFINITY;
  /** Runs when the store has detached a claim, before its answer arrives. */
  onDetached: () => unknown = () => undefined;
  /** The claims that were made. */
  readonly claims: Claim[] = [];
  /** Whether each claim keeps the process alive. */
  readonly idleClaims = new Set<string>();
  events: DriverEvents | null = null;
  #claimGate: Promise<void> = Promise.resolve();

  constructor(options: LocksOptions = {}, traits: Partial<Traits> = {}) {
    const inner = memory({ store: this.store });
    const call = <T>(verb: string, run: () => Promise<T>): Promise<T> => {
      this.#calls.push(verb);
      return this.isCut ? Promise.reject(new Error("cut off")) : run();
    };
    const driver: Driver = delegate(inner, {
      open: async (events) => {
        this.events = events;
        const own = await inner.open({
          ...events,
          pushed: (id, answer) => events.pushed(id, answer),
          recalled: (id) => (this.losesRecalls ? undefined : events.recalled(id)),
        });
        return { ...own, ...traits };
      },
      claim: (claim) => {
        this.claims.push(claim);
        return call("claim", async () => {
          const answer = await inner.claim(claim);
          await this.#claimGate;
          return answer;
        });
      },
      renew: (claims, tokenCounts) =>
        call("renew", async () =>
          (await inner.renew(claims, tokenCounts)).map((answer) =>
            answer?.state === "held" ? this.#alter(answer) : answer,
          ),
        ),
      detach: async (claims, remainingMs) => {
        const wereHeld = await (inner.detach as NonNullable<Driver["detach"]>)(claims, remainingMs);
        await this.onDetached();
        return wereHeld;
      },
      release: (releases) => call("release", () => inner.release(releases)),
      setIdle: (claim, isIdle) => void (isIdle ? this.idleClaims.add(claim.id) : this.idleClaims.delete(claim.id)),
    });
    this.locks = createLocks(driver, { clock: this.clock, cache: CACHE_MS, ...options });
    this.other = createLocks(memory({ store: this.store }), { clock: this.clock });
  }

  #alter(answer: HeldAnswer): HeldAnswer {
    const tokenCount = Math.min(answer.tokenCount, this.maxTokens);
    return { ...answer, tokenCount, ...(this.hidesFlag && { recalled: false }) };
  }

  /** The answers to claims arrive when the returned function is called. */
  delayAnswers(): () => void {
    let answerClaims = (): void => undefined;
    this.#claimGate = new Promise((resolve) => {
      answerClaims = resolve;
    });
    return answerClaims;
  }

  takeCalls(): readonly string[] {
    return this.#calls.splice(0);
  }

  /** Acquires and releases; returns the token. */
  async use(key = "k", locks: Locks = this.locks): Promise<bigint> {
    const lock = await locks.acquire(key);
    const { token } = lock;
    expect(await lock.release()).toBe(true);
    return token;
  }

  /** Lets the messages of this moment arrive. */
  settle(): Promise<void> {
    return this.clock.advance(0);
  }

  /** How many claims the store has. */
  get claimCount(): number {
    return tableOf(this.store).records.size;
  }

  async isFree(key = "k"): Promise<boolean> {
    const lock = await this.other.tryAcquire(key);
    await lock?.release();
    return lock !== null;
  }
}

describe("a cached lock", () => {
  test("is used again without a call, each time with a higher token", async () => {
    const fixture = new Fixture();
    const tokens = [await fixture.use()];
    expect(fixture.takeCalls()).toEqual(["claim"]);
    for (let round = 0; round < 10; round++) tokens.push(await fixture.use());
    expect(fixture.takeCalls()).toEqual([]);
    expect(tokens).toEqual([...tokens].sort((a, b) => Number(a - b)));
    expect(new Set(tokens).size).toBe(tokens.length);
    await fixture.locks.close();
    expect(fixture.claimCount).toBe(0);
  });

  test("is not one without the option", async () => {
    const fixture = new Fixture({ cache: 0 });
    await fixture.use();
    await fixture.use();
    expect(fixture.takeCalls()).toEqual(["claim", "release", "claim", "release"]);
    await (await fixture.locks.acquire("k", { cache: "1s" })).release();
    fixture.takeCalls();
    await fixture.use();
    expect(fixture.takeCalls(), "the last holder decides").toEqual(["release"]);
  });

  test("is renewed, released after the time without use, and the next acquire asks the store", async () => {
    const fixture = new Fixture({ ttl: "9s" });
    await fixture.use();
    await fixture.clock.advance(CACHE_MS - 1);
    expect(fixture.takeCalls()).toEqual(["claim", "renew", "renew", "renew"]);
    await fixture.use();
    await fixture.clock.advance(CACHE_MS - 1);
    expect(fixture.claimCount).toBe(1);
    await fixture.clock.advance(1);
    expect(fixture.claimCount).toBe(0);
    expect(fixture.takeCalls()).not.toContain("claim");
    await fixture.use();
    expect(fixture.takeCalls()).toEqual(["claim"]);
    await fixture.locks.close();
  });

  test("serves tryAcquire, using, wait: 0 and several keys alike", async () => {
    const fixture = new Fixture();
    for (let round = 0; round < 2; round++) {
      await (await fixture.locks.tryAcquire("k"))?.release();
      await fixture.locks.using("k", async (lock) => lock.throwIfLost());
      await (await fixture.locks.acquire("k", { wait: 0 })).release();
      await (await fixture.locks.all("a", "b").acquire()).release();
    }
    expect(fixture.takeCalls()).toEqual(["claim", "claim"]);
    await fixture.locks.close();
  });

  test("is no lock of readers and semaphores, nor of requests with a claim of their own", async () => {
    const fixture = new Fixture();
    await (await fixture.locks.rw("r").read.acquire()).release();
    await (await fixture.locks.semaphore("s", 2).acquire()).release();
    await (await fixture.locks.all("a", fixture.locks.rw("b").read).acquire()).release();
    await (await fixture.locks.acquire("k", { order: "strict" })).release();
    expect(fixture.claimCount).toBe(0);
    await fixture.locks.close();
  });

  test("is re-entrant like another: inner requests join, and it becomes idle after the outer one", async () => {
    const fixture = new Fixture();
    await fixture.use();
    await fixture.locks.using("k", async () => {
      await fixture.locks.using("k", async () => expect(fixture.locks.holds("k")).toBe(true));
      expect(await fixture.isFree()).toBe(false);
    });
    expect(fixture.locks.holds("k")).toBe(false);
    await fixture.use();
    expect(fixture.takeCalls()).toEqual(["claim"]);
    await fixture.locks.close();
  });
});

test("a session claim that silence does not end is not cached: a process that is cut off would keep it", async () => {
  const fixture = new Fixture(
    { ttl: "session" },
    { lease: { claim: true, sessionMs: 30_000, endsWithConnection: true } },
  );
  await fixture.use();
  expect(fixture.claimCount).toBe(0);
  await fixture.locks.close();
});

describe("another claim that waits", () => {
  test("gets the lock at once when it is idle", async () => {
    const fixture = new Fixture();
    await fixture.use();
    const waits = fixture.other.acquire("k");
    await fixture.settle();
    expect(await fixture.locks.list()).toMatchObject([{ state: "held", heldMs: 0 }]);
    const lock = await waits;
    expect(fixture.takeCalls()).toEqual(["claim", "release"]);
    const next = fixture.locks.acquire("k");
    await lock.release();
    await fixture.settle();
    await (await next).release();
    await fixture.locks.close();
  });

  test("gets the lock after its holder's release: a recalled claim is never idle again", async () => {
    const fixture = new Fixture();
    const holder = await fixture.locks.acquire("k");
    const waits = fixture.other.acquire("k");
    await fixture.settle();
    await holder.release();
    await fixture.settle();
    await (await waits).release();
    expect(fixture.takeCalls()).toEqual(["claim", "release"]);
  });

  test("gets the lock although it has waited when the claim was granted", async () => {
    const fixture = new Fixture();
    const holder = await fixture.other.acquire("k");
    const wanted = fixture.locks.acquire("k");
    await fixture.settle();
    const waits = fixture.other.acquire("k", { order: "strict" });
    await fixture.settle();
    await holder.release();
    await fixture.settle();
    await (await wanted).release();
    await fixture.settle();
    await (await waits).release();
    expect(fixture.claimCount).toBe(0);
  });

  test("gets the lock although the recall overtook the grant's answer, which does not say it", async () => {
    const fixture = new Fixture();
    const answerClaims = fixture.delayAnswers();
    const pending = fixture.locks.acquire("k");
    await fixture.settle();
    fixture.events?.recalled(fixture.claims[0]?.id ?? "");
    answerClaims();
    await (await pending).release();
    expect(fixture.takeCalls()).toEqual(["claim", "release"]);
    await fixture.locks.close();
  });

  test("is served after the first recheck if the recall was lost", async () => {
    const fixture = new Fixture();
    await fixture.use();
    fixture.losesRecalls = true;
    const waits = fixture.other.acquire("k");
    await fixture.settle();
    fixture.losesRecalls = false;
    await fixture.clock.advance(199);
    expect(fixture.claimCount).toBe(2);
    await fixture.clock.advance(1);
    await (await waits).release();
    await fixture.locks.close();
  });

  test("is served at the holder's renewal if every recall is lost", async () => {
    const fixture = new Fixture({ ttl: "9s" });
    await fixture.use();
    fixture.losesRecalls = true;
    const waits = fixture.other.acquire("k");
    await fixture.clock.advance(3_000);
    await (await waits).release();
    await fixture.locks.close();
  });

  test("is served when the lock has been unused for long enough if it never learns of it", async () => {
    const fixture = new Fixture({ ttl: "9s" });
    await fixture.use();
    Object.assign(fixture, { losesRecalls: true, hidesFlag: true });
    const waits = fixture.other.acquire("k");
    await fixture.clock.advance(CACHE_MS);
    await (await waits).release();
    await fixture.locks.close();
  });

  test("of this client, in a claim of several keys or of a reader, is sent behind the release, in the same turn", async () => {
    for (const request of [
      (locks: Locks) => locks.all("a", "k", "z"),
      (locks: Locks) => locks.rw("k").read,
      (locks: Locks) => locks.semaphore("k", 3),
    ]) {
      const fixture = new Fixture();
      fixture.losesRecalls = true;
      await fixture.use();
      fixture.takeCalls();
      const lock = await request(fixture.locks).acquire({ wait: 0 });
      expect(fixture.takeCalls()).toEqual(["release", "claim"]);
      await lock.release();
      await fixture.locks.close();
      expect(fixture.claimCount).toBe(0);
    }
  });

  test("cannot be starved by a process that uses its cached lock all the time", async () => {
    const fixture = new Fixture();
    let uses = 0;
    let isServed = false;
    const waits = (async () => {
      await fixture.use();
      const lock = await fixture.other.acquire("k");
      isServed = true;
      await lock.release();
    })();
    for (; !isServed && uses < 1_000; uses++) await fixture.use();
    await waits;
    expect(uses).toBeLessThan(300);
    await fixture.locks.close();
  });
});

describe("a cached lock that may have been lost is not used", () => {
  const reasons: readonly (readonly [string, (fixture: Fixture) => Promise<void> | void])[] = [
    ["its machine was suspended for longer than the lease", (fixture) => fixture.clock.suspend(60_000)],
    ["its lease has ended, and no timer has run", (fixture) => fixture.clock.jump(30_000)],
    ["more than half of its lease has passed", (fixture) => fixture.clock.jump(20_000)],
    [
      "its last renewal failed",
      async (fixture) => {
        fixture.isCut = true;
        await fixture.clock.advance(10_000);
        fixture.isCut = false;
      },
    ],
  ];
  for (const [reason, disturb] of reasons) {
    test(`when ${reason}`, async () => {
      const fixture = new Fixture({ cache: "60s" });
      const before = await fixture.use();
      await disturb(fixture);
      fixture.takeCalls();
      const pending = fixture.locks.acquire("k");
      await fixture.clock.advance(100);
      const lock = await pending;
      lock.throwIfLost();
      expect(lock.token).toBeGreaterThan(before);
      expect(fixture.takeCalls()).toContain("claim");
      await lock.release();
      await fixture.locks.close();
    });
  }

  test("when its tokens are used up: the next claim brings twice as many", async () => {
    const fixture = new Fixture();
    const counts: number[] = [];
    for (let round = 0; round < 16 + 32 + 64; round++) await fixture.use();
    for (const { tokenCount } of fixture.claims) counts.push(tokenCount);
    expect(counts).toEqual([16, 32, 64]);
    await fixture.locks.close();
  });

  test("beyond the token range of the store's last answer", async () => {
    const fixture = new Fixture({ ttl: "9s" });
    const first = await fixture.use();
    fixture.maxTokens = 2;
    await fixture.clock.advance(3_000);
    expect(await fixture.use()).toBe(first + 1n);
    const second = await fixture.use();
    expect(second, "the first range was used up").toBeGreaterThan(first + 15n);
    fixture.maxTokens = 1;
    await fixture.clock.advance(3_000);
    fixture.takeCalls();
    expect(await fixture.use()).toBeGreaterThan(second + 15n);
    expect(fixture.takeCalls()).toEqual(["release", "claim"]);
    await fixture.locks.close();
  });

  test("once it was revoked: it is released at once, and nobody hears of a loss", async () => {
    const fixture = new Fixture();
    const lost: unknown[] = [];
    fixture.locks.on("lost", (detail) => lost.push(detail));
    const token = await fixture.use();
    expect(await fixture.other.revoke("k", token)).toBe(true);
    await fixture.settle();
    expect(await fixture.isFree()).toBe(true);
    expect(lost).toEqual([]);
    expect(await fixture.use()).toBeGreaterThan(token);
    await fixture.locks.close();
  });

  test("once the store has lost it", async () => {
    const fixture = new Fixture();
    const token = await fixture.use();
    await fixture.other.revoke("k", token, { now: true });
    await fixture.settle();
    expect(await fixture.use()).toBeGreaterThan(token);
    await fixture.locks.close();
  });
});

describe("tokens of a cached lock", () => {
  test("are extended by a renewal when half of them are used", async () => {
    const fixture = new Fixture({ ttl: "9s" });
    for (let round = 0; round < 12; round++) await fixture.use();
    await fixture.clock.advance(3_000);
    for (let round = 0; round < 20; round++) await fixture.use();
    expect(fixture.takeCalls()).toEqual(["claim", "renew"]);
    await fixture.locks.close();
  });

  test("rise above those of a holder in between", async () => {
    const fixture = new Fixture();
    let last = 0n;
    for (const locks of [fixture.locks, fixture.locks, fixture.other, fixture.locks, fixture.other, fixture.locks]) {
      const pending = locks.acquire("k");
      await fixture.settle();
      const lock = await pending;
      expect(lock.token).toBeGreaterThan(last);
      last = lock.token;
      await lock.release();
    }
    await fixture.locks.close();
  });
});

describe("back-off: a lock that is recalled unused again and again", () => {
  /** One turn: this client uses the lock, then the other one does. Was it cached in between? */
  async function takeTurn(fixture: Fixture): Promise<boolean> {
    const first = fixture.locks.acquire("k");
    await fixture.settle();
    await (await first).release();
    await fixture.settle();
    const wasCached = fixture.claimCount > 0;
    const second = fixture.other.acquire("k");
    await fixture.settle();
    await (await second).release();
    await fixture.settle();
    return wasCached;
  }

  test("is not cached for a time that grows, and is cached again after it", async () => {
    const fixture = new Fixture();
    expect([await takeTurn(fixture), await takeTurn(fixture), await takeTurn(fixture)]).toEqual([true, true, false]);
    await fixture.clock.advance(75);
    expect([await takeTurn(fixture), await takeTurn(fixture)]).toEqual([true, false]);
    await fixture.clock.advance(24);
    expect(await takeTurn(fixture)).toBe(false);
    await fixture.clock.advance(150);
    expect(await takeTurn(fixture)).toBe(true);
    await fixture.locks.close();
  });

  test("is cached at once when it was used again", async () => {
    const fixture = new Fixture();
    for (let round = 0; round < 5; round++) {
      const pending = fixture.locks.acquire("k");
      await fixture.settle();
      await (await pending).release();
      await fixture.use();
      expect(await takeTurn(fixture)).toBe(true);
    }
    await fixture.locks.close();
  });
});

describe("cached locks are given back", () => {
  test("by releaseAll(), after which the client caches again", async () => {
    const fixture = new Fixture();
    await fixture.use("a");
    await fixture.use("b");
    await fixture.locks.releaseAll();
    expect(fixture.claimCount).toBe(0);
    await fixture.use("a");
    expect(fixture.claimCount).toBe(1);
    await fixture.locks.close();
  });

  test("by close(), also one that is released meanwhile", async () => {
    const fixture = new Fixture();
    await fixture.use("a");
    const held = await fixture.locks.acquire("b");
    const closing = fixture.locks.close();
    await held.release();
    await closing;
    expect(fixture.claimCount).toBe(0);
    expect(fixture.clock.pendingTimers).toBe(0);
  });

  test("before the process exits", async () => {
    const fixture = new Fixture();
    await fixture.use("a");
    await fixture.use("b");
    expect(process.listenerCount("beforeExit")).toBeGreaterThan(0);
    process.emit("beforeExit", 0);
    await fixture.settle();
    expect(fixture.claimCount).toBe(0);
    await fixture.locks.close();
  });
});

test("an idle lock keeps neither the driver nor the timer busy, one in use does", async () => {
  const fixture = new Fixture();
  await fixture.use();
  await fixture.settle();
  expect(fixture.idleClaims.size).toBe(1);
  const lock = await fixture.locks.acquire("k");
  expect(fixture.idleClaims.size).toBe(0);
  await lock.release();
  await fixture.settle();
  expect(fixture.idleClaims.size).toBe(1);
  await fixture.locks.close();
  expect(fixture.idleClaims.size).toBe(0);
});

test("a lock that is detached is not cached, nor is one that was attached", async () => {
  const fixture = new Fixture();
  await fixture.use();
  const lock = await fixture.locks.acquire("k");
  const reference = await lock.detach();
  expect(fixture.claimCount).toBe(1);
  const attached = await fixture.locks.attach(reference);
  fixture.takeCalls();
  await attached.release();
  expect(fixture.takeCalls()).toEqual(["release"]);
  expect(fixture.claimCount).toBe(0);
  await fixture.locks.close();
});

test("a lock that is released while its detach is under way is not kept: the store does not recall detached claims", async () => {
  const fixture = new Fixture();
  await fixture.use();
  const lock = await fixture.locks.acquire("k");
  const waiting = fixture.locks.acquire("k");
  fixture.onDetached = () => lock.release();
  await expect(lock.detach()).rejects.toThrow(/released/);
  await (await waiting).release();
  expect(fixture.claims).toHaveLength(2);
  fixture.onDetached = () => undefined;
  const next = await fixture.locks.acquire("k");
  fixture.onDetached = () => next.release();
  await expect(next.detach()).rejects.toThrow(/released/);
  await fixture.settle();
  expect(await fixture.isFree()).toBe(true);
  await fixture.locks.close();
});

test("maxHold counts for each holder, not for the time in which nobody uses the lock", async () => {
  const fixture = new Fixture({ maxHold: "2s" });
  await fixture.use();
  await fixture.clock.advance(5_000);
  const lock = await fixture.locks.acquire("k");
  await fixture.clock.advance(1_999);
  lock.throwIfLost();
  await fixture.clock.advance(1);
  expect(() => lock.throwIfLost()).toThrow(/maxHold|longer than allowed|held for too long/);
  await lock.release();
  await fixture.locks.close();
});

test("events and lists: a lock is acquired and released by each user, and listed as unused in between", async () => {
  const fixture = new Fixture();
  const events: string[] = [];
  for (const name of ["requested", "acquired", "released", "waiting", "lost"] as const)
    fixture.locks.on(name, () => events.push(name));
  await fixture.use();
  await fixture.use();
  expect(events).toEqual(["requested", "acquired", "released", "requested", "acquired", "released"]);
  await fixture.clock.advance(3_000);
  expect(await fixture.locks.list()).toMatchObject([{ unusedMs: 3_000, state: "held" }]);
  const lock = await fixture.locks.acquire("k");
  expect((await fixture.locks.list())[0]).not.toHaveProperty("unusedMs");
  await lock.release();
  await fixture.locks.close();
});

test("a listener that requests the lock it hears of gets it in its turn", async () => {
  const fixture = new Fixture();
  await fixture.use();
  const nested: Promise<Lock>[] = [];
  let heard = 0;
  for (const name of ["requested", "released"] as const)
    fixture.locks.on(name, () => {
      if (++heard <= 2) nested.push(fixture.locks.acquire("k"));
    });
  await fixture.use();
  await Promise.all(nested.map(async (pending) => (await pending).release()));
  expect(nested.length).toBe(2);
  await fixture.locks.close();
  expect(fixture.claimCount).toBe(0);
});

describe("on a store that tells of waiters only in renewals", () => {
  const createFixture = (): Fixture => {
    const fixture = new Fixture({}, { recall: "recheck" });
    fixture.losesRecalls = true;
    return fixture;
  };
  const countRenewals = (fixture: Fixture): number => fixture.takeCalls().filter((verb) => verb === "renew").length;

  test("an idle lock asks for them, at first four times a second, later every second", async () => {
    const fixture = createFixture();
    await fixture.use();
    const waits = fixture.other.acquire("k");
    await fixture.clock.advance(250);
    await (await waits).release();
    await fixture.use();
    fixture.takeCalls();
    await fixture.clock.advance(1_000);
    expect(countRenewals(fixture)).toBe(4);
    await fixture.clock.advance(4_000);
    fixture.takeCalls();
    await fixture.clock.advance(3_000);
    expect(countRenewals(fixture)).toBe(3);
    const waitsLater = fixture.other.acquire("k");
    await fixture.clock.advance(1_000);
    await (await waitsLater).release();
    await fixture.locks.close();
  });

  test("all idle locks of a process are asked about in the same calls, whenever they became idle", async () => {
    const fixture = createFixture();
    for (let index = 0; index < 20; index++) {
      await fixture.use(`k${index}`);
      await fixture.clock.advance(17);
    }
    fixture.takeCalls();
    await fixture.clock.advance(1_000);
    expect(countRenewals(fixture)).toBe(4);
    await fixture.locks.close();
  });

  test("a lock that is used again and again learns of them, too", async () => {
    const fixture = createFixture();
    await fixture.use();
    const waits = fixture.other.acquire("k");
    // in use at every time at which it is asked about
    for (let round = 0; round < 5; round++) {
      const lock = await fixture.locks.acquire("k");
      await fixture.clock.advance(60);
      await lock.release();
    }
    await (await waits).release();
    await fixture.locks.close();
  });
});

describe("cache is refused", () => {
  test("where it contradicts another option", async () => {
    const driver = memory();
    expect(() => createLocks(driver, { order: "strict", cache: "1s" })).toThrow(
      /^cache must be 0 with order: "strict"/,
    );
    expect(() => createLocks(driver, { renew: false, cache: "1s" })).toThrow(/^cache must be 0 with renew: false/);
    const strict = createLocks(driver, { order: "strict" });
    await expect(strict.acquire("k", { cache: 1 })).rejects.toThrow(TypeError);
    const locks = createLocks(driver);
    await expect(locks.acquire("k", { cache: 1, order: "strict" })).rejects.toThrow(/^cache must be 0/);
    await expect(locks.acquire("k", { cache: -1 })).rejects.toThrow(/^cache must be/);
    await locks.close();
  });

  test("on a store that cannot recall, for exclusive locks", async () => {
    const fixture = new Fixture({}, { recall: false });
    await expect(fixture.locks.acquire("k")).rejects.toMatchObject({ code: "LOCK_UNSUPPORTED" });
    await (await fixture.locks.rw("k").read.acquire()).release();
    await (await fixture.locks.acquire("k", { cache: 0 })).release();
    await fixture.locks.close();
  });
});

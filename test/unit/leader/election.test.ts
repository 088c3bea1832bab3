import assert from "node:assert/strict";
import { inspect } from "node:util";
import { afterEach, describe, expect, test, vi } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import type { LocksOptions } from "../../../src/client/options.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import type { Election, LeaderOptions } from "../../../src/leader/election.ts";
import type { Term } from "../../../src/leader/term.ts";
// loaded before the tests: what loads it on demand would take turns of the event loop that they do not count
import "../../../src/leader/term.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { FakeClock, flushEventLoop } from "../../support/fake-clock.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";

checkLeaksAfterEach();

const opened: Locks[] = [];
const bodies: (() => void)[] = [];

afterEach(async () => {
  for (const end of bodies.splice(0)) end();
  await Promise.all(opened.splice(0).map((locks) => locks.close()));
});

/** Clients of one store. */
function openClients(
  count: number,
  options: LocksOptions = {},
  change: (driver: Driver, index: number) => Driver = (driver) => driver,
): Locks[] {
  const store = memoryStore(options.clock);
  const clients = Array.from({ length: count }, (_, index) => createLocks(change(memory({ store }), index), options));
  opened.push(...clients);
  return clients;
}

interface Loop {
  readonly election: Election;
  /** The terms so far, the current one last. */
  readonly terms: Term[];
  /** Ends the body of the current term. */
  endBody(): void;
  /** Settles with the loop. */
  readonly ended: Promise<void>;
}

/** Iterates over an election; each body lasts until endBody(), and ignores the signal of its term. */
function campaign(locks: Locks, options: LeaderOptions = {}, leave: "break" | "throw" | null = null): Loop {
  const election = locks.leader("scheduler", options);
  const terms: Term[] = [];
  let endBody = (): void => undefined;
  const run = async (): Promise<void> => {
    for await (const term of election) {
      terms.push(term);
      await new Promise<void>((resolve) => {
        endBody = resolve;
        bodies.push(resolve);
      });
      if (leave === "break") break;
      if (leave === "throw") throw new Error("the work failed");
    }
  };
  const ended = run();
  ended.catch(() => undefined);
  return { election, terms, endBody: () => endBody(), ended };
}

const first = (loop: Loop): Term => loop.terms[0] as Term;
const reasonOf = (term: Term): string => (term.signal.reason as { readonly reason: string }).reason;

describe("terms", () => {
  test("one element per term: the next candidate starts when the body ends, and the first one waits behind it", async () => {
    const [a, b] = openClients(2) as [Locks, Locks];
    const loopA = campaign(a);
    await flushEventLoop();
    const loopB = campaign(b);
    await flushEventLoop();
    expect([loopA.terms.length, loopB.terms.length]).toEqual([1, 0]);
    expect(first(loopA)).toMatchObject({ name: "scheduler", signal: { aborted: false } });
    first(loopA).throwIfLost();
    expect(first(loopA).remainingMs).toBeGreaterThan(20_000);
    loopA.endBody();
    await flushEventLoop();
    expect([loopA.terms.length, loopB.terms.length]).toEqual([1, 1]);
    expect(first(loopA).signal.aborted).toBe(true);
    expect(() => first(loopA).throwIfLost()).toThrow(/it was released/);
    expect(first(loopA).remainingMs).toBe(0);
    expect(first(loopB).token).toBeGreaterThan(first(loopA).token);
    expect(first(loopB).grants).toEqual([
      {
        key: "scheduler",
        storeKey: "scheduler",
        token: first(loopB).token,
        isExclusive: true,
        tag: expect.any(String),
      },
    ]);
    loopB.endBody();
    await flushEventLoop();
    expect([loopA.terms.length, loopB.terms.length]).toEqual([2, 1]);
    expect(loopA.terms[1]?.token).toBeGreaterThan(first(loopB).token);
  });

  test.each(["break", "throw"] as const)(
    "leaving the loop by %s ends the term before the loop settles",
    async (leave) => {
      const [a, b] = openClients(2) as [Locks, Locks];
      const loop = campaign(a, {}, leave);
      await flushEventLoop();
      loop.endBody();
      if (leave === "throw") await expect(loop.ended).rejects.toThrow("the work failed");
      else await loop.ended;
      expect(first(loop).signal.aborted).toBe(true);
      const lock = await b.tryAcquire("scheduler");
      expect(lock?.token).toBeGreaterThan(first(loop).token);
    },
  );

  test("the loop can start again after it was left", async () => {
    const [a] = openClients(1) as [Locks];
    const election = a.leader("scheduler");
    const tokens: bigint[] = [];
    for (let round = 0; round < 2; round++)
      for await (const term of election) {
        tokens.push(term.token);
        break;
      }
    expect(tokens[1]).toBeGreaterThan(tokens[0] as bigint);
  });

  test("elections of one client, and loops over one election, are candidates like any others: each has its own claim", async () => {
    const [a] = openClients(1) as [Locks];
    const loops = [campaign(a, { label: "one" }), campaign(a, { label: "two" })] as const;
    await flushEventLoop();
    expect((await a.list()).map(({ label, state }) => [label, state])).toEqual([
      ["one", "held"],
      ["two", "waiting"],
    ]);
    loops[0].endBody();
    await flushEventLoop();
    const [leader] = await a.list();
    expect(leader).toMatchObject({ label: "two", state: "held", token: first(loops[1]).token });
    expect(first(loops[1]).token).toBeGreaterThan(first(loops[0]).token);
    expect(loops[0].terms.length).toBe(1);

    const iterators = [loops[0].election[Symbol.asyncIterator](), loops[0].election[Symbol.asyncIterator]()];
    const next = iterators.map((iterator) => iterator.next());
    for (const loop of loops) await loop.election.close();
    expect(await Promise.all(next)).toEqual([
      { done: true, value: undefined },
      { done: true, value: undefined },
    ]);
  });

  test("a term belongs to no async flow: its body does not hold the key, and an election inside a held lock is a deadlock", async () => {
    const [a] = openClients(1) as [Locks];
    for await (const _term of a.leader("scheduler")) {
      expect(a.holds("scheduler")).toBe(false);
      break;
    }
    await a.using("scheduler", async () => {
      await expect(a.leader("scheduler")[Symbol.asyncIterator]().next()).rejects.toMatchObject({
        code: "LOCK_DEADLOCK",
        keys: ["scheduler"],
      });
      for await (const term of a.leader("another")) {
        expect(term.signal.aborted).toBe(false);
        break;
      }
    });
  });

  test("it is the exclusive lock on the key of that name, with the client's prefix", async () => {
    const [a] = openClients(1, { prefix: "app:" }) as [Locks];
    const lock = await a.acquire("scheduler");
    const loop = campaign(a);
    await flushEventLoop();
    expect(loop.terms).toEqual([]);
    await lock.release();
    await flushEventLoop();
    expect(first(loop).grants[0]).toMatchObject({ key: "scheduler", storeKey: "app:scheduler" });
  });
});

describe("the end of a term", () => {
  test("at the deadline of its lease the signal is aborted, before the store grants the next term", async () => {
    const clock = new FakeClock();
    let isCut = false;
    const [a, b] = openClients(2, { clock, ttl: "10s" }, (driver, index) => ({
      ...driver,
      renew: (...args) => (isCut && index === 0 ? Promise.reject(new Error("cut")) : driver.renew(...args)),
    })) as [Locks, Locks];
    const loopA = campaign(a);
    await clock.advance(1);
    const loopB = campaign(b);
    await clock.advance(1);
    isCut = true;
    await clock.advance(8_990);
    expect([first(loopA).signal.aborted, loopB.terms.length]).toEqual([false, 0]);
    await clock.advance(20);
    expect([first(loopA).signal.aborted, loopB.terms.length]).toEqual([true, 0]);
    expect(reasonOf(first(loopA))).toBe("expired");
    await clock.advance(1_000);
    expect(loopB.terms.length).toBe(1);
    expect(loopA.terms.length).toBe(1);
    isCut = false;
    loopB.endBody();
    loopA.endBody();
    await clock.advance(1);
    expect(loopA.terms.length).toBe(2);
  });

  test.each([
    ["signal", (term: Term) => term.signal.aborted],
    ["throwIfLost()", (term: Term) => assert.throws(() => term.throwIfLost(), /lease ended/) === undefined],
    ["remainingMs", (term: Term) => term.remainingMs === 0],
  ] as const)("%s tells a leader that was stopped, before any timer has run", async (_, isTold) => {
    const clock = new FakeClock();
    const [a] = openClients(1, { clock, ttl: "10s" }) as [Locks];
    const loop = campaign(a);
    await clock.advance(1);
    let wasAborted = false;
    first(loop).signal.addEventListener("abort", () => {
      wasAborted = true;
    });
    clock.jump(9_001);
    expect(isTold(first(loop))).toBe(true);
    expect(wasAborted).toBe(true);
  });

  test("maxHold and revoke() end it; the next leader starts when the body has ended", async () => {
    const clock = new FakeClock();
    const [a, b] = openClients(2, { clock, ttl: "10s" }) as [Locks, Locks];
    const loopA = campaign(a, { maxHold: "3s" });
    await clock.advance(1);
    const loopB = campaign(b);
    await clock.advance(3_000);
    expect(reasonOf(first(loopA))).toBe("maxHold");
    expect(loopB.terms.length).toBe(0);
    loopA.endBody();
    await clock.advance(1);
    expect(loopB.terms.length).toBe(1);
    expect(await a.revoke("scheduler", first(loopB).token)).toBe(true);
    await clock.advance(4_000);
    expect(reasonOf(first(loopB))).toBe("revoked");
  });
});

describe("resigning", () => {
  test("term.resign() aborts the signal, then releases, and says whether the term lasted until then", async () => {
    const log: string[] = [];
    const [a] = openClients(1, {}, (driver) => ({
      ...driver,
      release: (releases) => {
        log.push("released");
        return driver.release(releases);
      },
    })) as [Locks];
    const loop = campaign(a);
    await flushEventLoop();
    const term = first(loop);
    term.signal.addEventListener("abort", () => log.push("told"));
    const resigned = term.resign();
    expect(log[0]).toBe("told");
    expect([await resigned, await term.resign(), log]).toEqual([true, true, ["told", "released"]]);
    expect(reasonOf(term)).toBe("released");
    expect(await a.list()).toEqual([]);
    loop.endBody();
    await flushEventLoop();
    await a.revoke("scheduler", loop.terms[1]?.token as bigint, { now: true });
    expect(await loop.terms[1]?.resign()).toBe(false);
  });

  test("`await using` ends a term, also one that was lost", async () => {
    const [a] = openClients(1) as [Locks];
    const iterator = a.leader("scheduler")[Symbol.asyncIterator]();
    const { value: term } = (await iterator.next()) as { value: Term };
    await a.revoke("scheduler", term.token, { now: true });
    await term[Symbol.asyncDispose]();
    expect(term.signal.aborted).toBe(true);
    await iterator.return();
  });

  test("election.resign() tells the body at once; the next leader starts when the body has ended, and the election goes on", async () => {
    const [a, b] = openClients(2) as [Locks, Locks];
    const loopA = campaign(a);
    await flushEventLoop();
    const loopB = campaign(b);
    await flushEventLoop();
    loopA.election.resign();
    expect(first(loopA).signal.aborted).toBe(true);
    expect(reasonOf(first(loopA))).toBe("released");
    await flushEventLoop();
    expect(loopB.terms.length).toBe(0);
    loopA.endBody();
    await flushEventLoop();
    expect(loopB.terms.length).toBe(1);
    loopA.election.resign(); // it does not lead
    expect(first(loopB).signal.aborted).toBe(false);
    loopB.endBody();
    await flushEventLoop();
    expect(loopA.terms.length).toBe(2);
  });
});

describe("the end of an election", () => {
  test("close() ends a term at once and the loop after its body; a waiting candidate leaves the queue", async () => {
    const [a, b] = openClients(2) as [Locks, Locks];
    const loopA = campaign(a);
    await flushEventLoop();
    const loopB = campaign(b);
    await flushEventLoop();
    await loopB.election.close();
    await loopB.ended;
    expect((await a.list()).length).toBe(1);
    await loopA.election[Symbol.asyncDispose]();
    expect(first(loopA).signal.aborted).toBe(true);
    expect(await a.list()).toEqual([]);
    loopA.endBody();
    await loopA.ended;
    expect([loopA.terms.length, loopB.terms.length]).toEqual([1, 0]);
    for await (const _term of loopA.election) assert.fail("a closed election has no terms");
  });

  test("the option `signal` ends it as resign() does: the lock is kept until the body has ended", async () => {
    const [a, b] = openClients(2) as [Locks, Locks];
    const controllers = [new AbortController(), new AbortController()] as const;
    const loopA = campaign(a, { signal: controllers[0].signal });
    await flushEventLoop();
    const loopB = campaign(b, { signal: controllers[1].signal });
    await flushEventLoop();
    controllers[1].abort();
    await loopB.ended;
    controllers[0].abort(new Error("shutdown"));
    expect(reasonOf(first(loopA))).toBe("released");
    await flushEventLoop();
    expect((await a.list()).length).toBe(1);
    loopA.endBody();
    await loopA.ended;
    expect(await a.list()).toEqual([]);
    for await (const _term of a.leader("scheduler", { signal: controllers[0].signal })) assert.fail("it was aborted");
  });

  test("a grant that arrives with the end of the election is given up", async () => {
    const [a, b] = openClients(2) as [Locks, Locks];
    const lock = await b.acquire("scheduler");
    const loop = campaign(a);
    await flushEventLoop();
    a.on("acquired", () => void loop.election.close());
    await lock.release();
    await loop.ended;
    expect([loop.terms, await b.list()]).toEqual([[], []]);
  });

  test.each(["close", "signal"] as const)(
    "wherever %s falls between a grant and the body: no body gets a term whose signal stays silent, no claim is left",
    async (how) => {
      for (let turns = 0; turns < 12; turns++) {
        const [a, b] = openClients(2) as [Locks, Locks];
        const lock = await b.acquire("scheduler");
        const controller = new AbortController();
        const loop = campaign(a, { signal: controller.signal });
        await flushEventLoop();
        void lock.release();
        for (let turn = 0; turn < turns; turn++) await Promise.resolve();
        if (how === "close") void loop.election.close();
        else controller.abort();
        await flushEventLoop();
        for (const term of loop.terms) expect(term.signal.aborted).toBe(true);
        loop.endBody();
        await loop.ended;
        expect([turns, await b.list()]).toEqual([turns, []]);
      }
    },
  );

  test("an election that is closed while its client opens ends without an error, although the store cannot be opened", async () => {
    let fail = (_error: Error): void => undefined;
    const [a] = openClients(1, {}, (driver) => ({
      ...driver,
      open: () => new Promise((_resolve, reject) => (fail = reject)),
    })) as [Locks];
    const loop = campaign(a);
    await flushEventLoop();
    await loop.election.close();
    fail(new Error("the store is down"));
    await loop.ended;
  });

  test("an election without a loop adds no listener to the user's signal, which would keep it in memory", () => {
    const [a] = openClients(1) as [Locks];
    const listen = vi.spyOn(EventTarget.prototype, "addEventListener");
    try {
      a.leader("scheduler", { signal: new AbortController().signal });
      expect(listen).not.toHaveBeenCalled();
    } finally {
      listen.mockRestore();
    }
  });

  test("closing the client ends its loops without an error; a client that is closed is an error", async () => {
    const [a, b] = openClients(2) as [Locks, Locks];
    const loopA = campaign(a);
    await flushEventLoop();
    const loopB = campaign(b);
    await flushEventLoop();
    await b.close();
    await loopB.ended;
    await a.close();
    expect(reasonOf(first(loopA))).toBe("released");
    loopA.endBody();
    await loopA.ended;
    await expect(campaign(a).ended).rejects.toMatchObject({ code: "LOCK_CLOSED" });
  });

  test("a refusal of the store rejects the loop; a store that fails is waited for", async () => {
    const clock = new FakeClock();
    let failure: Error | null = new Error("cut");
    const [a] = openClients(1, { clock }, (driver) => ({
      ...driver,
      claim: (claim) => (failure === null ? driver.claim(claim) : Promise.reject(failure)),
    })) as [Locks];
    const loop = campaign(a);
    await clock.advance(60_000);
    expect(loop.terms).toEqual([]);
    failure = null;
    await clock.advance(10_000);
    expect(loop.terms.length).toBe(1);
    failure = Object.assign(new Error("not allowed"), { code: "LOCK_STORE_REFUSED" });
    loop.endBody();
    await clock.advance(1);
    await expect(loop.ended).rejects.toMatchObject({ code: "LOCK_STORE_REFUSED" });
  });
});

describe("input", () => {
  test("a wrong name or option is a TypeError that names it, and nothing is sent", () => {
    const [a] = openClients(1, {}, (driver) => ({ ...driver, open: () => assert.fail("opened") })) as [Locks];
    const wrong = (name: unknown, options?: unknown): (() => unknown) => {
      return () => a.leader(name as string, options as LeaderOptions);
    };
    expect(wrong("")).toThrow(/^name must/);
    expect(wrong(7)).toThrow(/^name must be a string/);
    expect(wrong("a\nb")).toThrow(/^name must/);
    expect(wrong("s", { wait: "1s" })).toThrow(/^leader has no option "wait"/);
    expect(wrong("s", null)).toThrow(/^options of leader must/);
    expect(wrong("s", { ttl: "1ms" })).toThrow(/^ttl must/);
    expect(wrong("s", { maxHold: 0 })).toThrow(/^maxHold must/);
    expect(wrong("s", { label: 5 })).toThrow(/^label must/);
    expect(wrong("s", { signal: {} })).toThrow(/^signal must be an AbortSignal/);
    const prefixed = createLocks(memory(), { prefix: "p".repeat(300) });
    expect(() => prefixed.leader("n".repeat(300))).toThrow(/^name with its prefix must/);
    expect(() => createLocks(memory(), { renew: false }).leader("s")).toThrow(/^renew must be true/);
  });

  test("the client's own options apply, except wait", async () => {
    const clock = new FakeClock();
    const [a, b] = openClients(2, { clock, wait: "1s", label: "ours", ttl: "7s" }) as [Locks, Locks];
    campaign(a);
    await clock.advance(1);
    campaign(b, { label: "theirs", ttl: "1m" });
    await clock.advance(5_000);
    const claims = await a.list();
    expect(claims.map(({ label, remainingMs }) => [label, Number(remainingMs) > 7_000])).toEqual([
      ["ours", false],
      ["theirs", true],
    ]);
  });

  test("on a store without fencing the token throws as that of a lock", async () => {
    const [a] = openClients(1, {}, (driver) => ({
      ...driver,
      open: async (events) => ({ ...(await driver.open(events)), fencing: false }),
    })) as [Locks];
    const loop = campaign(a);
    await flushEventLoop();
    expect(() => first(loop).token).toThrow(expect.objectContaining({ code: "LOCK_UNSUPPORTED" }));
    expect(() => first(loop).grants).toThrow(expect.objectContaining({ code: "LOCK_UNSUPPORTED" }));
    first(loop).throwIfLost();
  });
});

test("an election or a term that is printed shows no claim id", async () => {
  const ids: string[] = [];
  const [a] = openClients(1, {}, (driver) => ({
    ...driver,
    claim: (claim) => {
      ids.push(claim.id);
      return driver.claim(claim);
    },
  })) as [Locks];
  const loop = campaign(a);
  await flushEventLoop();
  const shown = inspect([loop.election, loop.terms], { depth: null, showHidden: true });
  expect(ids.length).toBe(1);
  expect(shown).not.toContain(ids[0]);
});

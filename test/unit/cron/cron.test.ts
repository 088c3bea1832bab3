import { EventEmitter, once } from "node:events";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Locks } from "../../../src/client/locks.ts";
import { createLocks } from "../../../src/client/locks.ts";
import type { SkippedTick } from "../../../src/cron/index.ts";
import { createRunCoordinator, wrapJob } from "../../../src/cron/index.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { LockLostError, StoreRefusedError, UnsupportedError } from "../../../src/errors.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";

checkLeaksAfterEach();

const TICK = new Date("2026-11-23T03:00:00.000Z");
const KEY = `job:report:${TICK.toISOString()}`;
const ran = (): string => "ran";

let open: Locks[] = [];
let store = memoryStore();

beforeEach(() => {
  store = memoryStore();
  vi.useFakeTimers({ toFake: ["Date"], now: TICK });
});

afterEach(async () => {
  vi.useRealTimers();
  await Promise.all(open.map((locks) => locks.close()));
  open = [];
});

/** The locks of another process on the same store. */
function client(change: (driver: Driver) => Driver = (driver) => driver): Locks {
  const locks = createLocks(change(memory({ store })));
  open.push(locks);
  return locks;
}

/** The time left of the lease of a key, by the store's clock. */
async function readRemainingMs(key: string): Promise<number | undefined> {
  const [view] = await client().list(key);
  return view?.state === "held" ? (view.remainingMs ?? undefined) : undefined;
}

test("of all calls with one tick, one runs the job, although it takes no time; the next tick runs again", async () => {
  const skipped: SkippedTick[] = [];
  const calls = [client(), client(), client()].map((locks) =>
    wrapJob(locks, "report", ran, { onSkipped: (tick) => skipped.push(tick) }),
  );
  const runOnAll = async (tick: Date): Promise<(string | undefined)[]> => {
    const results: (string | undefined)[] = [];
    for (const call of [...calls, ...calls]) results.push(await call(tick));
    return results;
  };
  expect((await runOnAll(TICK)).filter((result) => result === "ran")).toEqual(["ran"]);
  expect(skipped).toHaveLength(5);
  expect(skipped[0]).toEqual({ name: "report", tick: TICK, reason: "taken" });
  expect((await runOnAll(new Date(TICK.getTime() + 1_000))).filter((result) => result === "ran")).toEqual(["ran"]);
});

test("a tick is the nearest second: a timer that fires early names the tick that it is meant for, and 1 ms makes no other tick", async () => {
  const ticks: Date[] = [];
  const skipped: Date[] = [];
  const call = wrapJob(client(), "report", ({ tick }) => ticks.push(tick), {
    onSkipped: ({ tick }) => void skipped.push(tick),
  });
  for (const ms of [-1, 0, 1, 499, -500]) {
    vi.setSystemTime(TICK.getTime() + ms);
    await call(new Date());
  }
  expect([ticks, skipped]).toEqual([[TICK], [TICK, TICK, TICK, TICK]]);
  await call(new Date(TICK.getTime() + 500));
  expect(ticks.at(-1)).toEqual(new Date(TICK.getTime() + 1_000));
  // the time of a caller is not changed
  const early = new Date(TICK.getTime() + 1_999);
  await call(early);
  expect(early.getTime()).toBe(TICK.getTime() + 1_999);
});

test("a coordinator takes times that differ by a millisecond for one tick", async () => {
  const [first, second] = [createRunCoordinator(client()), createRunCoordinator(client())];
  expect(await first.shouldRun("report:2026-11-23T02:59:59.999Z", 0)).toBe(true);
  expect(await second.shouldRun("report:2026-11-23T03:00:00.000Z", 0)).toBe(false);
  expect(await readRemainingMs(KEY)).toBeGreaterThan(0);
});

test("calls of one client at the same moment run the job once", async () => {
  const call = wrapJob(client(), "report", ran);
  expect((await Promise.all([call(TICK), call(TICK), call(TICK)])).sort()).toEqual(["ran", undefined, undefined]);
});

test("the tick stays claimed when its process closes its client, until no clock can come with it", async () => {
  const locks = client();
  vi.setSystemTime(TICK.getTime() - 2_000);
  await wrapJob(locks, "report", ran, { clockSkew: "5s", maxDelay: "20s" })(TICK);
  await locks.close();
  const remainingMs = await readRemainingMs(KEY);
  // this clock is 2 s ahead of those that show the tick
  expect(remainingMs).toBeGreaterThan(26_000);
  expect(remainingMs).toBeLessThanOrEqual(27_270);
});

test("a process that comes later than maxDelay does not even ask for the tick", async () => {
  const reasons: string[] = [];
  const asked: string[] = [];
  const locks = client((driver) => ({
    ...driver,
    claim: (claim) => {
      asked.push(...claim.locks.map(({ key }) => key));
      return driver.claim(claim);
    },
  }));
  const options = { maxDelay: "2s", onSkipped: ({ reason }: SkippedTick) => void reasons.push(reason) } as const;
  const call = wrapJob(locks, "report", ran, options);
  vi.setSystemTime(TICK.getTime() + 2_001);
  expect(await call(TICK)).toBeUndefined();
  expect([reasons, asked]).toEqual([["late"], []]);
  vi.setSystemTime(TICK.getTime() + 2_000);
  expect(await call(TICK)).toBe("ran");
  expect(asked).toEqual([KEY]);
});

test("a claim that is answered later than maxDelay does not count, and is given up", async () => {
  const slow = client((driver) => ({
    ...driver,
    claim: async (claim) => {
      vi.setSystemTime(TICK.getTime() + 2_001);
      return driver.claim(claim);
    },
  }));
  const reasons: string[] = [];
  const options = { maxDelay: "2s", onSkipped: ({ reason }: SkippedTick) => void reasons.push(reason) } as const;
  expect(await wrapJob(slow, "report", ran, options)(TICK)).toBeUndefined();
  expect(reasons).toEqual(["late"]);
  expect(await readRemainingMs(KEY)).toBeUndefined();
});

test("with overlap false a tick is skipped while an earlier one runs, in another process too; with true it runs", async () => {
  const jobEnd = new EventEmitter();
  const tokens: (bigint | undefined)[] = [];
  const first = wrapJob(
    client(),
    "report",
    async ({ lock }) => {
      tokens.push(lock?.token);
      await once(jobEnd, "end");
    },
    { overlap: false },
  );
  const reasons: string[] = [];
  const options = { overlap: false, onSkipped: ({ reason }: SkippedTick) => void reasons.push(reason) };
  const second = wrapJob(client(), "report", ({ lock }) => void tokens.push(lock?.token), options);
  const running = first(TICK);
  await vi.waitFor(() => expect(tokens).toHaveLength(1));
  await second(new Date(TICK.getTime() + 1_000));
  expect(reasons).toEqual(["overlap"]);
  expect(await wrapJob(client(), "report", ({ lock }) => lock)(new Date(TICK.getTime() + 2_000))).toBeNull();
  jobEnd.emit("end");
  await running;
  await second(new Date(TICK.getTime() + 3_000));
  const [earlier = 0n, later = 0n] = tokens;
  expect(later).toBeGreaterThan(earlier);
  expect(await client().list("job:report")).toHaveLength(4);
});

test("with overlap false a job that has ended keeps no tick out, although its client caches locks", async () => {
  const [first, second] = ["first", "second"].map((name) => {
    const locks = createLocks(memory({ store }), { cache: "10s" });
    open.push(locks);
    return wrapJob(locks, "report", () => name, { overlap: false });
  });
  expect(await first?.(TICK)).toBe("first");
  expect(await second?.(new Date(TICK.getTime() + 1_000))).toBe("second");
});

test("with overlap false the running job cannot start itself again", async () => {
  const reasons: string[] = [];
  const options = { overlap: false, onSkipped: ({ reason }: SkippedTick) => void reasons.push(reason) };
  let runs = 0;
  const call = wrapJob(
    client(),
    "report",
    async ({ tick }): Promise<void> => {
      if (++runs === 1) await call(new Date(tick.getTime() + 1_000));
    },
    options,
  );
  await call(TICK);
  expect([runs, reasons]).toEqual([1, ["overlap"]]);
});

test("a job that throws rejects the call and releases its lock; the tick is not run again", async () => {
  const fail = wrapJob(
    client(),
    "report",
    () => {
      throw new Error("disk full");
    },
    { overlap: false },
  );
  await expect(fail(TICK)).rejects.toThrow("disk full");
  expect(await readRemainingMs("job:report:")).toBeGreaterThan(0);
  expect(await client().list()).toHaveLength(1);
  expect(await wrapJob(client(), "report", ran)(TICK)).toBeUndefined();
});

test("a job whose lock was lost rejects", async () => {
  const job = wrapJob(
    client(),
    "report",
    async ({ lock }) => {
      const [held] = await client().list("job:report");
      if (held?.token == null || lock === null) throw new Error("no lock");
      await client().revoke("job:report", held.token, { now: true });
      await vi.waitFor(() => expect(lock.signal.aborted).toBe(true), 10_000);
    },
    { overlap: false },
  );
  await expect(job(TICK)).rejects.toBeInstanceOf(LockLostError);
}, 20_000);

test("if the store does not confirm that the tick is kept, nobody runs it", async () => {
  const unconfirmed = client((driver) => ({
    ...driver,
    // not repeated: otherwise it would be until shortly before the end of the lease
    detach: async () => {
      throw new StoreRefusedError("connection reset");
    },
  }));
  const call = wrapJob(unconfirmed, "report", ran);
  await expect(call(TICK)).rejects.toBeInstanceOf(StoreRefusedError);
  expect(await wrapJob(client(), "report", ran)(TICK)).toBeUndefined();
});

test("a store without leases is refused, and nothing stays locked", async () => {
  const sessions = client((driver) => ({
    ...driver,
    open: async (events) => ({ ...(await driver.open(events)), lease: { claim: false, sessionMs: 30_000 } }),
  }));
  await expect(wrapJob(sessions, "report", ran)(TICK)).rejects.toBeInstanceOf(UnsupportedError);
  expect(await client().list()).toEqual([]);
});

test("the argument of croner gives the latest tick at the beginning of the run", async () => {
  const references: (Date | undefined)[] = [];
  const job = (startedAt: Date | null, once: Date | null = null): never =>
    ({
      currentRun: () => startedAt,
      getOnce: () => once,
      previousRuns: (n: number, reference?: Date) => {
        references.push(reference);
        return n === 1 ? [TICK] : [];
      },
    }) as never;
  const call = wrapJob(client(), "report", ({ tick }) => tick);
  expect(await call(job(new Date(TICK.getTime() + 400)))).toEqual(TICK);
  expect(references).toEqual([new Date(TICK.getTime() + 401)]);
  const once = new Date(TICK.getTime() - 7_000);
  expect(await call(job(null, once))).toEqual(once);
});

/** A `CronJob` with a tick each minute, the zone that it is asked for, and what a pattern of once has. */
function cronJob(lastDate: Date | null, cronTime: object = { source: "0 * * * * *" }): { readonly zones: unknown[] } {
  const zones: unknown[] = [];
  const getNextDateFrom = (start: Date, zone?: string): object => {
    zones.push(zone);
    const nextMinute = (Math.floor(start.getTime() / 60_000) + 1) * 60_000;
    return { toMillis: () => nextMinute };
  };
  return { zones, lastDate: () => lastDate, cronTime: { getNextDateFrom, ...cronTime } } as never;
}

test.each([
  ["some ms early, since the clock was set back", -20, 0],
  ["on time", 0, 0],
  ["late, after a pause", 59_900, 0],
  ["for the tick after", 59_960, 60_000],
])(
  "the tick of the package cron is the latest one of its pattern when the run begins %s",
  async (_, lateMs, expectedMs) => {
    const call = wrapJob(client(), "report", ({ tick }) => tick, { maxDelay: "10m" });
    const job = cronJob(new Date(TICK.getTime() + lateMs));
    expect(await call(job as never)).toEqual(new Date(TICK.getTime() + expectedMs));
  },
);

test("cron calls with its job as this, and with nothing or a function; the zone is that of the job", async () => {
  const jobs = [
    cronJob(new Date(TICK), { source: "0 * * * * *", timeZone: "Asia/Kathmandu" }),
    cronJob(new Date(TICK.getTime() + 60_000), { source: "0 * * * * *", utcOffset: -210 }),
    cronJob(null, { source: { toMillis: () => TICK.getTime() - 5_000 } }),
  ];
  const call = wrapJob(client(), "report", ({ tick }) => tick.getTime() - TICK.getTime(), { maxDelay: "10m" });
  const args = [undefined, () => undefined, undefined];
  const results: unknown[] = [];
  for (const [index, job] of jobs.entries()) results.push(await call.call(job, args[index] as never));
  expect(results).toEqual([0, 60_000, -5_000]);
  expect(jobs.map(({ zones }) => [...new Set(zones)])).toEqual([["Asia/Kathmandu"], ["UTC-03:30"], []]);
});

test("a CronJob without any tick until now is refused", async () => {
  const never = { source: "* * * * * *", getNextDateFrom: () => ({ toMillis: () => TICK.getTime() + 9e12 }) };
  await expect(wrapJob(client(), "report", ran)(cronJob(TICK, never) as never)).rejects.toThrow("tick must be");
});

test("node-cron passes the date of the tick", async () => {
  expect(await wrapJob(client(), "report", ({ tick }) => tick)({ date: TICK })).toEqual(TICK);
});

test("a coordinator lets one process run a tick of node-cron, and keeps its claim for distributedLease", async () => {
  const [first, second] = [createRunCoordinator(client()), createRunCoordinator(client())];
  expect(await first.shouldRun(`report:${TICK.toISOString()}`, 90_000)).toBe(true);
  expect(await second.shouldRun(`report:${TICK.toISOString()}`, 90_000)).toBe(false);
  expect(await readRemainingMs(KEY)).toBeGreaterThan(80_000);
  await first.onComplete(`report:${TICK.toISOString()}`);
  expect(await second.shouldRun(`report:${TICK.toISOString()}`, 90_000)).toBe(false);
});

test("a coordinator with overlap false holds the job's lock until the run is complete", async () => {
  const coordinators = [client(), client()].map((locks) => createRunCoordinator(locks, { overlap: false }));
  const [first, second] = coordinators as [(typeof coordinators)[number], (typeof coordinators)[number]];
  const keyAfter = (ms: number): string => `report:${new Date(TICK.getTime() + ms).toISOString()}`;
  expect(await first.shouldRun(keyAfter(0), 0)).toBe(true);
  expect(await second.shouldRun(keyAfter(1_000), 0)).toBe(false);
  await first.onComplete(keyAfter(0));
  expect(await second.shouldRun(keyAfter(2_000), 0)).toBe(true);
  await second.onComplete(keyAfter(2_000));
});

test("a run whose end node-cron does not report keeps others out until maxHold, and its lease ends", async () => {
  const locks = createLocks(memory({ store }), { ttl: "300ms" });
  open.push(locks);
  const first = createRunCoordinator(locks, { overlap: false, maxHold: "50ms" });
  const second = createRunCoordinator(client(), { overlap: false });
  expect(await first.shouldRun(`report:${TICK.toISOString()}`, 0)).toBe(true);
  // the tick alone
  await vi.waitFor(async () => expect(await client().list("job:report")).toHaveLength(1), 5_000);
  expect(await second.shouldRun(`report:${new Date(TICK.getTime() + 1_000).toISOString()}`, 0)).toBe(true);
  expect(() => createRunCoordinator(client(), { maxHold: 0 })).toThrow(/maxHold/);
});

test.each([
  [
    "throws",
    () => {
      throw new Error("the callback failed");
    },
  ],
  [
    "rejects",
    async () => {
      await Promise.resolve();
      throw new Error("the callback failed");
    },
  ],
] as const)("a callback for skipped ticks that %s rejects the call, as the job does", async (_, onSkipped) => {
  const call = wrapJob(client(), "report", ran, { overlap: false, onSkipped });
  expect(await call(TICK)).toBe("ran");
  await expect(call(TICK)).rejects.toThrow("the callback failed");
});

test("a schedule of croner with an interval is refused: its processes have no common ticks", async () => {
  const job = { currentRun: () => TICK, getOnce: () => null, previousRuns: () => [TICK], options: { interval: 40 } };
  await expect(wrapJob(client(), "report", ran)(job as never)).rejects.toThrow(/interval/);
});

test("wrong arguments are refused by name", async () => {
  const locks = client();
  const wrap = wrapJob as (...args: unknown[]) => (tick: unknown) => Promise<unknown>;
  expect(() => wrap("redis://host", "report", ran)).toThrow("locks must be what connect() or createLocks() returns");
  expect(() => wrap(locks, "", ran)).toThrow("name must not be empty");
  expect(() => wrap(locks, "x".repeat(512), ran)).toThrow("name must have at most 512 bytes");
  expect(() => wrap(locks, "report", "ran")).toThrow("job must be a function");
  expect(() => wrap(locks, "report", ran, { wait: 3 })).toThrow('wrapJob has no option "wait"');
  expect(() => wrap(locks, "report", ran, { clockSkew: "soon" })).toThrow("clockSkew must be");
  expect(() => wrap(locks, "report", ran, { maxDelay: -1 })).toThrow("maxDelay must be");
  expect(() => wrap(locks, "report", ran, { overlap: "no" })).toThrow("overlap must be true or false");
  expect(() => wrap(locks, "report", ran, { onSkipped: 3 })).toThrow("onSkipped must be a function");
  for (const tick of [
    undefined,
    "now",
    new Date(Number.NaN),
    3,
    { previousRuns: () => [], currentRun: () => null, getOnce: () => null },
  ])
    await expect(wrap(locks, "report", ran)(tick)).rejects.toThrow("tick must be a valid date");
  expect(() => createRunCoordinator(locks, { onSkipped: ran } as never)).toThrow('has no option "onSkipped"');
  await expect(createRunCoordinator(locks).shouldRun(`:${TICK.toISOString()}`, 1)).rejects.toThrow("name the task");
});

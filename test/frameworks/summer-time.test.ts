/**
 * The schedulers themselves, on days on which summer time begins or ends, with the timers of a test: for each time at which a scheduler
 * calls, one job runs, and it gets that time. Which times these are is the scheduler's own matter; the guide has a table of them.
 */

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { wrapJob } from "../../src/cron/index.ts";
import { toTick } from "../../src/cron/tick-source.ts";
import { createTestLocks } from "../../src/testing/index.ts";
import { createRandom } from "../../src/testing/random.ts";
import { loadInterop } from "../support/interop.ts";

const { Cron } = loadInterop("croner", "frameworks");
const { CronJob } = loadInterop("cron", "frameworks");
const { scheduleJob } = loadInterop("node-schedule", "frameworks");
const { schedule } = loadInterop("node-cron", "frameworks");

const HOUR_MS = 3_600_000;
const BERLIN = "Europe/Berlin";
/** Its summer time differs by half an hour. */
const LORD_HOWE = "Australia/Lord_Howe";

type Call = (this: unknown, source: never) => unknown;

/** Each starts a schedule, and returns a function that stops it. */
const START: Readonly<Record<string, (pattern: string, zone: string, call: Call) => () => unknown>> = {
  croner(pattern, zone, call) {
    const job = new Cron(pattern, { timezone: zone }, call);
    return () => job.stop();
  },
  cron(pattern, zone, call) {
    const job = new CronJob(pattern, call, null, true, zone);
    return () => job.stop();
  },
  "node-schedule"(pattern, zone, call) {
    const job = scheduleJob({ rule: pattern, tz: zone }, call);
    return () => job.cancel();
  },
  "node-cron"(pattern, zone, call) {
    const task = schedule(pattern, call, { timezone: zone });
    return () => task.stop();
  },
};

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const toText = (time: number): string => new Date(time).toISOString().slice(11, 16);

/** Runs a schedule in two "processes" for four hours. Returns the times of the calls, and the ticks that ran, by UTC. */
async function runSchedule(
  scheduler: string,
  [pattern, zone, from]: readonly [string, string, string],
): Promise<{
  readonly calls: readonly string[];
  readonly ran: readonly string[];
  readonly skipped: readonly string[];
}> {
  vi.setSystemTime(new Date(from));
  await using locks = createTestLocks({ clock: "timers" });
  await locks.using("opened", () => undefined);
  const [calls, ran, skipped] = [new Set<string>(), [] as string[], [] as string[]];
  const stops = [0, 1].map(() => {
    const run = wrapJob(locks, "report", ({ tick }) => ran.push(toText(tick.getTime())), {
      onSkipped: ({ tick, reason }) => skipped.push(`${toText(tick.getTime())} ${reason}`),
    });
    return START[scheduler]?.(pattern, zone, function (source) {
      calls.add(toText(Date.now()));
      return run.call(this, source);
    });
  });
  await vi.advanceTimersByTimeAsync(4 * HOUR_MS);
  for (const stop of stops) stop?.();
  return { calls: [...calls], ran, skipped };
}

const DAILY = "30 2 * * *";
const HOURLY = "30 * * * *";
const SPRING = "2026-03-28T23:40:00Z";
const AUTUMN = "2026-10-24T22:40:00Z";

/** When "30 2 * * *" of Berlin runs, by UTC: in spring there is no 2:30, in autumn it is at 0:30 and 1:30 UTC. As in the guide. */
const DAILY_RUNS: Readonly<Record<string, readonly [spring: readonly string[], autumn: readonly string[]]>> = {
  croner: [["01:00"], ["00:30"]],
  cron: [["01:00"], ["00:30"]],
  "node-schedule": [["01:30"], ["00:30"]],
  "node-cron": [[], ["01:30"]],
};

describe.each(Object.keys(START))("%s", (scheduler) => {
  test.each([
    ["a time that does not exist", [DAILY, BERLIN, SPRING], 0],
    ["a time that exists twice", [DAILY, BERLIN, AUTUMN], 1],
  ] as const)("a daily job at %s runs where the guide says", async (_, day, index) => {
    const { ran } = await runSchedule(scheduler, day);
    expect(ran).toEqual(DAILY_RUNS[scheduler]?.[index]);
  });

  test.each([
    ["summer time begins", [HOURLY, BERLIN, SPRING]],
    ["summer time ends", [HOURLY, BERLIN, AUTUMN]],
    ["half an hour of summer time begins", [HOURLY, LORD_HOWE, "2026-10-03T13:40:00Z"]],
    ["half an hour of summer time ends", [HOURLY, LORD_HOWE, "2026-04-04T13:40:00Z"]],
  ] as const)("of an hourly job each call is a tick, which runs once, while %s", async (_, day) => {
    const { calls, ran, skipped } = await runSchedule(scheduler, day);
    expect(ran.length).toBeGreaterThan(2);
    expect(ran).toEqual(calls);
    expect(skipped).toEqual(calls.map((time) => `${time} taken`));
  });
});

test.each([
  ["* * * * * *", BERLIN, SPRING],
  ["*/20 * * * *", BERLIN, AUTUMN],
  ["15,45 2-4 * * *", BERLIN, SPRING],
  ["* * 3 * * *", LORD_HOWE, "2026-04-04T13:40:00Z"],
  ["0 0 29 2 *", "UTC", AUTUMN],
  ["30 9 * * 1-5", 345, AUTUMN],
  ["30 9 * * *", -210, SPRING],
  ["30 9 * * *", 0, SPRING],
])(
  "the tick of a CronJob with %s is the latest one, however late its timer fires, or a little early",
  (pattern, zone, from) => {
    vi.setSystemTime(new Date(from));
    const options = typeof zone === "string" ? { timeZone: zone } : { utcOffset: zone };
    const job = CronJob.from({ cronTime: pattern, onTick: () => undefined, ...options });
    const planned: number[] = [];
    for (let count = 0; count < 8; count++) {
      const next = (job.nextDate() as { toMillis(): number }).toMillis();
      planned.push(next);
      vi.setSystemTime(next);
    }
    const random = createRandom(7);
    for (const [index, tick] of planned.slice(0, -1).entries()) {
      const roomMs = Math.min((planned[index + 1] as number) - tick - 51, 9 * 24 * HOUR_MS);
      for (const lateMs of [-40, 5, 900, random.int(roomMs)]) {
        if (lateMs > roomMs) continue;
        job.lastExecution = new Date(tick + lateMs);
        expect([lateMs, toTick(job)]).toEqual([lateMs, new Date(tick)]);
      }
    }
  },
);

/** The tick that a call of a scheduler is meant for. Schedulers pass different things to the functions that they call. */

import { describeValue } from "../util/duration.ts";
import { isObject } from "../util/validate.ts";
import { toNearestTick } from "./tick.ts";

/** What croner passes to its function: a `Cron`, as far as it is read. */
export interface CronerJob {
  /** When the run has begun. */
  currentRun(): Date | null;
  /** The time of a job that runs once. */
  getOnce(): Date | null;
  /** The latest ticks before a time. */
  previousRuns(n: number, reference?: Date): readonly Date[];
  readonly options?: { readonly interval?: number | undefined };
}

/** The `this` of a function that the package cron calls, also below @nestjs/schedule: a `CronJob`, as far as it is read. */
export interface CronJob {
  /** When the last run has begun. */
  lastDate(): Date | null;
  readonly cronTime: {
    /** A pattern, or the time of a job that runs once. */
    readonly source: string | { toMillis(): number };
    readonly timeZone?: string | undefined;
    /** In minutes, instead of a time zone. */
    readonly utcOffset?: number | undefined;
    /** The first tick after the second in which `start` is. */
    getNextDateFrom(start: Date, timeZone?: string): { toMillis(): number };
  };
}

/** What node-cron passes to its function, as far as it is read. */
export interface NodeCronRun {
  /** The time of the tick. */
  readonly date: Date;
}

/** A time, of which the nearest second counts, such as the `fireDate` of node-schedule; or what croner, node-cron or cron pass. */
export type TickSource = Date | CronerJob | CronJob | NodeCronRun;

const SECOND_MS = 1_000;
const LONGEST_GAP_MS = 16 * 366 * 24 * 3_600 * SECOND_MS;
/**
 * A timer may fire a little early: cron looks at the clock before it calls, and an adjustment of the clock may come in between. It is
 * short, since what comes late by a second less this would count for the next tick of a schedule of every second.
 */
const EARLY_MS = 50;

/** @throws TypeError for anything that tells no time */
export function toTick(source: unknown): Date {
  const time = isObject(source) ? readTime(source) : undefined;
  if (time instanceof Date && !Number.isNaN(time.getTime())) return toNearestTick(time);
  throw new TypeError(
    `tick must be a valid date, or what croner, cron or node-cron pass to their functions, not ${describeValue(source)}`,
  );
}

function readTime(source: object): unknown {
  if ("previousRuns" in source) return toCronerTick(source as CronerJob);
  if ("cronTime" in source) return toCronTick(source as CronJob);
  return "date" in source ? source.date : source;
}

/**
 * croner tells when the run has begun, by the clock of this machine: up to a second, or a pause, after the tick, and never before it.
 * @throws TypeError if the schedule has an interval: each process then counts from its own start, so they have no common ticks
 */
function toCronerTick(job: CronerJob): Date | undefined {
  if (job.options?.interval)
    throw new TypeError("the schedule must not have the option interval of croner: use a pattern");
  const startedAt = job.currentRun() ?? new Date();
  return job.getOnce() ?? job.previousRuns(1, new Date(startedAt.getTime() + 1))[0];
}

/**
 * cron tells when the run has begun, and of its pattern only what comes after a time. So this looks for a span with a tick before
 * the run, and for the last tick in it, by halves.
 */
function toCronTick(job: CronJob): Date | undefined {
  const { cronTime } = job;
  const { source, timeZone, utcOffset } = cronTime;
  if (typeof source !== "string") return new Date(source.toMillis());
  const zone = utcOffset === undefined ? timeZone : formatOffset(utcOffset);
  const nextAfter = (time: number): number => cronTime.getNextDateFrom(new Date(time), zone).toMillis();
  const runAt = (job.lastDate() ?? new Date()).getTime() + EARLY_MS;
  let spanMs = SECOND_MS;
  let latest = nextAfter(runAt - spanMs);
  while (latest > runAt) {
    spanMs *= 4;
    if (spanMs > LONGEST_GAP_MS) return undefined;
    latest = nextAfter(runAt - spanMs);
  }
  // most schedules have only one in it. From `end` on there is none
  let end = nextAfter(latest) > runAt ? latest : runAt;
  let begin = latest;
  while (end - begin >= SECOND_MS) {
    const middle = (begin + end) / 2;
    const tick = nextAfter(middle);
    if (tick > runAt) end = middle;
    else {
      latest = Math.max(latest, tick);
      // in the hour that comes twice, cron finds a tick before the time that it was given
      begin = Math.max(middle, tick);
    }
  }
  return new Date(latest);
}

/** 345 is "UTC+05:45". */
function formatOffset(minutes: number): string {
  const [hours, rest] = [Math.trunc(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  const digits = [hours, rest].map((part) => String(part).padStart(2, "0")).join(":");
  return `UTC${minutes < 0 ? "-" : "+"}${digits}`;
}

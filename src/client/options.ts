/** Options, checked once at the border: durations become milliseconds, names that do not exist are errors. */

import { UnsupportedError } from "../errors.ts";
import type { Traits } from "../spi/driver.ts";
import type { Clock } from "../util/clock.ts";
import { systemClock } from "../util/clock.ts";
import type { Duration } from "../util/duration.ts";
import { describeValue, MIN_TTL_MS, parseDuration } from "../util/duration.ts";
import { cleanLabel, validateKey } from "../util/keys.ts";
import { defaultLabel } from "./default-label.ts";
import { requireCount } from "./lock-target.ts";

/** What may be said of one acquire. */
export interface AcquireOptions {
  /** Longest wait; then LockTimeoutError. 0: ask once, leave no place. Default: the client's, else for ever. */
  readonly wait?: Duration | undefined;
  /**
   * Lease length; renewed while held. Default the client's, else 30 s; at least 100 ms. "session": until released or the
   * session ends (our server). Ignored, with a warning once, by stores that only have sessions.
   */
  readonly ttl?: Duration | "session" | undefined;
  /** Stops the wait; acquire rejects with signal.reason. Does not release a lock already held. */
  readonly signal?: AbortSignal | undefined;
  /** Shown by tools. Default: `user@host pid program`. */
  readonly label?: string | undefined;
}

/** What may be said of one tryAcquire: it never waits. */
export type TryOptions = Omit<AcquireOptions, "wait">;

/** What may be said of a client. */
export interface LocksOptions {
  /** Default of every acquire's `wait`. Default: for ever. */
  readonly wait?: Duration | undefined;
  /** Default of every acquire's `ttl`. Default 30 s. */
  readonly ttl?: Duration | "session" | undefined;
  /** Default of every acquire's `label`. */
  readonly label?: string | undefined;
  /** Stands before every key at the store; not part of the keys this client shows. Default: none. */
  readonly prefix?: string | undefined;
  /** How many local requests may be served by one grant of the store, 1 to 1024. 1: strict order of arrival. Default 64. */
  readonly handoffs?: number | undefined;
  /** How long after the store's grant the lock may still be passed on locally. Default 10 ms. */
  readonly handoffMs?: number | undefined;
  /** May a request join what its own async flow holds? Default true. */
  readonly reentrant?: boolean | undefined;
  /** A holder is given up after this time, its signal aborted with reason "maxHold". Default: never. */
  readonly maxHold?: Duration | undefined;
  /** false: no timer at all while held, for short-lived functions; the lease is what `ttl` says. Default true. */
  readonly renew?: boolean | undefined;
  /** Time, for tests. */
  readonly clock?: Clock | undefined;
}

/** LocksOptions with defaults, in milliseconds; as a wish it is what acquire() without options means. */
export interface ClientSettings extends AcquireSettings {
  readonly prefix: string;
  readonly handoffs: number;
  readonly handoffMs: number;
  readonly reentrant: boolean;
  readonly maxHoldMs: number;
  readonly renew: boolean;
  readonly clock: Clock;
}

/** One acquire's options with defaults, in milliseconds. */
export interface AcquireSettings {
  /** Infinity: for ever. */
  readonly waitMs: number;
  readonly ttl: number | "session";
  /** The user has said so: it is no default. */
  readonly isTtlExplicit: boolean;
  readonly label: string;
  readonly signal: AbortSignal | undefined;
}

const UNLIMITED = Number.POSITIVE_INFINITY;

/** @throws TypeError naming the option; @param caller who takes them */
export function parseClientOptions(options: LocksOptions = {}, caller = "createLocks"): ClientSettings {
  requireObject(options, caller);
  const { wait = UNLIMITED, ttl = 30_000, label = defaultLabel(), prefix = "", clock = systemClock, ...rest } = options;
  const {
    handoffs = 64,
    handoffMs = 10,
    reentrant = true,
    maxHold = UNLIMITED,
    renew = true,
    ...unknownOptions
  } = rest;
  rejectUnknownOptions(unknownOptions, caller);
  requireMethod(clock, "timer", "clock");
  return {
    waitMs: parseTimeLimit(wait, "wait"),
    ttl: parseTtl(ttl),
    isTtlExplicit: options.ttl !== undefined,
    label: cleanLabel(label),
    signal: undefined,
    prefix: prefix === "" ? "" : validateKey(prefix, "prefix"),
    handoffs: requireCount(handoffs, "handoffs", 1_024),
    handoffMs: parseDuration(handoffMs, "handoffMs"),
    reentrant: requireBoolean(reentrant, "reentrant"),
    maxHoldMs: parseTimeLimit(maxHold, "maxHold", 1),
    renew: requireBoolean(renew, "renew"),
    clock,
  };
}

/** @throws TypeError naming the option; @param extraOption further names that the caller reads itself */
export function parseAcquireOptions(
  options: AcquireOptions,
  settings: ClientSettings,
  isTry: boolean,
  extraOption?: string,
): AcquireSettings {
  const caller = isTry ? "tryAcquire" : "acquire";
  requireObject(options, caller);
  const { wait, ttl, label, signal, ...unknownOptions } = options;
  rejectUnknownOptions(isTry && "wait" in options ? { wait } : unknownOptions, caller, extraOption);
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw new TypeError(`signal must be an AbortSignal, not ${describeValue(signal)}`);
  }
  return {
    waitMs: wait === undefined ? settings.waitMs : parseTimeLimit(wait, "wait"),
    ttl: ttl === undefined ? settings.ttl : parseTtl(ttl),
    isTtlExplicit: ttl !== undefined || settings.isTtlExplicit,
    label: label === undefined ? settings.label : cleanLabel(label),
    signal,
  };
}

let hasWarned = false;

/** The lease a claim of this wish has at this store. @throws UnsupportedError for "session" where there are none */
export function resolveTtl(settings: AcquireSettings, { lease }: Traits, driver: string): number | "session" {
  if (settings.ttl === "session" && lease.sessionMs === undefined) {
    throw new UnsupportedError(
      `${driver} has no sessions: ttl "session" needs a store with sessions, such as our server`,
    );
  }
  if (settings.ttl === "session" || lease.claim) return settings.ttl;
  if (settings.isTtlExplicit && !hasWarned) {
    hasWarned = true;
    process.emitWarning(`${driver} knows only session leases: ttl is ignored`, "HoldfastWarning");
  }
  return "session";
}

/** Infinity: none. */
function parseTimeLimit(value: unknown, name: string, min?: number): number {
  return value === UNLIMITED ? UNLIMITED : parseDuration(value, name, min);
}

function parseTtl(value: unknown): number | "session" {
  return value === "session" ? value : parseDuration(value, "ttl", MIN_TTL_MS);
}

function requireBoolean(value: unknown, name: string): boolean {
  if (typeof value !== "boolean") throw new TypeError(`${name} must be true or false, not ${describeValue(value)}`);
  return value;
}

/** @throws TypeError naming whose options are none */
export function requireObject(options: unknown, caller: string): void {
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    throw new TypeError(`options of ${caller} must be an object, not ${describeValue(options)}`);
  }
}

/** Does an object that has this method stand there, as far as one can tell? @throws TypeError naming the argument */
export function requireMethod(value: unknown, method: string, name: string): void {
  if (typeof (value as Record<string, unknown> | null | undefined)?.[method] !== "function")
    throw new TypeError(`${name} must be a ${name}, not ${describeValue(value)}`);
}

function rejectUnknownOptions(unknownOptions: object, caller: string, extraOption?: string): void {
  for (const name of Object.keys(unknownOptions)) {
    if (name !== extraOption) throw new TypeError(`${caller} has no option ${describeValue(name)}`);
  }
}

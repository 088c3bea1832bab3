/** Options, checked once at the border: durations become milliseconds, names that do not exist are errors. */

import type { Clock } from "../clock.ts";
import { systemClock } from "../clock.ts";
import type { Duration } from "../duration.ts";
import { durationMs, MIN_TTL_MS, shown } from "../duration.ts";
import { UnsupportedError } from "../errors.ts";
import { checkedKey, checkedLabel } from "../keys.ts";
import type { Traits } from "../spi/driver.ts";
import { defaultLabel } from "./label.ts";
import { checkedCount } from "./target.ts";

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
export interface Settings extends Wish {
  readonly prefix: string;
  readonly handoffs: number;
  readonly handoffMs: number;
  readonly reentrant: boolean;
  readonly maxHoldMs: number;
  readonly renew: boolean;
  readonly clock: Clock;
}

/** One acquire's options with defaults, in milliseconds. */
export interface Wish {
  /** Infinity: for ever. */
  readonly waitMs: number;
  readonly ttl: number | "session";
  /** The user has said so: it is no default. */
  readonly isTtlGiven: boolean;
  readonly label: string;
  readonly signal: AbortSignal | undefined;
}

const FOR_EVER = Number.POSITIVE_INFINITY;

/** @throws TypeError naming the option; @param verb who takes them */
export function settingsOf(options: LocksOptions = {}, verb = "createLocks"): Settings {
  checkObject(options, verb);
  const { wait = FOR_EVER, ttl = 30_000, label = defaultLabel(), prefix = "", clock = systemClock, ...rest } = options;
  const { handoffs = 64, handoffMs = 10, reentrant = true, maxHold = FOR_EVER, renew = true, ...unknown } = rest;
  refuseUnknown(unknown, verb);
  checkMethod(clock, "timer", "clock");
  return {
    waitMs: boundOf(wait, "wait"),
    ttl: ttlOf(ttl),
    isTtlGiven: options.ttl !== undefined,
    label: checkedLabel(label),
    signal: undefined,
    prefix: prefix === "" ? "" : checkedKey(prefix, "prefix"),
    handoffs: checkedCount(handoffs, "handoffs", 1_024),
    handoffMs: durationMs(handoffMs, "handoffMs"),
    reentrant: checkedFlag(reentrant, "reentrant"),
    maxHoldMs: boundOf(maxHold, "maxHold", 1),
    renew: checkedFlag(renew, "renew"),
    clock,
  };
}

/** @throws TypeError naming the option; @param extra further names that the caller reads itself */
export function wishOf(options: AcquireOptions, settings: Settings, isTry: boolean, extra?: string): Wish {
  const verb = isTry ? "tryAcquire" : "acquire";
  checkObject(options, verb);
  const { wait, ttl, label, signal, ...unknown } = options;
  refuseUnknown(isTry && "wait" in options ? { wait } : unknown, verb, extra);
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw new TypeError(`signal must be an AbortSignal, not ${shown(signal)}`);
  }
  return {
    waitMs: wait === undefined ? settings.waitMs : boundOf(wait, "wait"),
    ttl: ttl === undefined ? settings.ttl : ttlOf(ttl),
    isTtlGiven: ttl !== undefined || settings.isTtlGiven,
    label: label === undefined ? settings.label : checkedLabel(label),
    signal,
  };
}

let warned = false;

/** The lease a claim of this wish has at this store. @throws UnsupportedError for "session" where there are none */
export function leaseAt(wish: Wish, { lease }: Traits, driver: string): number | "session" {
  if (wish.ttl === "session" && lease.sessionMs === undefined) {
    throw new UnsupportedError(
      `${driver} has no sessions: ttl "session" needs a store with sessions, such as our server`,
    );
  }
  if (wish.ttl === "session" || lease.claim) return wish.ttl;
  if (wish.isTtlGiven && !warned) {
    warned = true;
    process.emitWarning(`${driver} knows only session leases: ttl is ignored`, "HoldfastWarning");
  }
  return "session";
}

/** Infinity: none. */
function boundOf(value: unknown, name: string, least?: number): number {
  return value === FOR_EVER ? FOR_EVER : durationMs(value, name, least);
}

function ttlOf(value: unknown): number | "session" {
  return value === "session" ? value : durationMs(value, "ttl", MIN_TTL_MS);
}

function checkedFlag(value: unknown, name: string): boolean {
  if (typeof value !== "boolean") throw new TypeError(`${name} must be true or false, not ${shown(value)}`);
  return value;
}

/** @throws TypeError naming whose options are none */
export function checkObject(options: unknown, verb: string): void {
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    throw new TypeError(`options of ${verb} must be an object, not ${shown(options)}`);
  }
}

/** Does an object that has this method stand there, as far as one can tell? @throws TypeError naming the argument */
export function checkMethod(value: unknown, method: string, name: string): void {
  if (typeof (value as Record<string, unknown> | null | undefined)?.[method] !== "function")
    throw new TypeError(`${name} must be a ${name}, not ${shown(value)}`);
}

function refuseUnknown(unknown: object, verb: string, extra?: string): void {
  for (const name of Object.keys(unknown)) {
    if (name !== extra) throw new TypeError(`${verb} has no option ${shown(name)}`);
  }
}

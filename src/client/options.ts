/** Validates options once, at the API: durations become milliseconds, unknown names are errors. */

import type { ClaimSettings } from "../claim/state.ts";
import { UnsupportedError } from "../errors.ts";
import { createLabel } from "../os/process-label.ts";
import type { Traits } from "../spi/driver.ts";
import type { Clock } from "../util/clock.ts";
import { systemClock } from "../util/clock.ts";
import type { Duration } from "../util/duration.ts";
import { MIN_TTL_MS, parseDuration } from "../util/duration.ts";
import { cleanLabel, validateKey } from "../util/keys.ts";
import type { OptionRules } from "../util/validate.ts";
import { booleanRule, clockRule, noProblem, stringRule, validateOptions } from "../util/validate.ts";
import type { ClientLogger } from "./logger.ts";
import { loggerRule } from "./logger.ts";

/** Which waiting request gets a lock next: one of the same process, for a while, or the one that came first. */
export type LockOrder = "process" | "strict";

/**
 * How the requests of one client for the same locks get them, see grant.ts. shared: one claim represents them all.
 * strict: each has a claim of its own, and the grant of one may pass to those directly behind it. alone: each has a
 * claim of its own, and the holder is the one that the store lists.
 */
export type QueueKind = "shared" | "strict" | "alone";

/** The options of acquire(). */
export interface AcquireOptions {
  /**
   * The longest wait; then LockTimeoutError. 0: tries once and does not queue, as tryAcquire() does, but a busy lock is
   * a LockTimeoutError, which names its holder, and not null. Default: the client's `wait`, else for ever.
   */
  readonly wait?: Duration | undefined;
  /**
   * The length of the lease, which is renewed while the lock is held. Default: the client's `ttl`, else 30 s; at least
   * 100 ms. "session": until the lock is released or the session ends (Holdfast server). Stores that have only sessions
   * ignore it and warn once.
   */
  readonly ttl?: Duration | "session" | undefined;
  /** Cancels the wait: acquire rejects with signal.reason. Does not release a lock that is already held. */
  readonly signal?: AbortSignal | undefined;
  /** Shown in lists of locks. Default: `user@host pid 4121 (program)`. */
  readonly label?: string | undefined;
  /**
   * After this time the lock is lost, and its signal is aborted with reason "maxHold". Default: the client's `maxHold`.
   */
  readonly maxHold?: Duration | undefined;
  /**
   * "process": a holder in this client may hand the lock off to it, before requests of other processes that came
   * earlier.
   * "strict": the request is served in order of arrival, and has a claim of its own, which is listed while it waits and
   * is never handed off.
   * Default: the client's `order`; a client in strict order hands its locks on in that order.
   */
  readonly order?: LockOrder | undefined;
  /**
   * How long this client keeps the lock after its last release here: a later request here takes it without a call,
   * until another process wants it. After a crash others wait for the lease. Exclusive locks only: readers and
   * semaphores ignore it. 0: not at all. Default: the client's `cache`.
   */
  readonly cache?: Duration | undefined;
  /**
   * What stands for the keys in events, metrics and spans, the same for many keys: "order:#{orderId}". Default: none;
   * for wrap() and
   * @locked() the templates of their keys.
   */
  readonly keyTemplate?: string | undefined;
}

/** The options of tryAcquire(), which never waits. */
export type TryOptions = Omit<AcquireOptions, "wait">;

/** The options of a client. */
export interface LocksOptions {
  /** The default for the `wait` of every acquire. Default: for ever. */
  readonly wait?: Duration | undefined;
  /** The default for the `ttl` of every acquire. Default 30 s. */
  readonly ttl?: Duration | "session" | undefined;
  /** The default for the `label` of every acquire. */
  readonly label?: string | undefined;
  /** Added in front of every key at the store; the keys that this client shows do not contain it. Default: none. */
  readonly prefix?: string | undefined;
  /**
   * "process": while other processes wait for a lock, the requests of this client hold it in turn for 10 ms, without a
   * call. "strict": all requests of all processes are served in order of arrival. Default "process".
   */
  readonly order?: LockOrder | undefined;
  /** The default for the `cache` of every acquire. Default 0. */
  readonly cache?: Duration | undefined;
  /** May a request join a lock that its own async flow holds? Default true. */
  readonly reentrant?: boolean | undefined;
  /** The default for the `maxHold` of every acquire. Default: never. */
  readonly maxHold?: Duration | undefined;
  /**
   * false: no renewal and no timer while a lock is held, for short-lived functions; the lease lasts `ttl`. Default
   * true.
   */
  readonly renew?: boolean | undefined;
  /**
   * Receives what happens to locks and to the store, and warnings: a logger such as pino's, or console. For connect()
   * also the warnings of the driver. Default: none; warnings are process warnings.
   */
  readonly logger?: ClientLogger | undefined;
  /** The clock; tests replace it. */
  readonly clock?: Clock | undefined;
}

/** The options of connect(). */
export interface ConnectOptions extends LocksOptions {
  /** How long connect() tries to reach the store before it rejects. Default 5 s. */
  readonly connectTimeout?: Duration | undefined;
  /**
   * The credential for a Holdfast server, or a function that returns it. The function is called for each connection, so
   * the credential may change. Default: HOLDFAST_CREDENTIAL, or the content of the file HOLDFAST_CREDENTIAL_FILE; else
   * none.
   */
  readonly credential?: string | (() => string) | undefined;
}

/** The options of detach(). */
export interface DetachOptions {
  /**
   * How long the lock stays held from now on. Attaching it restarts its full lease. At most the lock's own ttl, which
   * is the default.
   */
  readonly ttl?: Duration | undefined;
}

/** LocksOptions with defaults, in milliseconds. As AcquireSettings they apply to acquire() without options. */
export interface ClientSettings extends AcquireSettings {
  readonly prefix: string;
  /** A constant, which tests replace. */
  readonly handoffLimits: HandoffLimits;
  readonly reentrant: boolean;
  readonly renew: boolean;
  readonly logger: ClientLogger | undefined;
  readonly clock: Clock;
}

/** AcquireOptions with defaults, in milliseconds. */
export interface AcquireSettings {
  /** The longest wait; Infinity: for ever. 0: the lock is tried once, and is busy if it is not granted at once. */
  readonly waitMs: number;
  /** With a `waitMs` of 0, true: null for a busy lock, instead of an error that names its holder. Default: false. */
  readonly isNullIfBusy?: boolean;
  readonly ttl: number | "session";
  /** The user has set `ttl`; it is not the default. */
  readonly isTtlExplicit: boolean;
  readonly label: string;
  /** Infinity: no limit. */
  readonly maxHoldMs: number;
  readonly signal: AbortSignal | undefined;
  readonly keyTemplate?: string | undefined;
  /** The keys that the async flow of the request holds, for the message of a time-out. Absent: none. */
  readonly heldKeys?: readonly string[];
  /** Of exclusive locks. */
  readonly queueKind: QueueKind;
  /** 0: the lock is not cached. */
  readonly cacheMs: number;
}

const UNLIMITED = Number.POSITIVE_INFINITY;

/** How many local requests hold a lock in turn while other processes wait for it, and for how long. */
interface HandoffLimits {
  readonly holders: number;
  readonly ms: number;
}

/**
 * What others wait for is a time, so the time protects them; the number only ends grants of very short sections early,
 * since unused tokens are skipped, and where the store does not recall each is a microsecond of its clock (decisions
 * 0004 and 0048).
 */
const HANDOFF_LIMITS: HandoffLimits = { holders: 256, ms: 10 };

/** "process" or "strict". */
const orderRule = (value: unknown): string | null =>
  value === "process" || value === "strict" ? null : '"process" or "strict"';

/** An AbortSignal. */
export const signalRule = (value: unknown): string | null => (value instanceof AbortSignal ? null : "an AbortSignal");

/** The options that have no rule here are checked as they are parsed. */
const TRY_RULES: OptionRules<TryOptions> = {
  ttl: noProblem,
  label: noProblem,
  maxHold: noProblem,
  order: orderRule,
  cache: noProblem,
  signal: signalRule,
  keyTemplate: stringRule,
};
const ACQUIRE_RULES: OptionRules<AcquireOptions> = { ...TRY_RULES, wait: noProblem };
const CLIENT_RULES: OptionRules<LocksOptions> = {
  wait: noProblem,
  ttl: noProblem,
  label: noProblem,
  prefix: noProblem,
  order: orderRule,
  cache: noProblem,
  reentrant: booleanRule,
  maxHold: noProblem,
  renew: booleanRule,
  logger: loggerRule,
  clock: clockRule,
};

/** @throws TypeError naming the option; @param caller the name of the function that takes the options */
export function parseClientOptions(options: LocksOptions = {}, caller = "createLocks"): ClientSettings {
  validateOptions(caller, options, CLIENT_RULES);
  const {
    wait = UNLIMITED,
    ttl = 30_000,
    label = createLabel(process.argv[1] ?? process.execPath),
    prefix = "",
    clock = systemClock,
  } = options;
  const { order = "process", reentrant = true, maxHold = UNLIMITED, renew = true, cache = 0 } = options;
  const queueKind = order === "strict" ? "strict" : "shared";
  return {
    waitMs: parseTimeLimit(wait, "wait"),
    ttl: parseTtl(ttl),
    isTtlExplicit: options.ttl !== undefined,
    label: cleanLabel(label),
    signal: undefined,
    prefix: prefix === "" ? "" : validateKey(prefix, "prefix"),
    queueKind,
    handoffLimits: HANDOFF_LIMITS,
    reentrant,
    maxHoldMs: parseMaxHold(maxHold),
    cacheMs: parseCache(cache, queueKind, renew),
    renew,
    logger: options.logger,
    clock,
  };
}

/**
 * @param caller the name of the function that takes the options; only acquire() has the option `wait`
 * @param extraOption the name of an option that the caller parses itself
 * @throws TypeError naming the option
 */
export function parseAcquireOptions(
  options: AcquireOptions,
  settings: ClientSettings,
  caller: "acquire" | "tryAcquire" | "leader",
  extraOption?: string,
): AcquireSettings {
  const rules = caller === "acquire" ? ACQUIRE_RULES : TRY_RULES;
  validateOptions(caller, options, extraOption === undefined ? rules : { ...rules, [extraOption]: noProblem });
  const { wait, ttl, label, maxHold, signal, order, cache, keyTemplate } = options;
  const queueKind = toQueueKind(order, settings.queueKind);
  return {
    waitMs: wait === undefined ? settings.waitMs : parseTimeLimit(wait, "wait"),
    ttl: ttl === undefined ? settings.ttl : parseTtl(ttl),
    isTtlExplicit: ttl !== undefined || settings.isTtlExplicit,
    label: label === undefined ? settings.label : cleanLabel(label),
    maxHoldMs: maxHold === undefined ? settings.maxHoldMs : parseMaxHold(maxHold),
    signal,
    queueKind,
    cacheMs: cache === undefined ? settings.cacheMs : parseCache(cache, queueKind, settings.renew),
    keyTemplate,
  };
}

/** For those who keep the options for later calls. @throws TypeError naming the option; @param caller as above */
export function validateAcquireOptions(caller: string, options: AcquireOptions): void {
  validateOptions(caller, options, ACQUIRE_RULES);
  const { wait, ttl, label, maxHold, cache } = options;
  if (wait !== undefined) parseTimeLimit(wait, "wait");
  if (ttl !== undefined) parseTtl(ttl);
  if (label !== undefined) cleanLabel(label);
  if (maxHold !== undefined) parseMaxHold(maxHold);
  if (cache !== undefined) parseDuration(cache, "cache");
}

/** Returns the ttl of a claim at this store. @throws UnsupportedError for "session" if the store has no sessions */
export function resolveTtl({ ttl }: AcquireSettings, { lease }: Traits, driver: string): number | "session" {
  if (ttl === "session" && lease.sessionMs === undefined) {
    throw new UnsupportedError(
      `${driver} has no sessions: ttl "session" needs a store with sessions, such as the Holdfast server`,
    );
  }
  return lease.claim ? ttl : "session";
}

/** The settings of a claim's machine. */
export function toClaimSettings(
  ttl: number | "session",
  wait: boolean,
  { lease }: Traits,
  { renew }: ClientSettings,
): ClaimSettings {
  if (ttl !== "session") return { ttlMs: ttl, wait, survivesSilence: false, renews: renew };
  return { ttlMs: lease.sessionMs ?? 30_000, wait, survivesSilence: lease.endsWithConnection === true, renews: renew };
}

function toQueueKind(order: LockOrder | undefined, clientKind: QueueKind): QueueKind {
  if (order === undefined) return clientKind;
  return order === "process" ? "shared" : "alone";
}

/** Infinity: no limit. */
function parseTimeLimit(value: unknown, name: string, min?: number): number {
  return value === UNLIMITED ? UNLIMITED : parseDuration(value, name, min);
}

function parseMaxHold(value: unknown): number {
  return parseTimeLimit(value, "maxHold", 1);
}

/** @throws TypeError if the lock could not be kept as it is meant */
function parseCache(value: unknown, queueKind: QueueKind, renew: boolean): number {
  const cacheMs = parseDuration(value, "cache");
  if (cacheMs === 0) return cacheMs;
  if (queueKind !== "shared")
    throw new TypeError('cache must be 0 with order: "strict": a cached lock is handed on out of order');
  if (!renew) throw new TypeError("cache must be 0 with renew: false: the lease of a cached lock is renewed");
  return cacheMs;
}

function parseTtl(value: unknown): number | "session" {
  return value === "session" ? value : parseDuration(value, "ttl", MIN_TTL_MS);
}

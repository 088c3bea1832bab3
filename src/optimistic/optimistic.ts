/**
 * Optimistic concurrency control: read, change, and write only if the version has not moved in between; otherwise repeat.
 * The three phases are those of Kung and Robinson, "On Optimistic Methods for Concurrency Control" (1981), with the
 * validation done by the store in one step with the write.
 */

import { setTimeout as delay } from "node:timers/promises";
import { backoffMs } from "../util/backoff.ts";
import type { Duration } from "../util/duration.ts";
import { describeValue, formatDuration, parseDuration } from "../util/duration.ts";
import type { OptionRules } from "../util/validate.ts";
import { countRule, isObject, noProblem, requireValid, validateOptions } from "../util/validate.ts";
import { OutcomeUnknownError, RowGoneError, VersionConflictError } from "./errors.ts";

/**
 * What an exception of a store means. moved: nothing was written and a retry may succeed, as after a deadlock. unknown: the
 * write may have happened. failed: nothing was written and a retry would fail, too.
 */
export type StoreFailure = "moved" | "unknown" | "failed";

/** A value with a version in any store. versionedRow() makes one of a row of a table. */
export interface VersionedStore<Row, Changes> {
  /** Reads the current value together with its version. null or undefined: it does not exist. */
  read(): Promise<Row | null | undefined>;
  /** Writes if the version is still that of `row`, in one step, and moves the version. false: it had moved. */
  write(row: Row, changes: Changes): Promise<boolean>;
  /** Explains an exception of read() or write(). Default: "failed", so it is passed on. */
  classifyError?(error: unknown): StoreFailure;
  /** Whether another attempt can succeed; `cause` is the exception, if that ended the last one. Default: true. */
  canRetry?(cause: unknown): boolean;
  /** For messages: they say so if a version is read again after it has moved. */
  readVersion?(row: Row): unknown;
}

/** The options of optimistic(). */
export interface OptimisticOptions {
  /** The highest number of attempts, from 1. Default 10. */
  readonly attempts?: number | undefined;
  /** No attempt begins after this time. A statement that is running is not interrupted. Default: no limit. */
  readonly timeout?: Duration | undefined;
  /** The bound of the first delay, which doubles with every retry; each delay is a random part of it. Default 10 ms. */
  readonly minDelay?: Duration | undefined;
  /** The highest bound of a delay. Default 250 ms. */
  readonly maxDelay?: Duration | undefined;
  /** Ends the attempts: optimistic() rejects with signal.reason. A write that has been sent is awaited. */
  readonly signal?: AbortSignal | undefined;
}

/** What `change` learns besides the row. */
export interface OptimisticAttempt {
  /** 1 for the first attempt. */
  readonly attempt: number;
}

/** What `change` returns to decline; stop() makes it. */
export interface Stop<Value> {
  readonly [STOP]: true;
  readonly value: Value;
}

/** How optimistic() ended. */
export type OptimisticResult<Row, Changes, Value> =
  | {
      readonly status: "written";
      /** The row as it was before. */
      readonly before: Row;
      /** What was written. */
      readonly changes: Changes;
      /** How many attempts failed before. */
      readonly retries: number;
    }
  | {
      readonly status: "stopped";
      /** The row that `change` saw. */
      readonly before: Row;
      /** The argument of stop(). */
      readonly value: Value;
      /** How many attempts failed before. */
      readonly retries: number;
    };

/** Reads the row and returns what to write, or stop(). Called once per attempt, so it must have no other effects. */
export type Change<Row, Changes, Value> = (
  row: Row,
  attempt: OptimisticAttempt,
) => Changes | Stop<Value> | Promise<Changes | Stop<Value>>;

// registered: a process may load two copies of the package
const STOP: unique symbol = Symbol.for("holdfast.optimistic.stop") as never;

const DEFAULT_ATTEMPTS = 10;
const DEFAULT_MIN_DELAY_MS = 10;
const DEFAULT_MAX_DELAY_MS = 250;

const durationRule =
  (name: string): ((value: unknown) => null) =>
  (value) =>
    noProblem(parseDuration(value, name, 1));

const OPTION_RULES: OptionRules<OptimisticOptions> = {
  attempts: countRule(Number.MAX_SAFE_INTEGER),
  timeout: durationRule("timeout"),
  minDelay: durationRule("minDelay"),
  maxDelay: durationRule("maxDelay"),
  signal: (value) => (value instanceof AbortSignal ? null : "an AbortSignal"),
};

const STORE_RULE = (value: unknown): string | null =>
  isObject(value) && typeof value.read === "function" && typeof value.write === "function"
    ? null
    : "an object with read() and write(), such as that of versionedRow()";

/** Returned by `change` to decline: nothing is written, nothing is repeated, and the value becomes the result's. */
export function stop(): Stop<undefined>;
export function stop<const Value>(value: Value): Stop<Value>;
export function stop(value?: unknown): Stop<unknown> {
  return { [STOP]: true, value };
}

/**
 * Reads a value, lets `change` say what to write, and writes that if the version has not moved; otherwise repeats after a
 * random delay. An exception of `change` ends it and is passed on.
 * @throws VersionConflictError if the version moved in every attempt, or `timeout` is over
 * @throws RowGoneError if the value does not exist
 * @throws OutcomeUnknownError if the answer to a write was lost
 * @throws TypeError if an argument is wrong
 */
export async function optimistic<Row, Changes, const Value = never>(
  store: VersionedStore<Row, Changes>,
  change: Change<Row, NoInfer<Changes>, Value>,
  options: OptimisticOptions = {},
): Promise<OptimisticResult<Row, Changes, Value>> {
  requireValid(store, "store", STORE_RULE);
  requireValid(change, "change", (value) => (typeof value === "function" ? null : "a function"));
  validateOptions("optimistic()", options, OPTION_RULES);
  const settings = toSettings(options);
  const startedAt = performance.now();
  let movedVersion: unknown;
  for (let attempt = 1; ; attempt++) {
    settings.signal?.throwIfAborted();
    const outcome = await tryOnce(store, change, attempt, settings.signal);
    if ("result" in outcome) return outcome.result;
    const { version } = outcome;
    const isStale = version !== undefined && version === movedVersion;
    movedVersion = version ?? movedVersion;
    const delayMs = backoffMs(attempt, Math.random(), settings.maxDelayMs, settings.minDelayMs);
    const elapsedMs = performance.now() - startedAt;
    const problem = findProblem(store, outcome.cause, attempt, elapsedMs + delayMs, settings);
    if (problem !== null) throw conflictError(problem, isStale ? version : undefined, attempt, outcome.cause);
    await sleepUnlessAborted(delayMs, settings.signal);
  }
}

interface Settings {
  readonly attempts: number;
  readonly timeoutMs: number;
  readonly minDelayMs: number;
  readonly maxDelayMs: number;
  readonly signal: AbortSignal | undefined;
}

function toSettings({ attempts, timeout, minDelay, maxDelay, signal }: OptimisticOptions): Settings {
  return {
    attempts: attempts ?? DEFAULT_ATTEMPTS,
    timeoutMs: timeout === undefined ? Number.POSITIVE_INFINITY : parseDuration(timeout, "timeout", 1),
    minDelayMs: parseDuration(minDelay ?? DEFAULT_MIN_DELAY_MS, "minDelay", 1),
    maxDelayMs: parseDuration(maxDelay ?? DEFAULT_MAX_DELAY_MS, "maxDelay", 1),
    signal,
  };
}

type AttemptOutcome<Result> =
  | { readonly result: Result }
  /** The version moved; `cause` is the store's exception, if it said so by one. */
  | { readonly version: unknown; readonly cause: unknown };

async function tryOnce<Row, Changes, Value>(
  store: VersionedStore<Row, Changes>,
  change: Change<Row, Changes, Value>,
  attempt: number,
  signal: AbortSignal | undefined,
): Promise<AttemptOutcome<OptimisticResult<Row, Changes, Value>>> {
  let before: Row | null | undefined;
  try {
    before = await store.read();
  } catch (error) {
    // a read whose answer is lost has changed nothing
    if (classify(store, error) !== "moved") throw error;
    return { version: undefined, cause: error };
  }
  if (before === null || before === undefined) {
    const when = attempt === 1 ? "does not exist" : "was deleted meanwhile";
    throw new RowGoneError(`nothing was written: the row ${when}`, { attempts: attempt });
  }
  const retries = attempt - 1;
  const changes = await change(before, { attempt });
  if (isStop(changes)) return { result: { status: "stopped", before, value: changes.value as Value, retries } };
  signal?.throwIfAborted();
  try {
    if (await write(store, before, changes as Changes)) {
      return { result: { status: "written", before, changes: changes as Changes, retries } };
    }
  } catch (error) {
    const failure = classify(store, error);
    if (failure === "failed") throw error;
    if (failure === "unknown") throw outcomeUnknownError(error, attempt);
    return { version: undefined, cause: error };
  }
  return { version: store.readVersion?.(before), cause: undefined };
}

/** A write that answers undefined would otherwise look like a conflict, and be done ten times. */
async function write<Row, Changes>(store: VersionedStore<Row, Changes>, row: Row, changes: Changes): Promise<boolean> {
  const hasWritten: unknown = await store.write(row, changes);
  if (typeof hasWritten === "boolean") return hasWritten;
  throw new TypeError(`write() must return true or false, not ${describeValue(hasWritten)}`);
}

function classify(store: Pick<VersionedStore<never, never>, "classifyError">, error: unknown): StoreFailure {
  return store.classifyError?.(error) ?? "failed";
}

function isStop(value: unknown): value is Stop<unknown> {
  return typeof value === "object" && value !== null && STOP in value;
}

/** Why there is no further attempt; null: there is one. */
function findProblem(
  store: Pick<VersionedStore<never, never>, "canRetry">,
  cause: unknown,
  attempt: number,
  nextAtMs: number,
  settings: Settings,
): string | null {
  if (store.canRetry?.(cause) === false) {
    return "the version moved inside a transaction: roll it back and repeat all of it";
  }
  if (attempt >= settings.attempts) {
    return `the version moved in ${attempt === 1 ? "the only attempt" : `each of ${attempt} attempts`}: try later, or use a lock`;
  }
  if (nextAtMs < settings.timeoutMs) return null;
  return `the version moved in ${attempt} of ${settings.attempts} attempts, and ${formatDuration(settings.timeoutMs)} are over: try later, or use a lock`;
}

function conflictError(problem: string, staleVersion: unknown, attempts: number, cause: unknown): VersionConflictError {
  const hint =
    staleVersion === undefined
      ? ""
      : ` (version ${staleVersion} was read again after it had moved: from the snapshot of a transaction, or from a replica?)`;
  return new VersionConflictError(`nothing was written: ${problem}${hint}`, { attempts, cause });
}

function outcomeUnknownError(error: unknown, attempts: number): OutcomeUnknownError {
  const message = error instanceof Error ? error.message : String(error);
  return new OutcomeUnknownError(
    `it is unknown whether the change was written (${message}): read the row before you repeat it`,
    { attempts, cause: error },
  );
}

async function sleepUnlessAborted(ms: number, signal: AbortSignal | undefined): Promise<void> {
  try {
    await delay(ms, undefined, { signal });
  } catch (error) {
    signal?.throwIfAborted();
    throw error;
  }
}

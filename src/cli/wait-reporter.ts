/** Acquires locks and reports the wait: the holder after a second, and again when the wait has ended. */

import type { Lock } from "../client/lock.ts";
import type { LockTimeoutError, StorePausedError } from "../errors.ts";
import { describePause } from "../errors.ts";
import type { ClaimView, Pause } from "../spi/driver.ts";
import { formatDuration } from "../util/duration.ts";
import { CommandError, createSilenceError, toCommandError } from "./errors.ts";
import type { RequestedLocks } from "./lock-request.ts";
import { acquire } from "./lock-request.ts";
import type { Store } from "./open-store.ts";
import { openAdmin } from "./open-store.ts";
import { createReporter, escapeControl, quoteKeys } from "./output.ts";
import { resultWithin } from "./timeout.ts";

/** In milliseconds. */
const SHORTEST_WAIT_MS = 250;

/** After this time the user is told what the command waits for. */
const NOTICE_AFTER_MS = 1_000;

/** How long the command looks for the holder after the end of its wait. */
const LOOKUP_TIMEOUT_MS = 1_000;

/** The most entries of one queue that are listed. */
const MAX_LISTED = 1_000;

/** How to wait. */
export interface WaitOptions {
  /** The longest wait in milliseconds; 0: try once; undefined: no limit. */
  readonly waitMs?: number | undefined;
  /** When the wait began, by performance.now(): the time to connect counts, too. Default: now. */
  readonly startedAt?: number;
  readonly ttl: number | "session";
  readonly label: string;
  readonly conflictExitCode?: number | undefined;
  readonly signal?: AbortSignal;
  readonly quiet?: boolean;
  readonly verbose?: boolean;
  readonly json?: boolean;
}

/**
 * Acquires the lock.
 * @throws CommandError timeout or busy (124), unreachable, also if the store has not answered at the end of the wait,
 * paused, refused, deadlock, usage; the signal's reason on abort
 */
export async function acquireWithProgress(store: Store, request: RequestedLocks, options: WaitOptions): Promise<Lock> {
  const { waitMs, ttl, label, signal } = options;
  const reporter = createReporter(options);
  let isOver = false;
  // the wait may end while the queue status is being read
  const report = (detail: string): void => {
    if (!isOver) reporter.info(`waiting for ${quoteKeys(request.keys)}${detail}`);
  };
  const notice = setTimeout(() => {
    findQueueStatus(store, request, label).then(
      (status) => report(`: ${describeQueue(status)}`),
      () => report(`; ${store.name} does not answer`),
    );
  }, NOTICE_AFTER_MS);
  let lock: Lock | null;
  try {
    lock = await acquire(store.locks, request, {
      ttl,
      label,
      ...(waitMs !== undefined && { wait: remainingWaitMs(waitMs, options.startedAt) }),
      ...(signal !== undefined && { signal }),
    });
  } catch (error) {
    if (signal?.aborted === true) throw signal.reason;
    const { code } = error as { readonly code?: unknown };
    if (code === "LOCK_STORE_PAUSED") throw toPausedError(request, error as StorePausedError);
    if (code !== "LOCK_TIMEOUT") throw toCommandError(error, store.name);
    if ((error as LockTimeoutError).cause !== undefined) throw toUnansweredError(store, request, options, error);
    throw await toTimeoutError(store, request, options, (error as LockTimeoutError).blocked);
  } finally {
    isOver = true;
    clearTimeout(notice);
  }
  if (lock === null) throw await toBusyError(store, request, options);
  return lock;
}

/**
 * What is left of the wait, but enough for a healthy store to answer. Not 0, which would report the end of a wait as
 * busy.
 */
function remainingWaitMs(waitMs: number, startedAt: number = performance.now()): number {
  return waitMs === 0 ? 0 : Math.max(Math.ceil(startedAt + waitMs - performance.now()), SHORTEST_WAIT_MS);
}

async function findQueueStatus(store: Store, { keys }: RequestedLocks, label: string | null): Promise<QueueStatus> {
  // several keys are acquired in order: the claim waits for the first one that another claim holds
  let status: QueueStatus = { ahead: 0 };
  for (const key of [...keys].sort()) {
    const { items } = await store.driver.list({ key }, { max: MAX_LISTED });
    status = toQueueStatus(items, key, label);
    if (status.holder !== undefined && status.holder !== label) return status;
  }
  const recoveryRemainingMs = await findRecoveryMs(store);
  return recoveryRemainingMs === 0
    ? status
    : { ...status, paused: { reason: "recovery", remainingMs: recoveryRemainingMs } };
}

/** For the end of a wait: null if the store does not answer soon. */
async function findQueueStatusSoon(store: Store, request: RequestedLocks): Promise<QueueStatus | null> {
  const lookup = findQueueStatus(store, request, null).catch(() => null);
  return (await resultWithin(LOOKUP_TIMEOUT_MS, lookup)) ?? null;
}

/** The remaining time of a recovery of the store; 0: the store grants locks, or does not report it. */
async function findRecoveryMs(store: Store): Promise<number> {
  const admin = await openAdmin(store);
  const recoveryRemainingMs = admin?.hello?.recoveryRemainingMs ?? 0;
  admin?.close();
  return recoveryRemainingMs;
}

async function toTimeoutError(
  store: Store,
  request: RequestedLocks,
  options: WaitOptions,
  blocked: LockTimeoutError["blocked"],
): Promise<CommandError> {
  // the claim has left the queue, so only the error knows how many claims were ahead
  const current = await findQueueStatusSoon(store, request);
  const waited = `waited ${formatDuration(options.waitMs ?? 0)} for ${quoteKeys(request.keys)}`;
  const hasAnswered = current !== null || blocked.holder !== undefined || blocked.paused !== undefined;
  if (!hasAnswered) {
    const { kind, message, cause } = createSilenceError(store.name);
    return new CommandError(kind, `${waited}: ${message}`, { details: { keys: request.keys }, cause });
  }
  const status: QueueStatus = { ahead: 0, ...current, ...blocked };
  const message = `${waited}: ${describeQueue(status)}`;
  return toConflictError("timeout", message, request, status, options);
}

/** It is unknown whether the lock is free: this is no conflict. */
function toUnansweredError(
  store: Store,
  { keys }: RequestedLocks,
  { waitMs = 0 }: WaitOptions,
  cause: unknown,
): CommandError {
  const problem = `${store.name} has not answered; \`holdfast doctor\` looks for the cause`;
  const message = `waited ${formatDuration(waitMs)} for ${quoteKeys(keys)}: ${problem}`;
  return new CommandError("unreachable", message, { details: { keys }, cause });
}

/** A single try while the store grants no new locks: it is unknown whether the lock is free. */
function toPausedError({ keys }: RequestedLocks, { reason, remainingMs }: StorePausedError): CommandError {
  const description = describeQueue({ ahead: 0, paused: { reason, remainingMs } });
  const details = { keys, reason, remainingMs: Math.ceil(remainingMs) };
  return new CommandError("paused", `cannot grant ${quoteKeys(keys)}: ${description}`, { details });
}

async function toBusyError(store: Store, request: RequestedLocks, options: WaitOptions): Promise<CommandError> {
  const status: QueueStatus = (await findQueueStatusSoon(store, request)) ?? { ahead: 0 };
  const { holder, paused } = status;
  const suffix = holder === undefined && paused === undefined ? "" : `: ${describeQueue({ ...status, ahead: 0 })}`;
  const subject = request.keys.length === 1 ? quoteKeys(request.keys) : `one of ${quoteKeys(request.keys)}`;
  return toConflictError("busy", `${subject} is busy${suffix}`, request, status, options);
}

function toConflictError(
  kind: "timeout" | "busy",
  message: string,
  { keys }: RequestedLocks,
  status: QueueStatus,
  { conflictExitCode }: WaitOptions,
): CommandError {
  const details = { keys, ...status };
  return new CommandError(kind, message, {
    details,
    ...(conflictExitCode !== undefined && { code: conflictExitCode }),
  });
}

/** The holder of a key and the number of claims ahead. */
export interface QueueStatus {
  /** The label of the first holder; undefined: the key is not held. */
  readonly holder?: string;
  /** For how long the first holder has held the key; if the store does not report that, the age of its claim. */
  readonly heldForMs?: number;
  /** How long ago the lease was last renewed; undefined for a session claim. */
  readonly renewedAgoMs?: number;
  /** The store grants no new locks. */
  readonly paused?: Pause;
  /** Claims before our own, including the holders. */
  readonly ahead: number;
}

/** The status of a queue for a waiter with this label; null: not a waiter, or not any more. */
function toQueueStatus(views: readonly ClaimView[], key: string, label: string | null): QueueStatus {
  const queue = views.filter(({ locks }) => locks.some((spec) => spec.key === key));
  const ownIndex =
    label === null ? -1 : queue.findIndex((view) => view.label === label && view.answer.state === "waiting");
  const frontHolder = queue.find(({ answer }) => answer.state === "held");
  const ahead = ownIndex === -1 ? queue.length : ownIndex;
  if (frontHolder === undefined) return { ahead };
  const { answer, ttlMs } = frontHolder;
  const heldForMs = frontHolder.heldMs ?? frontHolder.ageMs;
  const status = { holder: frontHolder.label, heldForMs, ahead };
  if (answer.state !== "held" || ttlMs === "session") return status;
  const renewedAgoMs = Math.max(ttlMs - answer.remainingMs, 0);
  // the rest of --hold-at-least is shorter than the lease was
  return renewedAgoMs > heldForMs ? status : { ...status, renewedAgoMs };
}

/** `held by ana@web-1 pid 4121 (node) for 12 m, lease renewed 3 s ago, 2 ahead of you` */
export function describeQueue({ holder, heldForMs, renewedAgoMs, paused, ahead }: QueueStatus): string {
  const parts: string[] = [];
  if (paused !== undefined) parts.push(describePause(paused));
  if (holder !== undefined) {
    const since = heldForMs === undefined ? "" : ` for ${formatDuration(heldForMs)}`;
    parts.push(`held by ${escapeControl(holder)}${since}`);
    if (renewedAgoMs !== undefined) parts.push(`lease renewed ${formatDuration(renewedAgoMs)} ago`);
  }
  if (ahead > 0) parts.push(`${ahead} ahead of you`);
  return parts.length === 0 ? "its holder is not shown: it has just ended, or may not be seen" : parts.join(", ");
}

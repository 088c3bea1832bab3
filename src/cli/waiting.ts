/** Acquiring with words: who is in the way, said after a second and when the wait has ended. */

import type { Lock } from "../client/lock.ts";
import { shownDuration } from "../duration.ts";
import type { LockTimeoutError, StorePausedError } from "../errors.ts";
import { CommandError, commandError } from "./failure.ts";
import { quotedList } from "./output.ts";
import type { Standing } from "./standing.ts";
import { standingInWords, standingOf } from "./standing.ts";
import type { Store } from "./store.ts";
import { voiceOf } from "./voice.ts";
import type { Wanted } from "./wanted.ts";
import { acquire } from "./wanted.ts";

/** After so long a person wonders. */
const SILENT_MS = 1_000;

/** Places of one queue. */
const MOST_LOOKED_AT = 1_000;

/** How to wait. */
export interface WaitOptions {
  /** Longest wait in milliseconds; 0: ask once; undefined: for ever. */
  readonly waitMs?: number | undefined;
  /** When the wait began, on the scale of performance.now(): it is not to begin again with each step. Default: now. */
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
 * The lock.
 * @throws CommandError timeout or busy (124), unreachable, paused, refused, deadlock, usage; the signal's reason on abort
 */
export async function acquireInWords(store: Store, wanted: Wanted, options: WaitOptions): Promise<Lock> {
  const { waitMs, ttl, label, signal } = options;
  const voice = voiceOf(options);
  let isOver = false;
  // asking takes its time, and the wait may be over by then
  const say = (how: string): void => {
    if (!isOver) voice.tell(`waiting for ${quotedList(wanted.keys)}${how}`);
  };
  const notice = setTimeout(() => {
    standing(store, wanted, label).then(
      (found) => say(`: ${standingInWords(found)}`),
      () => say(`; ${store.name} does not answer`),
    );
  }, SILENT_MS);
  let lock: Lock | null;
  try {
    lock = await acquire(store.locks, wanted, {
      ttl,
      label,
      ...(waitMs !== undefined && { wait: leftOf(waitMs, options.startedAt) }),
      ...(signal !== undefined && { signal }),
    });
  } catch (error) {
    if (signal?.aborted === true) throw signal.reason;
    const { code } = error as { readonly code?: unknown };
    if (code === "PAUSED") throw pausedError(wanted, error as StorePausedError);
    if (code !== "LOCK_TIMEOUT") throw commandError(error, store.name);
    throw await timeoutError(store, wanted, options, (error as LockTimeoutError).blocked);
  } finally {
    isOver = true;
    clearTimeout(notice);
  }
  if (lock === null) throw await busyError(store, wanted, options);
  return lock;
}

/** 0 is "ask once", which a wait that is over is not: it is told as one. */
function leftOf(waitMs: number, startedAt: number = performance.now()): number {
  return waitMs === 0 ? 0 : Math.max(Math.ceil(startedAt + waitMs - performance.now()), 1);
}

async function standing(store: Store, { keys }: Wanted, label: string | null): Promise<Standing> {
  // with several keys we stand in the line of the first that is not ours yet
  let found: Standing = { ahead: 0 };
  for (const key of [...keys].sort()) {
    found = standingOf(await store.driver.list({ key }, MOST_LOOKED_AT), key, label);
    if (found.holder !== undefined && found.holder !== label) return found;
  }
  const reclaimMs = await reclaimMsOf(store);
  return reclaimMs === 0 ? found : { ...found, paused: { reason: "recovery", remainingMs: reclaimMs } };
}

/** For how long the store will still grant nothing since it was restarted; 0: it grants, or does not say. */
async function reclaimMsOf({ driver }: Store): Promise<number> {
  // loaded when somebody waits for what nobody seems to hold
  const { openTools } = await import("../drivers/server/tool-link.ts");
  const link = await openTools(driver);
  const reclaimMs = link?.hello?.reclaimMs ?? 0;
  link?.close();
  return reclaimMs;
}

async function timeoutError(
  store: Store,
  wanted: Wanted,
  options: WaitOptions,
  blocked: LockTimeoutError["blocked"],
): Promise<CommandError> {
  // our place is gone by now, so how many were ahead only the error knows
  const now = await standing(store, wanted, null).catch(() => null);
  const found: Standing = { ahead: 0, ...now, ...blocked };
  const message = `waited ${shownDuration(options.waitMs ?? 0)} for ${quotedList(wanted.keys)}: ${standingInWords(found)}`;
  return conflict("timeout", message, wanted, found, options);
}

/** Asked once, while the store grants nothing new to anyone: whether it is free nobody knows. */
function pausedError({ keys }: Wanted, { reason, remainingMs }: StorePausedError): CommandError {
  const words = standingInWords({ ahead: 0, paused: { reason, remainingMs } });
  const details = { keys, reason, remainingMs: Math.ceil(remainingMs) };
  return new CommandError("paused", `cannot grant ${quotedList(keys)}: ${words}`, { details });
}

async function busyError(store: Store, wanted: Wanted, options: WaitOptions): Promise<CommandError> {
  const found = await standing(store, wanted, null).catch(() => ({ ahead: 0 }));
  const { holder, paused } = found as Standing;
  const who = holder === undefined && paused === undefined ? "" : `: ${standingInWords({ ...found, ahead: 0 })}`;
  return conflict("busy", `${quotedList(wanted.keys)} is busy${who}`, wanted, found, options);
}

function conflict(
  why: "timeout" | "busy",
  message: string,
  { keys }: Wanted,
  found: Standing,
  { conflictExitCode }: WaitOptions,
): CommandError {
  const details = { keys, ...found };
  return new CommandError(why, message, { details, ...(conflictExitCode !== undefined && { code: conflictExitCode }) });
}

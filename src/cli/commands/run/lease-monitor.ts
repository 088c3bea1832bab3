/**
 * Ensures that the command never works without the lock. If the lease is not renewed, the monitor sends TERM so early that
 * KILL follows before the lease can end. If the lock is lost, it sends TERM at once.
 */

import { BELIEVED_SHARE } from "../../../claim/lease-shares.ts";
import type { LostReason } from "../../../errors.ts";
import { hasChildEnded } from "../../../os/process-info.ts";
import { formatDuration } from "../../../util/duration.ts";
import { CommandError } from "../../errors.ts";
import type { Reporter } from "../../output.ts";
import { quoteKeys } from "../../output.ts";
import type { Child, ChildExit } from "./child.ts";
import type { HeldLock } from "./held-lock.ts";
import type { Watchdog } from "./watchdog.ts";

/** What happens to the command when its lock is being lost. */
export type OnLost = "term" | "kill" | "ignore";

export interface LeaseMonitorOptions {
  readonly lock: HeldLock;
  readonly child: Child;
  readonly watchdog: Watchdog | null;
  readonly onLost: OnLost;
  /** The time from TERM to KILL. */
  readonly graceMs: number;
  readonly reporter: Reporter;
}

/** How the command ended. */
export interface RunOutcome {
  readonly exit: ChildExit;
  /** Why the monitor has ended the command; null: it has not. */
  readonly failure: CommandError | null;
}

/** How often the lease is checked during its length. */
const CHECKS_PER_LEASE = 6;
/**
 * The watchdog's deadline is later than the monitor's by this part of the lease, so that not both send TERM. It comes out of
 * the tenth of the lease that the client's clock leaves unused.
 */
const WATCHDOG_DELAY = 0.01;
const MIN_CHECK_MS = 10;
/** The watchdog sends KILL. In case it is dead, the monitor does so, too, this much later. */
const KILL_DELAY_MS = 100;

/**
 * Tells the watchdog when to end the child if it hears no more from this process: a moment after this process would do so
 * itself. Call it first before the child is started, because this process may be stopped at any time.
 */
export function armWatchdog(watchdog: Watchdog | null, lock: HeldLock, leadMs: number): void {
  if (lock.leaseMs !== null) watchdog?.setDeadline(lock.remainingMs() - leadMs + lock.leaseMs * WATCHDOG_DELAY);
}

/** Monitors the lease until the command has ended, and all processes that had to be ended are gone. */
export async function monitorLease(options: LeaseMonitorOptions): Promise<RunOutcome> {
  const { lock, child, watchdog, onLost, graceMs, reporter } = options;
  const { leaseMs } = lock;
  let failure: CommandError | null = null;
  let ending: Promise<unknown> = Promise.resolve();
  let timer: NodeJS.Timeout | undefined;
  let killTimer: NodeJS.Timeout | undefined;

  const terminate = (error: CommandError, description: string, killMs: number): void => {
    clearTimeout(timer);
    if (failure !== null) return;
    if (onLost === "ignore" && error.kind === "lost") {
      reporter.info(`${description}: the command continues without the lock (--on-lost ignore)`);
      return;
    }
    failure = error;
    const isGraceful = onLost !== "kill" && killMs > 0;
    reporter.info(
      `${description}: sent ${isGraceful ? "TERM" : "KILL"} to ${child.pid}${isGraceful ? `; KILL in ${formatDuration(killMs)}` : ""}`,
    );
    if (watchdog?.isAlive === true) ending = watchdog.terminate(isGraceful ? killMs : 0);
    else child.signal(isGraceful ? "SIGTERM" : "SIGKILL");
    killTimer = setTimeout(() => child.signal("SIGKILL"), isGraceful ? killMs + KILL_DELAY_MS : 0);
  };

  const handleLoss = (): void => {
    const reason = readLostReason(lock.lostSignal.reason);
    const keys = quoteKeys(lock.keys);
    if (reason === "maxHold") {
      const error = new CommandError(
        "maxHold",
        `held ${keys} for as long as --max-hold or the server allows; the command was ended`,
      );
      return terminate(error, `held ${keys} for as long as --max-hold or the server allows`, graceMs);
    }
    // the lease has ended by our clock, so no time is left for the grace
    const killMs = reason === "expired" && leaseMs !== null ? 0 : graceMs;
    terminate(toLostError(lock, reason), `lost ${keys} (${reason})`, killMs);
  };

  const describeLosing = (ofMs: number): string => {
    const silentMs = Math.max(BELIEVED_SHARE * ofMs - lock.remainingMs(), 0);
    return `losing ${quoteKeys(lock.keys)} (${lock.describeLoss(silentMs)})`;
  };

  const check = (): void => {
    if (leaseMs === null || lock.lostSignal.aborted) return;
    const remainingMs = lock.remainingMs();
    const leadMs = onLost === "term" ? graceMs : 0;
    if (onLost === "term" && remainingMs <= leadMs) {
      // a process that was stopped sees the end of the lease before that of its command, which may have come long ago
      if (!hasChildEnded(child.pid)) terminate(toLostError(lock, "expired"), describeLosing(leaseMs), remainingMs);
      return;
    }
    armWatchdog(watchdog, lock, leadMs);
    timer = setTimeout(check, Math.max(Math.min(remainingMs - leadMs, leaseMs / CHECKS_PER_LEASE), MIN_CHECK_MS));
  };

  if (lock.lostSignal.aborted) handleLoss();
  else lock.lostSignal.addEventListener("abort", handleLoss, { once: true });
  check();
  const exit = await child.exited;
  lock.lostSignal.removeEventListener("abort", handleLoss);
  clearTimeout(timer);
  await (failure === null ? watchdog?.dismiss() : ending);
  clearTimeout(killTimer);
  const isLosing = leaseMs !== null && onLost === "term" && !lock.lostSignal.aborted && lock.remainingMs() <= graceMs;
  if (failure === null && isLosing && exit.signal !== null) {
    // while this process was stopped
    reporter.info(`${describeLosing(leaseMs)}: the watchdog has ended the command`);
    failure = toLostError(lock, "expired");
  }
  return { exit, failure };
}

/** The error for lost keys, with exit code 123. */
export function toLostError({ keys }: { readonly keys: readonly string[] }, reason: LostReason): CommandError {
  return new CommandError("lost", `lost ${quoteKeys(keys)} (${reason}); the command was ended`, {
    details: { reason },
  });
}

function readLostReason(error: unknown): LostReason {
  return (error as { readonly reason?: LostReason } | undefined)?.reason ?? "unknown";
}

/**
 * Ensures that the command never works without the lock. If the lease is not renewed, the monitor sends TERM so early
 * that KILL follows before the lease can end. If the lock is lost, it sends TERM at once. Before each end of the lease
 * that it knows, the watchdog does the same, a moment later, if the wrapper is stopped.
 */

import { BELIEVED_SHARE } from "../../../claim/lease-shares.ts";
import type { LostReason } from "../../../errors.ts";
import { hasChildEnded } from "../../../os/process-info.ts";
import { formatDuration } from "../../../util/duration.ts";
import { CommandError } from "../../errors.ts";
import type { Reporter } from "../../output.ts";
import { quoteKeys } from "../../output.ts";
import type { GuardedCommand } from "./guarded-command.ts";
import type { RunLock } from "./run-lock.ts";
import type { CommandExit } from "./running-command.ts";

/** What happens to the command when its lock is being lost. */
export type OnLost = "term" | "kill" | "ignore";

export interface LeaseMonitorOptions {
  readonly lock: RunLock;
  readonly command: GuardedCommand;
  readonly onLost: OnLost;
  /** The time from TERM to KILL; 0: only KILL. */
  readonly graceMs: number;
  readonly reporter: Reporter;
}

/** How the command ended. */
export interface RunOutcome {
  readonly exit: CommandExit;
  /** Why the monitor has ended the command; null: it has not. */
  readonly failure: CommandError | null;
}

/** How often the lease is checked during its length. */
const CHECKS_PER_LEASE = 6;
/**
 * The watchdog's deadline is later than the monitor's by this part of the lease, so that not both send TERM. It comes
 * out of the tenth of the lease that the client's clock leaves unused.
 */
const WATCHDOG_DELAY = 0.01;
const MIN_CHECK_MS = 10;

/**
 * When the watchdog ends the command if it hears no more from this process: a moment after this process would do so
 * itself. Null: the lock does not end without renewals.
 */
export function watchdogDeadlineMs(lock: RunLock, graceMs: number): number | null {
  return lock.leaseMs === null ? null : lock.remainingMs() - graceMs + lock.leaseMs * WATCHDOG_DELAY;
}

/** Monitors the lease until the command has ended, and all processes that had to be ended are gone. */
export function monitorLease(options: LeaseMonitorOptions): Promise<RunOutcome> {
  return new LeaseMonitor(options).run();
}

/**
 *   working   the command works, or has ended by itself; `timer`: the next check of the lease
 *   ending    the monitor has begun to end the command because of `failure`
 */
type State =
  | { readonly kind: "working"; readonly timer: NodeJS.Timeout | undefined }
  | { readonly kind: "ending"; readonly failure: CommandError };

class LeaseMonitor {
  readonly #options: LeaseMonitorOptions;
  #state: State = { kind: "working", timer: undefined };

  constructor(options: LeaseMonitorOptions) {
    this.#options = options;
  }

  async run(): Promise<RunOutcome> {
    const { lock, command } = this.#options;
    const onLost = (): void => this.#onLost();
    if (lock.lostSignal.aborted) onLost();
    else lock.lostSignal.addEventListener("abort", onLost, { once: true });
    this.#check();
    const exit = await command.exited;
    lock.lostSignal.removeEventListener("abort", onLost);
    if (this.#state.kind === "working") clearTimeout(this.#state.timer);
    await command.finish();
    return { exit, failure: this.#state.kind === "ending" ? this.#state.failure : this.#findEarlierEnd(exit) };
  }

  /** Sends TERM in time for the end of the lease; else arms the watchdog, and checks again later. */
  #check(): void {
    const { lock, command, onLost, graceMs } = this.#options;
    const { leaseMs } = lock;
    if (leaseMs === null || onLost === "ignore") return;
    const remainingMs = lock.remainingMs();
    // the clocks have shown the loss just now, or it was known before
    if (lock.lostSignal.aborted) return;
    if (onLost === "term" && remainingMs <= graceMs) {
      // a process that was stopped sees the end of the lease before that of its command, which may have come long ago
      if (!hasChildEnded(command.pid))
        this.#end(toLostError(lock, "expired"), this.#describeLosing(leaseMs), remainingMs);
      return;
    }
    command.setDeadline(watchdogDeadlineMs(lock, graceMs) as number);
    const nextMs = Math.max(Math.min(remainingMs - graceMs, leaseMs / CHECKS_PER_LEASE), MIN_CHECK_MS);
    this.#state = { kind: "working", timer: setTimeout(() => this.#check(), nextMs) };
  }

  #onLost(): void {
    const { lock, graceMs } = this.#options;
    const reason = readLostReason(lock.lostSignal.reason);
    const keys = quoteKeys(lock.keys);
    if (reason === "maxHold") {
      const description = `held ${keys} for as long as --max-hold or the server allows`;
      this.#end(new CommandError("maxHold", `${description}; the command was ended`), description, graceMs);
      return;
    }
    // the lease has ended by our clock, so no time is left for the grace
    const killMs = reason === "expired" && lock.leaseMs !== null ? 0 : graceMs;
    this.#end(toLostError(lock, reason), `lost ${keys} (${reason})`, killMs);
  }

  /** Ends the command, with KILL `killMs` after TERM; once. */
  #end(failure: CommandError, description: string, killMs: number): void {
    const { command, onLost, reporter } = this.#options;
    if (this.#state.kind === "ending") return;
    clearTimeout(this.#state.timer);
    if (onLost === "ignore" && failure.kind === "lost") {
      reporter.info(`${description}: the command continues without the lock (--on-lost ignore)`);
      return;
    }
    const signals = killMs > 0 ? `TERM to ${command.pid}; KILL in ${formatDuration(killMs)}` : `KILL to ${command.pid}`;
    reporter.info(`${description}: sent ${signals}`);
    command.end(killMs);
    this.#state = { kind: "ending", failure };
  }

  /** The failure of a command that the watchdog has ended while this process was stopped. */
  #findEarlierEnd({ signal }: CommandExit): CommandError | null {
    const { lock, onLost, graceMs, reporter } = this.#options;
    const { leaseMs } = lock;
    const isLosing = leaseMs !== null && onLost === "term" && !lock.lostSignal.aborted && lock.remainingMs() <= graceMs;
    if (!isLosing || signal === null) return null;
    reporter.info(`${this.#describeLosing(leaseMs)}: the watchdog has ended the command`);
    return toLostError(lock, "expired");
  }

  #describeLosing(leaseMs: number): string {
    const { lock } = this.#options;
    const silentMs = Math.max(BELIEVED_SHARE * leaseMs - lock.remainingMs(), 0);
    return `losing ${quoteKeys(lock.keys)} (${lock.describeLoss(silentMs)})`;
  }
}

/** The error for lost keys, with exit code 123. */
function toLostError({ keys }: { readonly keys: readonly string[] }, reason: LostReason): CommandError {
  return new CommandError("lost", `lost ${quoteKeys(keys)} (${reason}); the command was ended`, {
    details: { reason },
  });
}

function readLostReason(error: unknown): LostReason {
  return (error as { readonly reason?: LostReason } | undefined)?.reason ?? "unknown";
}

/**
 * Ensures that the command never works without the lock. If the lease is not renewed, the monitor sends TERM so early that
 * KILL follows before the lease can end. If the lock is lost, it sends TERM at once.
 *
 * Who ends the command:
 *   this monitor, by way of the watchdog (watchdog.ts), which reaches the processes below the command, too
 *   the monitor alone            while the watchdog is dead; then the command's process group
 *   the watchdog (watchdog.sh)   when the wrapper is dead, or stopped until the end of the lease
 *   no process                   when both are dead. Then the server keeps the lock for the command (server/runs/), and an outer
 *                                run keeps its own (nested-runs.ts); on a network store the lease ends
 * A run that has joined the lock of an outer one learns of its end from parent-lock-monitor.ts: a loss like any other.
 */

import { BELIEVED_SHARE } from "../../../claim/lease-shares.ts";
import type { LostReason } from "../../../errors.ts";
import { hasChildEnded } from "../../../os/process-info.ts";
import { formatDuration } from "../../../util/duration.ts";
import { CommandError } from "../../errors.ts";
import type { Reporter } from "../../output.ts";
import { quoteKeys } from "../../output.ts";
import type { Child, ChildExit } from "./child.ts";
import type { RunLock } from "./run-lock.ts";
import type { Watchdog } from "./watchdog.ts";

/** What happens to the command when its lock is being lost. */
export type OnLost = "term" | "kill" | "ignore";

export interface LeaseMonitorOptions {
  readonly lock: RunLock;
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
export function armWatchdog(watchdog: Watchdog | null, lock: RunLock, leadMs: number): void {
  if (lock.leaseMs !== null) watchdog?.setDeadline(lock.remainingMs() - leadMs + lock.leaseMs * WATCHDOG_DELAY);
}

/** Monitors the lease until the command has ended, and all processes that had to be ended are gone. */
export function monitorLease(options: LeaseMonitorOptions): Promise<RunOutcome> {
  return new LeaseMonitor(options).run();
}

/**
 *   working   the command works, or has ended by itself; `timer`: the next check of the lease
 *   ending    the monitor has sent TERM or KILL because of `failure`; `gone` settles when the watchdog has done its part
 */
type State =
  | { readonly kind: "working"; readonly timer: NodeJS.Timeout | undefined }
  | {
      readonly kind: "ending";
      readonly failure: CommandError;
      readonly gone: Promise<void>;
      readonly killTimer: NodeJS.Timeout;
    };

class LeaseMonitor {
  readonly #options: LeaseMonitorOptions;
  /** The time from TERM to the end of the lease; without TERM there is none. */
  readonly #leadMs: number;
  #state: State = { kind: "working", timer: undefined };

  constructor(options: LeaseMonitorOptions) {
    this.#options = options;
    this.#leadMs = options.onLost === "term" ? options.graceMs : 0;
  }

  async run(): Promise<RunOutcome> {
    const { lock, child, watchdog } = this.#options;
    const onLost = (): void => this.#onLost();
    if (lock.lostSignal.aborted) onLost();
    else lock.lostSignal.addEventListener("abort", onLost, { once: true });
    this.#check();
    const exit = await child.exited;
    lock.lostSignal.removeEventListener("abort", onLost);
    if (this.#state.kind === "ending") {
      await this.#state.gone;
      clearTimeout(this.#state.killTimer);
      return { exit, failure: this.#state.failure };
    }
    clearTimeout(this.#state.timer);
    await watchdog?.dismiss();
    return { exit, failure: this.#findEarlierEnd(exit) };
  }

  /** Sends TERM in time for the end of the lease; else arms the watchdog, and checks again later. */
  #check(): void {
    const { lock, child, watchdog, onLost } = this.#options;
    const { leaseMs } = lock;
    if (leaseMs === null || lock.lostSignal.aborted) return;
    const remainingMs = lock.remainingMs();
    if (onLost === "term" && remainingMs <= this.#leadMs) {
      // a process that was stopped sees the end of the lease before that of its command, which may have come long ago
      if (!hasChildEnded(child.pid))
        this.#end(toLostError(lock, "expired"), this.#describeLosing(leaseMs), remainingMs);
      return;
    }
    armWatchdog(watchdog, lock, this.#leadMs);
    const nextMs = Math.max(Math.min(remainingMs - this.#leadMs, leaseMs / CHECKS_PER_LEASE), MIN_CHECK_MS);
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
    const { child, watchdog, onLost, reporter } = this.#options;
    if (this.#state.kind === "ending") return;
    clearTimeout(this.#state.timer);
    if (onLost === "ignore" && failure.kind === "lost") {
      reporter.info(`${description}: the command continues without the lock (--on-lost ignore)`);
      return;
    }
    const isGraceful = onLost !== "kill" && killMs > 0;
    reporter.info(
      `${description}: sent ${isGraceful ? "TERM" : "KILL"} to ${child.pid}${isGraceful ? `; KILL in ${formatDuration(killMs)}` : ""}`,
    );
    let gone: Promise<void> = Promise.resolve();
    if (watchdog?.isAlive === true) gone = watchdog.terminate(isGraceful ? killMs : 0);
    else child.signal(isGraceful ? "SIGTERM" : "SIGKILL");
    const killTimer = setTimeout(() => child.signal("SIGKILL"), isGraceful ? killMs + KILL_DELAY_MS : 0);
    this.#state = { kind: "ending", failure, gone, killTimer };
  }

  /** The failure of a command that the watchdog has ended while this process was stopped. */
  #findEarlierEnd({ signal }: ChildExit): CommandError | null {
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

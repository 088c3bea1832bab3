/**
 * The command of a run together with the watchdog that guards it, as the wrapper sees them. Signals go by way of the
 * watchdog, since only it finds the processes below the command. While it is dead, or there is none, they go to the
 * command's process group.
 */

import type { KeepSessionSocket } from "../../../drivers/server/keep-session.ts";
import type { CommandExit, CommandOptions, RunningCommand } from "./running-command.ts";
import { startCommand } from "./running-command.ts";
import type { Watchdog } from "./watchdog.ts";
import { startWatchdog } from "./watchdog.ts";

/** The watchdog sends KILL. In case it is dead, the wrapper does so, too, this much later. */
const KILL_DELAY_MS = 100;

/** The command, running. */
export interface GuardedCommand {
  readonly pid: number;
  /** Does it have its own process group? */
  readonly hasOwnGroup: boolean;
  /** Settles when the command has ended, even if it left processes behind. */
  readonly exited: Promise<CommandExit>;
  /** Sends a signal to the command and the processes below it. */
  signal(name: NodeJS.Signals): void;
  /**
   * The watchdog ends the command after `ms`, unless the wrapper calls this again before: it may be stopped at any
   * time.
   */
  setDeadline(ms: number): void;
  /**
   * Ends the command and the processes below it: TERM now and KILL after `killMs`; 0: KILL now. Called at most once.
   */
  end(killMs: number): void;
  /**
   * To be called when the command has ended: settles when the watchdog has, too, and with it all that end() had to end.
   */
  finish(): Promise<void>;
}

export interface GuardedCommandOptions extends CommandOptions {
  readonly command: readonly [string, ...string[]];
  /** What the watchdog needs besides; null: there is to be none (`--on-lost ignore`). */
  readonly guard: {
    /** The time from TERM to KILL; 0: only KILL. */
    readonly graceMs: number;
    readonly token: string;
    /** The first deadline, see setDeadline(); null: the lock does not end without renewals. */
    readonly deadlineMs: () => number | null;
    readonly reopenKeepSession: () => Promise<KeepSessionSocket | null>;
  } | null;
}

/**
 * Starts the watchdog, then the command: the wrapper may be killed between the two.
 * @throws CommandError as startWatchdog() and startCommand(); then neither runs
 */
export async function startGuardedCommand(options: GuardedCommandOptions): Promise<GuardedCommand> {
  const { command, guard, hasOwnGroup, keepSessionSocket, runFile } = options;
  let watchdog: Watchdog | null = null;
  try {
    if (guard !== null) {
      const { graceMs, token, reopenKeepSession } = guard;
      watchdog = await startWatchdog({ hasOwnGroup, graceMs, token, keepSessionSocket, reopenKeepSession, runFile });
      const deadlineMs = guard.deadlineMs();
      if (deadlineMs !== null) watchdog?.setDeadline(deadlineMs);
    }
    const running = await startCommand(command, options);
    watchdog?.watch(running.pid);
    return guardCommand(running, watchdog);
  } catch (error) {
    await watchdog?.dismiss();
    throw error;
  }
}

function guardCommand(running: RunningCommand, watchdog: Watchdog | null): GuardedCommand {
  /** Not null once end() was called; `gone` settles when the watchdog has done its part. */
  let ending: { readonly gone: Promise<void>; readonly killTimer: NodeJS.Timeout } | null = null;
  const { pid, hasOwnGroup, exited } = running;
  return {
    pid,
    hasOwnGroup,
    exited,
    signal(name) {
      if (watchdog?.isAlive === true) watchdog.forwardSignal(name, () => running.signal(name));
      else running.signal(name);
    },
    setDeadline: (ms) => watchdog?.setDeadline(ms),
    end(killMs) {
      let gone: Promise<void> = Promise.resolve();
      if (watchdog?.isAlive === true) gone = watchdog.terminate(killMs);
      else running.signal(killMs > 0 ? "SIGTERM" : "SIGKILL");
      const killTimer = setTimeout(() => running.signal("SIGKILL"), killMs > 0 ? killMs + KILL_DELAY_MS : 0);
      ending = { gone, killTimer };
    },
    async finish() {
      if (ending === null) return watchdog?.dismiss();
      await ending.gone;
      clearTimeout(ending.killTimer);
    },
  };
}

/**
 * Runs of `holdfast run`, as a server's sessions see them. A run survives its wrapper and its server: its claims stay
 * held as long as the kernel reports one of its processes alive. run-file-reader.ts asks the kernel; a simulator need
 * not.
 */

import type { DetachedClaim } from "../../protocol/lock-reference.ts";

/**
 * works     a process other than the wrapper is alive, or one that inherited the lock on the file
 * held      only the wrapper is alive (perhaps stopped): it relies on the claims of its session, but renews no lease. A
 *           watchdog may be left that has ended its command already, or had none to watch yet
 * over      all processes in the file have ended, and the lock on the file is free
 * unnamed   the file does not exist any more: the run has ended, or reports nothing
 * unknown   cannot be determined
 */
export type RunStatus = "works" | "held" | "over" | "unnamed" | "unknown";

/** A run with a run file. */
export interface CommandRun {
  /** The session of its wrapper. */
  readonly session: string;
  /** "" if the file is damaged. */
  readonly label: string;
  /** The process of its wrapper, as far as known. */
  readonly wrapper: { readonly pid: number | null; readonly pidStart: string | null };
  /** The process that keeps its claims after the end of its wrapper: `pid 812 (node)`; null: none, or unknown. */
  readonly keeper: string | null;
  /** Empty if the file is damaged, or the run holds no locks any more. */
  readonly claims: readonly DetachedClaim[];
  /** How long its claims stay held after its end, in milliseconds; 0: not at all. */
  remainingHoldMs(): number;
  /** The current state according to the kernel, and when to probe again, in milliseconds. */
  probe(): { readonly status: RunStatus; readonly nextProbeMs: number };
  /** Removes the file of a finished run. Never throws: a failure is logged. */
  remove(): void;
}

/** Finds runs. */
export interface CommandRuns {
  /** The run of that session; null: it has no file. */
  find(session: string): CommandRun | null;
  /** The runs that are alive at the start of a server. */
  findLiving(): Promise<LivingRuns>;
}

/** What the start of a server must restore. */
export interface LivingRuns {
  readonly runs: readonly CommandRun[];
  /** Some run files are damaged, so the locks of their runs are unknown. */
  readonly hasUnreadable: boolean;
}

/** For a server without run files. */
export const NO_COMMAND_RUNS: CommandRuns = {
  find: () => null,
  findLiving: async () => ({ runs: [], hasUnreadable: false }),
};

/**
 * Runs (`holdfast run`) as the sessions of a server see them. A run outlives its wrapper and its server: what it holds
 * stays as long as the kernel says that one of its processes lives. run-files.ts asks the kernel; a simulator need not.
 */

import type { DetachedClaim } from "../../protocol/lock-reference.ts";

/**
 * works     a process other than the wrapper lives, or something that inherited the lock
 * held      only the wrapper works (it may be stopped): it believes in claims of its session, but renews no lease. A
 *           watchdog may be left that has ended its command already, or was not told of one yet
 * over      all that is named is gone, and nobody has the lock
 * unnamed   there is no file any more: the run has ended, or tells nothing
 * unknown   it cannot be told
 */
export type RunStatus = "works" | "held" | "over" | "unnamed" | "unknown";

/** A run of which there is a file. */
export interface CommandRun {
  /** The session of its wrapper. */
  readonly session: string;
  /** "" where the file is damaged. */
  readonly label: string;
  /** The process of its wrapper, as far as it is known. */
  readonly wrapper: { readonly pid: number | null; readonly pidStart: string | null };
  /** None where the file is damaged, or the run holds nothing any more. */
  readonly claims: readonly DetachedClaim[];
  /** How long its claims are to stay held when it is over, in milliseconds; 0: not at all. */
  remainingHoldMs(): number;
  /** What the kernel says now, and when to ask again, in milliseconds. */
  probe(): { readonly status: RunStatus; readonly nextProbeMs: number };
  /** Removes the file of a run that is over. Never throws: the log has a file that cannot be removed. */
  remove(): void;
}

/** Finds runs. */
export interface CommandRuns {
  /** The run of that session; null: there is no file of one. */
  find(session: string): CommandRun | null;
  /** Those that live, at the start of a server. */
  findLiving(): Promise<LivingRuns>;
}

/** What a server that starts must restore. */
export interface LivingRuns {
  readonly runs: readonly CommandRun[];
  /** There are runs of which it cannot be told what they hold: their files are damaged. */
  readonly hasUnreadable: boolean;
}

/** Where there are none. */
export const NO_COMMAND_RUNS: CommandRuns = {
  find: () => null,
  findLiving: async () => ({ runs: [], hasUnreadable: false }),
};

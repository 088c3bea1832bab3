/** What several commands have in common: flags, and the form of their examples. */

import type { Command } from "commander";

/** Is given the work of the command that was called. */
export type Take = (work: Promise<number>) => void;

/** The help of --url. */
export const URL_HELP = "the store (default: HOLDFAST_URL, else your own lock server)";

/** Flags of commands that wait for a lock. */
export function waiting(command: Command): Command {
  return common(command)
    .option("--shared", "hold together with other shared holders")
    .option("--permits <n/m>", "take n of the m permits of the key")
    .option("--wait <duration>", "wait at most so long: 500ms, 30s, 10m (default: for ever)")
    .option("--no-wait", "fail at once if the lock is not free")
    .option("--ttl <duration>", "length of the lease, renewed while held")
    .option("--label <text>", "what others see of this holder (default: user@host pid program)")
    .option("--conflict-exit-code <code>", "instead of 124, when the lock was not granted in time")
    .option("-v, --verbose", "say more on stderr");
}

/** Flags of commands that work on a lock. */
export function common(command: Command): Command {
  return command
    .option("--url <url>", URL_HELP)
    .option("--json", "results and causes of failure as JSON")
    .option("-q, --quiet", "say nothing on stderr");
}

/** Examples, as they stand below the flags. */
export function examples(...lines: readonly string[]): string {
  return `\nExamples:\n${lines.map((line) => `  $ ${line}`).join("\n")}`;
}

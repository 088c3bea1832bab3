/** Flags that several commands have in common. */

import type { Command } from "commander";
import { Option } from "commander";

/** Is given the work of the command that was called. */
export type SetResult = (work: Promise<number>) => void;

/** The help of --url. */
export const URL_HELP = "the store (default: HOLDFAST_URL, else your own lock server)";

/** Flags of commands that wait for a lock; `ttl` is what --ttl means there. Short ones are named as flock(1) names them. */
export function addWaitOptions(command: Command, ttl: string): Command {
  const noWait = new Option("-n, --no-wait", "fail at once if the lock is not free");
  // else it would be `wait: false`, and which of the two was given last would decide
  noWait.negate = false;
  return addCommonOptions(command)
    .option("-s, --shared", "hold together with other shared holders")
    .option("--permits <n/m>", "take n of the m permits of the key")
    .option("-w, --wait <duration>", "wait at most so long: 500ms, 1m30s, 10 (seconds); default: for ever")
    .addOption(noWait)
    .option("--ttl <duration>", ttl)
    .option("--label <text>", "what others see of this holder (default: user@host pid program)")
    .option("-E, --conflict-exit-code <code>", "instead of 124, when the lock was not granted in time")
    .option("-v, --verbose", "say more on stderr");
}

/** Flags of commands that work on a lock. */
export function addCommonOptions(command: Command): Command {
  return command
    .option("--url <url>", URL_HELP)
    .option("--json", "results and causes of failure as JSON")
    .option("-q, --quiet", "say nothing on stderr");
}

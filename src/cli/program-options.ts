/** Flags that several commands share. */

import type { Command } from "commander";
import { Option } from "commander";

/** Receives the work of the called command. */
export type SetResult = (work: Promise<number>) => void;

/** The help of --url. */
export const URL_HELP = "the store (default: HOLDFAST_URL, or your own lock server)";

/** Adds the flags of commands that wait for a lock. `ttl` is the help of --ttl. The short flags are those of flock(1). */
export function addWaitOptions(command: Command, ttl: string): Command {
  const noWait = new Option("-n, --no-wait", "fail at once if the lock is not free");
  // without this, commander reads it as `wait: false`, and the last of --wait and --no-wait silently wins
  noWait.negate = false;
  return addCommonOptions(command)
    .option("-s, --shared", "share the lock with other --shared holders")
    .option("--permits <n/m>", "take n of the m permits of the key")
    .option("-w, --wait <duration>", "the longest wait: 500ms, 1m30s, 10 (seconds) (default: no limit)")
    .addOption(noWait)
    .option("--ttl <duration>", ttl)
    .option("--label <text>", "public description of this holder (default: user@host pid program)")
    .option("-E, --conflict-exit-code <code>", "exit code if the lock is not granted in time (default: 124)")
    .option("-v, --verbose", "print more on stderr");
}

/** Adds the flags of commands that work on a lock. */
export function addCommonOptions(command: Command): Command {
  return command
    .option("--url <url>", URL_HELP)
    .option("--json", "print results and causes of failure as JSON")
    .option("-q, --quiet", "print nothing on stderr");
}

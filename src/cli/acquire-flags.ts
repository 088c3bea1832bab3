/** The flags of the commands that acquire a lock: `run` and `acquire`. */

import { MIN_TTL_MS } from "../util/duration.ts";
import { parseDurationFlag } from "./duration-flag.ts";
import { CommandError } from "./errors.ts";
import type { StoreFlags } from "./store-choice.ts";

/** The default of `--ttl`, if the lock does not last as long as the session. */
export const DEFAULT_LEASE_MS = 30_000;

/** The flags as commander parses them. */
export interface AcquireFlags extends StoreFlags {
  readonly shared?: boolean;
  readonly permits?: string;
  readonly wait?: string;
  readonly noWait?: boolean;
  readonly ttl?: string;
  readonly conflictExitCode?: string;
  readonly label?: string;
  readonly quiet?: boolean;
  readonly verbose?: boolean;
  readonly json?: boolean;
}

/** `--ttl`: the length of the lease, or "session". */
export function parseTtl(text: string): number | "session" {
  return text === "session" ? text : parseDurationFlag(text, "--ttl", MIN_TTL_MS);
}

/** `--wait 30s`; `--no-wait` is 0. Without either there is no limit. */
export function parseWait({ wait, noWait }: Pick<AcquireFlags, "wait" | "noWait">): number | undefined {
  if (noWait === true) {
    if (wait !== undefined) throw new CommandError("usage", "--no-wait and --wait cannot be combined");
    return 0;
  }
  return wait === undefined ? undefined : parseDurationFlag(wait, "--wait");
}

/** `--conflict-exit-code`; undefined: the default exit code. @throws CommandError usage */
export function parseConflictExitCode(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const code = /^\d{1,3}$/.test(text) ? Number(text) : Number.NaN;
  if (!(code >= 0 && code <= 255)) {
    throw new CommandError("usage", `--conflict-exit-code must be a number from 0 to 255, not ${JSON.stringify(text)}`);
  }
  return code;
}

/** Parses and checks the flags of `holdfast run`, and has their defaults. */

import { formatDuration } from "../../../util/duration.ts";
import type { AcquireFlags } from "../../acquire-flags.ts";
import { parseConflictExitCode, parseTtl, parseWait } from "../../acquire-flags.ts";
import { parseDurationFlag } from "../../duration-flag.ts";
import { CommandError } from "../../errors.ts";
import type { RequestedLocks } from "../../lock-request.ts";
import { parseLockRequest } from "../../lock-request.ts";
import type { StoreFlags } from "../../store-choice.ts";
import type { OnLost } from "./lease-monitor.ts";

/** The flags as commander parses them. */
export interface RunFlags extends AcquireFlags {
  readonly onLost?: string;
  readonly grace?: string;
  readonly maxHold?: string;
  readonly holdAtLeast?: string;
}

/** The checked options of a run. */
export interface RunOptions extends StoreFlags {
  readonly request: RequestedLocks;
  readonly command: readonly [string, ...string[]];
  readonly waitMs: number | undefined;
  readonly ttl: number | "session" | undefined;
  readonly onLost: OnLost;
  readonly graceMs: number | undefined;
  readonly conflictExitCode: number | undefined;
  readonly maxHold: number | undefined;
  readonly holdAtLeast: number | undefined;
  readonly label: string | undefined;
  readonly quiet: boolean;
  readonly verbose: boolean;
  readonly json: boolean;
}

/**
 * Checks keys, flags and command.
 * @throws CommandError usage, TypeError; both name the flag
 */
export function parseRunOptions(keys: readonly string[], flags: RunFlags, command: readonly string[]): RunOptions {
  const request = parseLockRequest(keys, flags.shared === true, flags.permits);
  const [program, ...args] = command;
  if (program === undefined) {
    const [key, ...otherWords] = keys;
    const commandText = otherWords.length > 0 ? otherWords.join(" ") : "COMMAND";
    throw new CommandError("usage", `no command given; it follows "--": holdfast run ${key} -- ${commandText}`);
  }
  const ttl = flags.ttl === undefined ? undefined : parseTtl(flags.ttl);
  const graceMs = flags.grace === undefined ? undefined : parseDurationFlag(flags.grace, "--grace");
  if (graceMs !== undefined && typeof ttl === "number") checkGrace(graceMs, ttl);
  const maxHold = flags.maxHold === undefined ? undefined : parseMaxHold(flags.maxHold);
  return {
    request,
    command: [program, ...args],
    waitMs: parseWait(flags),
    ttl,
    onLost: parseOnLost(flags.onLost ?? "term"),
    graceMs,
    conflictExitCode: parseConflictExitCode(flags.conflictExitCode),
    maxHold,
    holdAtLeast: parseHoldAtLeast(flags.holdAtLeast, { ttl, maxHold }),
    url: flags.url,
    driver: flags.driver,
    label: flags.label,
    quiet: flags.quiet === true,
    verbose: flags.verbose === true,
    json: flags.json === true,
  };
}

/** @throws CommandError usage */
export function checkGrace(graceMs: number, leaseMs: number): void {
  if (graceMs <= leaseMs / 2) return;
  throw new CommandError(
    "usage",
    `--grace must be at most half of the lease of ${formatDuration(leaseMs)}, so that KILL comes before the lease ends`,
  );
}

/** The default of `--grace`. It may be at most half of the lease; a quarter leaves time for a late renewal. */
export function defaultGraceMs(leaseMs: number | null): number {
  return leaseMs === null ? 5_000 : Math.min(5_000, leaseMs / 4);
}

function parseMaxHold(text: string): number {
  const ms = parseDurationFlag(text, "--max-hold");
  if (ms > 0) return ms;
  throw new CommandError("usage", "--max-hold must be longer than 0: the command would be ended at once");
}

/** `--hold-at-least`. @throws CommandError usage if the lease or --max-hold would end the lock earlier */
function parseHoldAtLeast(
  text: string | undefined,
  { ttl, maxHold }: { readonly ttl: number | "session" | undefined; readonly maxHold: number | undefined },
): number | undefined {
  if (text === undefined) return undefined;
  const ms = parseDurationFlag(text, "--hold-at-least", 1);
  if (ttl === "session") {
    throw new CommandError("usage", "--hold-at-least needs a lease: --ttl session ends with `holdfast run`");
  }
  if (ttl !== undefined && ttl < ms) {
    throw new CommandError("usage", `--ttl must be at least the ${formatDuration(ms)} of --hold-at-least`);
  }
  if (maxHold !== undefined && maxHold < ms) {
    throw new CommandError(
      "usage",
      `--max-hold must be at least the ${formatDuration(ms)} of --hold-at-least: the lock is released when it has passed`,
    );
  }
  return ms;
}

function parseOnLost(text: string): OnLost {
  if (text === "term" || text === "kill" || text === "ignore") return text;
  throw new CommandError("usage", `--on-lost must be term, kill or ignore, not ${JSON.stringify(text)}`);
}

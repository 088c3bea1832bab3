/** Checks whether a server with these options could start, without starting it. */

import { constants } from "node:fs";
import { access, lstat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { acquireFileLock } from "../../os/file-lock.ts";
import { findMissingDirectories, trimTrailingSlashes } from "../../os/private-directory.ts";
import { systemErrorCode } from "../../util/system-error.ts";
import { describeRecovery } from "../local/recovery-window.ts";
import { planStartup } from "../local/startup-plan.ts";
import { checkPrivateDirectory, StateError } from "../storage/private-files.ts";
import { checkFileLocks, hasBeenUsed, loadState } from "../storage/state-directory.ts";
import { MAX_UNJOURNALED_MS } from "../storage/write-ahead.ts";
import { resolveConfig } from "./config.ts";
import type { ServeOptions } from "./options.ts";
import type { ConfigProblem } from "./port-config.ts";

/** The result of a check for the operator. */
export interface PreflightResult {
  /** The server would not start, or no client could use it. */
  readonly problems: readonly ConfigProblem[];
  /** The server would start nevertheless. */
  readonly warnings: readonly string[];
}

/**
 * Checks the options of a server: the values, the files that they name, and the state. Reports all problems at once.
 * Opens and changes nothing, so a server may be running with these options.
 */
export async function checkOptions(options: ServeOptions): Promise<PreflightResult> {
  const { config, problems: faults } = resolveConfig(options);
  const { invalidReason = null } = config.tls ?? {};
  const problems = [...faults];
  const warnings = config.warnings.filter((warning) => warning !== invalidReason);
  if (invalidReason !== null) problems.push({ option: "tls", message: invalidReason, isEnvironmental: true });
  if (typeof options.state === "string" && options.state !== "none" && options.state !== "") {
    const remote = config.http !== null || config.addresses.some((address) => !("path" in address));
    const { problem, warnings: stateWarnings } = await checkState(options.state, remote, options.firstStart === true);
    if (problem !== null) problems.push({ option: "state", message: problem, isEnvironmental: true });
    warnings.push(...stateWarnings);
  } else if (options.state === "none" && options.firstStart !== true) {
    warnings.push(describeRecovery("stateless", MAX_UNJOURNALED_MS));
  }
  for (const address of config.addresses) {
    const message = "path" in address ? await findSocketProblem(address.path) : null;
    if (message !== null) problems.push({ option: "listen", message, isEnvironmental: true });
  }
  return { problems, warnings };
}

/**
 * Whether a socket could be created there. A server that already listens on it is no problem: it may be the one being
 * checked.
 */
async function findSocketProblem(path: string): Promise<string | null> {
  try {
    // the directory itself, not a writable file of that name
    await access(`${dirname(path)}/.`, constants.W_OK | constants.X_OK);
    return !(await exists(path)) || (await lstat(path)).isSocket() ? null : `${path} is not a socket: move it away`;
  } catch (error) {
    return `cannot create a socket in ${dirname(path)} (${systemErrorCode(error)})`;
  }
}

/** What a start would find in the state directory. */
interface StatePreflight {
  readonly problem: string | null;
  readonly warnings: readonly string[];
}

async function checkState(rawPath: string, remote: boolean, firstStart: boolean): Promise<StatePreflight> {
  const path = trimTrailingSlashes(rawPath);
  try {
    const { missing, parent } = findMissingDirectories(path);
    checkFileLocks(missing.length > 0 ? parent : path);
    if (missing.length > 0) return { problem: await findParentProblem(path, parent), warnings: [] };
    const mode = await checkPrivateDirectory(path);
    const warnings =
      mode === null ? [] : [`${path} is empty and open to other users (mode ${mode}): the server will set mode 700`];
    await access(path, constants.R_OK | constants.W_OK | constants.X_OK);
    const isUnused = !hasBeenUsed(path);
    if (firstStart && !isUnused) throw new StateError(`${path} has been in use: this is not its first start`);
    const loadedState = await loadState(path, isUnused);
    // the files of a running server belong to its own run
    if (await isInUse(join(path, "lock"))) return { problem: null, warnings };
    const { reason, durationMs, expectedSessions } = planStartup(loadedState, 0, { remote, sessionMs: 0 });
    const isShort = reason === null || durationMs === 0 || expectedSessions?.size === 0;
    return { problem: null, warnings: isShort ? warnings : [...warnings, describeRecovery(reason, durationMs)] };
  } catch (error) {
    return { problem: (error as Error).message, warnings: [] };
  }
}

/** True if a server uses it. Creates and keeps nothing. */
async function isInUse(path: string): Promise<boolean> {
  if (!(await exists(path))) return false;
  const lock = await acquireFileLock(path);
  lock?.close();
  return lock === null;
}

/** The directory does not exist: whether it could be created. */
async function findParentProblem(path: string, parent: string): Promise<string | null> {
  try {
    await access(parent, constants.W_OK | constants.X_OK);
    return null;
  } catch (error) {
    return `${path} cannot be created in ${parent} (${systemErrorCode(error)})`;
  }
}

async function exists(path: string): Promise<boolean> {
  try {
    await access(path, constants.F_OK);
    return true;
  } catch (error) {
    if (systemErrorCode(error) === "ENOENT") return false;
    throw error;
  }
}

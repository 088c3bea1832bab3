/** Whether a server with these options could start, found out without starting one. */

import { constants } from "node:fs";
import { access, lstat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { foldersToMake, trimmedPath } from "../private-folder.ts";
import { SHORT_MS } from "./durability.ts";
import { elect } from "./election.ts";
import { checkFolder, StateError } from "./files.ts";
import { startPlanOf } from "./opening.ts";
import type { Fault } from "./plan.ts";
import { planOf } from "./plan.ts";
import { recoveryText } from "./reclaiming.ts";
import type { ServeOptions } from "./serve.ts";
import { readState, usedBefore } from "./state.ts";

/** What an operator is told before a server is started. */
export interface Checked {
  /** It would not start, or nobody could use it. */
  readonly faults: readonly Fault[];
  /** It would start all the same. */
  readonly warnings: readonly string[];
}

/**
 * Checks the options of a server: the values, the files they name, and the state; all faults at once. Nothing is opened
 * or changed, so a server may be running with them.
 */
export async function checkOptions(options: ServeOptions): Promise<Checked> {
  const { plan, faults } = planOf(options);
  const { dead = null } = plan.tls ?? {};
  const found = [...faults];
  const warnings = plan.warnings.filter((it) => it !== dead);
  if (dead !== null) found.push({ option: "tls", message: dead, named: true });
  if (typeof options.state === "string" && options.state !== "none" && options.state !== "") {
    const remote = plan.http !== null || plan.addresses.some((address) => !("path" in address));
    const { fault, warnings: told } = await stateChecked(options.state, remote, options.firstStart === true);
    if (fault !== null) found.push({ option: "state", message: fault, named: true });
    warnings.push(...told);
  } else if (options.state === "none" && options.firstStart !== true) {
    warnings.push(recoveryText("stateless", SHORT_MS));
  }
  for (const address of plan.addresses) {
    const message = "path" in address ? await socketFault(address.path) : null;
    if (message !== null) found.push({ option: "listen", message, named: true });
  }
  return { faults: found, warnings };
}

/** Could a socket be made there? Whether another server listens on it is not asked: it may be the one that is checked. */
async function socketFault(path: string): Promise<string | null> {
  try {
    // a folder, not a file that may be written
    await access(`${dirname(path)}/.`, constants.W_OK | constants.X_OK);
    return !(await isThere(path)) || (await lstat(path)).isSocket() ? null : `${path} is not a socket: move it away`;
  } catch (error) {
    return `no socket can be made in ${dirname(path)} (${(error as NodeJS.ErrnoException).code})`;
  }
}

/** What a start would find in the state folder. */
interface StateChecked {
  readonly fault: string | null;
  readonly warnings: readonly string[];
}

async function stateChecked(given: string, remote: boolean, firstStart: boolean): Promise<StateChecked> {
  const path = trimmedPath(given);
  try {
    const { missing, parent } = foldersToMake(path);
    if (missing.length > 0) return { fault: await parentFault(path, parent), warnings: [] };
    const mode = await checkFolder(path);
    const warnings =
      mode === null ? [] : [`${path} is empty and open to others (mode ${mode}): the start sets mode 700`];
    await access(path, constants.R_OK | constants.W_OK | constants.X_OK);
    const fresh = !usedBefore(path);
    if (firstStart && !fresh) throw new StateError(`${path} has been in use: this is not its first start`);
    const found = await readState(path, fresh);
    // what a running server has there is of its own start
    if (await isLocked(join(path, "lock"))) return { fault: null, warnings };
    const { reason, reclaimMs, awaited } = startPlanOf(found, 0, { remote, sessionMs: 0 });
    const isShort = reason === null || reclaimMs === 0 || awaited?.size === 0;
    return { fault: null, warnings: isShort ? warnings : [...warnings, recoveryText(reason, reclaimMs)] };
  } catch (error) {
    return { fault: (error as Error).message, warnings: [] };
  }
}

/** Does a server use it? Nothing is made, and nothing kept. */
async function isLocked(path: string): Promise<boolean> {
  if (!(await isThere(path))) return false;
  const lock = await elect(path);
  lock?.close();
  return lock === null;
}

/** The folder would be made: may it be? */
async function parentFault(path: string, parent: string): Promise<string | null> {
  try {
    await access(parent, constants.W_OK | constants.X_OK);
    return null;
  } catch (error) {
    return `${path} cannot be made in ${parent} (${(error as NodeJS.ErrnoException).code})`;
  }
}

async function isThere(path: string): Promise<boolean> {
  try {
    await access(path, constants.F_OK);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return false;
    throw error;
  }
}

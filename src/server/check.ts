/** Whether a server with these options could start, found out without starting one. */

import { constants } from "node:fs";
import { access, lstat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { privateFolder, readOurs } from "./files.ts";
import { journalRecords, stateOf } from "./journal.ts";
import type { Fault } from "./plan.ts";
import { planOf } from "./plan.ts";
import type { ServeOptions } from "./serve.ts";

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
  if (dead !== null) found.push({ option: "tls", message: dead, named: true });
  if (typeof options.state === "string" && options.state !== "none" && options.state !== "") {
    const message = await stateFault(options.state);
    if (message !== null) found.push({ option: "state", message, named: true });
  }
  for (const address of plan.addresses) {
    const message = "path" in address ? await socketFault(address.path) : null;
    if (message !== null) found.push({ option: "listen", message, named: true });
  }
  return { faults: found, warnings: plan.warnings.filter((it) => it !== dead) };
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

async function stateFault(path: string): Promise<string | null> {
  try {
    if (!(await isThere(path))) return await parentFault(path);
    await privateFolder(path);
    await access(path, constants.R_OK | constants.W_OK | constants.X_OK);
    const [statePath, journalPath] = [join(path, "state"), join(path, "journal")];
    const [state, journal] = [await readOurs(statePath), await readOurs(journalPath)];
    if (state !== null) stateOf(state, statePath);
    if (journal !== null) journalRecords(journal, journalPath);
    return null;
  } catch (error) {
    return (error as Error).message;
  }
}

/** The folder would be made: may it be? */
async function parentFault(path: string): Promise<string | null> {
  let parent = dirname(path);
  while (!(await isThere(parent)) && dirname(parent) !== parent) parent = dirname(parent);
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

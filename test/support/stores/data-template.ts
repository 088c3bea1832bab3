/** Data folders of database servers, made once by the database's own program and copied from then on, which is much faster. */

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, renameSync, rmSync, statSync } from "node:fs";
import { join, resolve } from "node:path";

const CACHE = "node_modules/.cache/holdfast";

export interface DataProgram {
  /** "postgres": begins the template's name. */
  readonly name: string;
  readonly program: string;
  /** Without the folder. */
  readonly args: readonly string[];
  /** Whom it runs as, and who owns the data. Default: the user of the tests. */
  readonly user?: number | undefined;
}

/** Makes the data folder. `folderArgs`: how the program is told of it. */
export function makeDataFolder(folder: string, folderArgs: readonly string[], data: DataProgram): void {
  const template = templatePath(data);
  if (existsSync(template)) {
    copyFolder(template, folder);
    return;
  }
  const identity = data.user === undefined ? {} : { uid: data.user, gid: data.user };
  execFileSync(data.program, [...data.args, ...folderArgs], { ...identity, cwd: "/", stdio: "pipe" });
  mkdirSync(resolve(CACHE), { recursive: true });
  // in one step: another test file may be making it too, or copying it
  const copy = `${template}.${process.pid}`;
  copyFolder(folder, copy);
  try {
    renameSync(copy, template);
  } catch (error) {
    rmSync(copy, { recursive: true, force: true });
    if (!existsSync(template)) throw error;
  }
}

/** Another version of the program, other arguments or another user have another template. */
function templatePath({ name, program, args, user }: DataProgram): string {
  const made = [program, statSync(program).mtimeMs, args, user, process.getuid?.()];
  const digest = createHash("sha256").update(JSON.stringify(made)).digest("hex").slice(0, 12);
  return resolve(join(CACHE, `${name}-${digest}`));
}

/** With owners and modes, which PostgreSQL insists on. */
function copyFolder(from: string, to: string): void {
  execFileSync("cp", ["-a", from, to], { stdio: "pipe" });
}

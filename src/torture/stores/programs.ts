/** The programs of stores, as the system has them: torture installs nothing. */

import { execFileSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";

const POSTGRES_VERSIONS = "/usr/lib/postgresql";

/** The version that a program prints. @throws Error if it is missing */
export function versionOf(program: string, args: readonly string[]): string {
  try {
    const text = execFileSync(program, args, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
    return /\d+(?:\.\d+)+/.exec(text)?.[0] ?? "";
  } catch (cause) {
    const isMissing = (cause as NodeJS.ErrnoException).code === "ENOENT";
    throw new Error(
      `${program} ${isMissing ? "is not installed" : "does not run"}: torture uses the program of this system`,
      {
        cause,
      },
    );
  }
}

/** Debian puts PostgreSQL's programs into a directory of their version. */
export function postgresProgram(name: string): string {
  const versions = existsSync(POSTGRES_VERSIONS)
    ? readdirSync(POSTGRES_VERSIONS).sort((a, b) => Number(a) - Number(b))
    : [];
  const newest = versions.at(-1);
  return newest === undefined ? name : join(POSTGRES_VERSIONS, newest, "bin", name);
}

/** Daemons are in directories that the path of a user may lack. */
export function systemProgram(name: string): string {
  const directories = (process.env.PATH ?? "").split(":").concat("/usr/sbin", "/usr/local/sbin");
  return directories.map((directory) => join(directory, name)).find((path) => existsSync(path)) ?? name;
}

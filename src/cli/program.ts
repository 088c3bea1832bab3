/** Finding the program to run, as the shell does, before anybody waits for a lock it could not use. */

import { accessSync, constants, statSync } from "node:fs";
import { delimiter, join } from "node:path";
import { CommandError } from "./failure.ts";
import { quoted } from "./output.ts";

/**
 * Checks that the command can be started.
 * @throws CommandError notFound (127) or notExecutable (126), as a shell would end
 */
export function checkProgram(command: string, path: string | undefined = process.env.PATH): void {
  const tries = command.includes("/")
    ? [command]
    : (path ?? "/usr/bin:/bin").split(delimiter).map((folder) => join(folder || ".", command));
  let denied = false;
  for (const file of command === "" ? [] : tries) {
    const is = kindOf(file);
    if (is === "program") return;
    if (is === "other") denied = true;
  }
  if (denied) throw new CommandError("notExecutable", `${quoted(command)} cannot be executed; nothing was run`);
  throw new CommandError("notFound", `${quoted(command)} was not found; nothing was run`);
}

/** Why a program that was there could not be started after all. */
export function startError(command: string, error: NodeJS.ErrnoException): CommandError {
  const missing = error.code === "ENOENT" || error.code === "ENOTDIR";
  const said = missing
    ? "was not found, or its interpreter was not"
    : `could not be started (${error.code ?? error.message})`;
  return new CommandError(missing ? "notFound" : "notExecutable", `${quoted(command)} ${said}; nothing was run`, {
    cause: error,
  });
}

function kindOf(file: string): "program" | "other" | "none" {
  try {
    if (statSync(file).isDirectory()) return "other";
    accessSync(file, constants.X_OK);
    return "program";
  } catch (error) {
    // a folder of PATH that is missing or closed to us does not stop the search
    return (error as NodeJS.ErrnoException).code === "EACCES" ? "other" : "none";
  }
}

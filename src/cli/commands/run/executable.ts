/** Finds the program to run as a shell does, before the wait: a lock for a missing program would be useless. */

import { accessSync, constants, statSync } from "node:fs";
import { delimiter, join } from "node:path";
import { CommandError } from "../../errors.ts";
import { quoteKey } from "../../output.ts";

/**
 * Checks that the command can be started.
 * @throws CommandError notFound (127) or notExecutable (126), the exit codes of a shell
 */
export function checkExecutable(command: string, path: string | undefined = process.env.PATH): void {
  const candidates = command.includes("/")
    ? [command]
    : (path ?? "/usr/bin:/bin").split(delimiter).map((directory) => join(directory || ".", command));
  let isDenied = false;
  for (const file of command === "" ? [] : candidates) {
    const kind = classifyFile(file);
    if (kind === "program") return;
    if (kind === "other") isDenied = true;
  }
  if (isDenied) throw new CommandError("notExecutable", `${quoteKey(command)} cannot be executed; nothing was run`);
  throw new CommandError("notFound", `${quoteKey(command)} was not found; nothing was run`);
}

/** The error of a program that was found but could not be started. */
export function toStartError(command: string, error: NodeJS.ErrnoException): CommandError {
  const isMissing = error.code === "ENOENT" || error.code === "ENOTDIR";
  const problem = isMissing
    ? "or its interpreter was not found"
    : `could not be started (${error.code ?? error.message})`;
  return new CommandError(
    isMissing ? "notFound" : "notExecutable",
    `${quoteKey(command)} ${problem}; nothing was run`,
    {
      cause: error,
    },
  );
}

function classifyFile(file: string): "program" | "other" | "none" {
  try {
    if (statSync(file).isDirectory()) return "other";
    accessSync(file, constants.X_OK);
    return "program";
  } catch (error) {
    // a directory in PATH that is missing or not accessible does not stop the search
    return (error as NodeJS.ErrnoException).code === "EACCES" ? "other" : "none";
  }
}

/** Child processes that end with the process that started them, however it ends. */

/**
 * The command, as a program that Linux ends together with the process that started it: one that is killed leaves
 * none behind. Its process is the program's own.
 */
export function endWithParent(command: readonly string[]): readonly string[] {
  return process.platform === "linux" ? ["setpriv", "--pdeathsig", "KILL", ...command] : command;
}

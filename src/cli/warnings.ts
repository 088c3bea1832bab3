/** Warnings of the library, in the words of a command instead of node's, which begin with a process id and cannot be muted. */

let usual: readonly NodeJS.WarningListener[] | null = null;
let current: (warning: string) => void = () => undefined;

/** From now on warnings of ours are told this way, and by no other; those of others as ever. */
export function warnBy(tell: (warning: string) => void): void {
  current = tell;
  if (usual !== null) return;
  usual = process.listeners("warning");
  process.removeAllListeners("warning");
  process.on("warning", (warning) => {
    if (warning.name.startsWith("Holdfast")) current(warning.message);
    else for (const listener of usual ?? []) listener(warning);
  });
}

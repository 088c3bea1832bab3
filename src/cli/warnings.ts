/** Warnings of the library, in the words of a command instead of node's, which begin with a process id and cannot be muted. */

let originalListeners: readonly NodeJS.WarningListener[] | null = null;
let handleOwnWarning: (warning: string) => void = () => undefined;

/** From now on warnings of ours are told this way, and by no other; those of others as ever. */
export function handleWarnings(handle: (warning: string) => void): void {
  handleOwnWarning = handle;
  if (originalListeners !== null) return;
  originalListeners = process.listeners("warning");
  process.removeAllListeners("warning");
  process.on("warning", (warning) => {
    if (warning.name.startsWith("Holdfast")) handleOwnWarning(warning.message);
    else for (const listener of originalListeners ?? []) listener(warning);
  });
}

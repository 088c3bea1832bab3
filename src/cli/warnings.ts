/** Prints the warnings of the library itself: Node's own output begins with a process id and cannot be muted by --quiet. */

let originalListeners: readonly NodeJS.WarningListener[] | null = null;
let handleOwnWarning: (warning: string) => void = () => undefined;

/** From now on Holdfast's warnings go to `handle` only; all other warnings go to the listeners that had them before. */
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

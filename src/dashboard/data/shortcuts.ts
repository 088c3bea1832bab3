/** The keys of the keyboard that do something. */

import { useEffect, useRef } from "preact/hooks";

/** What a key does. The name is that of the key, after "g " if it follows that. */
export type Shortcuts = Readonly<Record<string, () => void>>;

/** After this time a "g" means nothing more. */
const SEQUENCE_MS = 1_200;

/** The keys of a component, as long as it is there. They mean nothing in a field, in a dialog or with a modifier. */
export function useShortcuts(shortcuts: Shortcuts): void {
  const current = useRef(shortcuts);
  current.current = shortcuts;
  useEffect(() => {
    let leaderAt = Number.NEGATIVE_INFINITY;
    const onKey = (event: KeyboardEvent): void => {
      if (isForElsewhere(event)) return;
      const isSecond = event.timeStamp - leaderAt < SEQUENCE_MS;
      leaderAt = event.key === "g" && !isSecond ? event.timeStamp : Number.NEGATIVE_INFINITY;
      const action = current.current[isSecond ? `g ${event.key}` : event.key];
      if (action === undefined) return;
      event.preventDefault();
      action();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

function isForElsewhere({ target, ctrlKey, altKey, metaKey, defaultPrevented, isComposing }: KeyboardEvent): boolean {
  if (ctrlKey || altKey || metaKey || defaultPrevented || isComposing) return true;
  if (document.querySelector("dialog[open]") !== null) return true;
  return target instanceof Element && target.closest("input, textarea, select, [contenteditable]") !== null;
}

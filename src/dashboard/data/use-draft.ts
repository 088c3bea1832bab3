/** The text of a field: it is told to the view with each key, or after a while, and comes back from there a moment later. */

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { awaitFurther } from "../model/told-values.ts";

export interface Draft {
  readonly text: string;
  /** @param delayMs the time without another change after which it is told; 0: at once */
  readonly change: (text: string, delayMs: number) => void;
  /** Tells at once what was to be told later. */
  readonly flush: () => void;
}

/** @param value of the view: it replaces the draft if the field has not told it, as after the back button */
export function useDraft(value: string, onChange: (value: string) => void): Draft {
  const [text, setText] = useState(value);
  const due = useRef<{ readonly text: string; readonly timer: ReturnType<typeof setTimeout> } | null>(null);
  const told = useRef<readonly string[]>([]);
  // a delayed value goes to the view as it is then: another field of it may have changed meanwhile
  const tellView = useRef(onChange);
  tellView.current = onChange;

  const cancel = (): void => {
    if (due.current !== null) clearTimeout(due.current.timer);
    due.current = null;
  };
  // before another key can be pressed: an effect runs a frame later, and would put an old value over a new one
  useLayoutEffect(() => {
    const further = awaitFurther(told.current, value);
    told.current = further ?? [];
    if (further !== null) return;
    cancel();
    setText(value);
  }, [value]);
  useEffect(() => cancel, []);

  const tell = (next: string): void => {
    cancel();
    told.current = [...told.current, next];
    tellView.current(next);
  };
  const change = (next: string, delayMs: number): void => {
    setText(next);
    cancel();
    if (delayMs === 0) tell(next);
    else due.current = { text: next, timer: setTimeout(() => tell(next), delayMs) };
  };
  const flush = (): void => {
    if (due.current !== null) tell(due.current.text);
  };
  return { text, change, flush };
}

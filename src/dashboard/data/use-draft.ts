/** The text of a field. The field sends it to its view with each key, or after a delay, and the view returns it a moment later. */

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { awaitFurther } from "../model/sent-values.ts";

export interface Draft {
  readonly text: string;
  /** @param delayMs how long after the last change the field sends the text to its view; 0: at once */
  readonly change: (text: string, delayMs: number) => void;
  /** Sends a delayed text at once. */
  readonly flush: () => void;
}

/** @param value of the view: it replaces the draft unless it is one that the field has sent; so after the back button */
export function useDraft(value: string, onChange: (value: string) => void): Draft {
  const [text, setText] = useState(value);
  const due = useRef<{ readonly text: string; readonly timer: ReturnType<typeof setTimeout> } | null>(null);
  const sent = useRef<readonly string[]>([]);
  // a delayed value goes to the view as it is then: another field of it may have changed meanwhile
  const sendToView = useRef(onChange);
  sendToView.current = onChange;

  const cancel = (): void => {
    if (due.current !== null) clearTimeout(due.current.timer);
    due.current = null;
  };
  // before another key can be pressed: an effect runs a frame later, and would put an old value over a new one
  useLayoutEffect(() => {
    const further = awaitFurther(sent.current, value);
    sent.current = further ?? [];
    if (further !== null) return;
    cancel();
    setText(value);
  }, [value]);
  useEffect(() => cancel, []);

  const send = (next: string): void => {
    cancel();
    sent.current = [...sent.current, next];
    sendToView.current(next);
  };
  const change = (next: string, delayMs: number): void => {
    setText(next);
    cancel();
    if (delayMs === 0) send(next);
    else due.current = { text: next, timer: setTimeout(() => send(next), delayMs) };
  };
  const flush = (): void => {
    if (due.current !== null) send(due.current.text);
  };
  return { text, change, flush };
}

/** A field above a list. `/` moves the focus to it, Escape empties and leaves it. */

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useShortcuts } from "../data/shortcuts.ts";
import { awaitFurther } from "../model/told-values.ts";
import { Icon } from "./icons.tsx";

interface SearchFieldProps {
  readonly label: string;
  readonly placeholder: string;
  readonly value: string;
  /** The time without another key after which the value is told. */
  readonly delayMs?: number;
  readonly hasShortcut?: boolean;
  /** Why this value cannot be searched for; null: it can. */
  readonly problem?: string | null;
  readonly onChange: (value: string) => void;
}

const MAX_LENGTH = 512;

export function SearchField(props: SearchFieldProps) {
  const { label, placeholder, value, delayMs = 0, hasShortcut = false, problem = null } = props;
  const ref = useRef<HTMLInputElement>(null);
  const [draft, setDraft] = useState(value);
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);
  const told = useRef<readonly string[]>([]);
  // a delayed value goes to the view as it is then: another field of it may have changed meanwhile
  const onChange = useRef(props.onChange);
  onChange.current = props.onChange;

  const stopTimer = (): void => {
    if (timer.current !== null) clearTimeout(timer.current);
    timer.current = null;
  };
  // the values that the view returns are older than the draft
  useLayoutEffect(() => {
    const further = awaitFurther(told.current, value);
    told.current = further ?? [];
    if (further !== null) return;
    stopTimer();
    setDraft(value);
  }, [value]);
  useEffect(() => stopTimer, []);
  useShortcuts(hasShortcut ? { "/": () => ref.current?.select() } : {});

  const tell = (text: string): void => {
    stopTimer();
    told.current = [...told.current, text];
    onChange.current(text);
  };
  const change = (text: string, waitMs: number): void => {
    setDraft(text);
    stopTimer();
    if (waitMs === 0) tell(text);
    else timer.current = setTimeout(() => tell(text), waitMs);
  };
  const onKeyDown = (event: KeyboardEvent & { readonly currentTarget: HTMLInputElement }): void => {
    if (event.key === "Enter" && !event.isComposing) {
      if (timer.current !== null) tell(event.currentTarget.value);
      ref.current?.blur();
    }
    if (event.key !== "Escape") return;
    event.preventDefault();
    if (draft !== "") change("", 0);
    else ref.current?.blur();
  };
  return (
    <label class="field">
      <span class="visually-hidden">{label}</span>
      <Icon name="search" />
      <input
        ref={ref}
        type="text"
        value={draft}
        placeholder={placeholder}
        maxLength={MAX_LENGTH}
        autocomplete="off"
        autocapitalize="off"
        spellcheck={false}
        aria-invalid={problem === null ? undefined : true}
        title={problem ?? undefined}
        dir="auto"
        onInput={(event) => change(event.currentTarget.value, delayMs)}
        onKeyDown={onKeyDown}
      />
      {hasShortcut && draft === "" && <span class="key-hint">/</span>}
    </label>
  );
}

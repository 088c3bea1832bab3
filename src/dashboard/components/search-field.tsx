/** A field above a list. `/` moves the focus to it, Escape empties and leaves it. */

import { useEffect, useRef, useState } from "preact/hooks";
import { useShortcuts } from "../data/shortcuts.ts";
import { Icon } from "./icons.tsx";

interface SearchFieldProps {
  readonly label: string;
  readonly placeholder: string;
  readonly value: string;
  /** The time without another key after which the value is told. */
  readonly delayMs?: number;
  readonly hasShortcut?: boolean;
  readonly onChange: (value: string) => void;
}

const MAX_LENGTH = 512;

export function SearchField(props: SearchFieldProps) {
  const { label, placeholder, value, delayMs = 0, hasShortcut = false, onChange } = props;
  const ref = useRef<HTMLInputElement>(null);
  const [draft, setDraft] = useState(value);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => setDraft(value), [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  useShortcuts(hasShortcut ? { "/": () => ref.current?.select() } : {});

  const change = (text: string): void => {
    setDraft(text);
    clearTimeout(timer.current);
    if (delayMs === 0) onChange(text);
    else timer.current = setTimeout(() => onChange(text), delayMs);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === "Enter") ref.current?.blur();
    if (event.key !== "Escape") return;
    event.preventDefault();
    if (draft !== "") change("");
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
        dir="auto"
        onInput={(event) => change(event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      {hasShortcut && draft === "" && <span class="key-hint">/</span>}
    </label>
  );
}

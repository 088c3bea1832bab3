/** A field above a list. `/` moves the focus to it, Escape empties it, and leaves it if it is empty. */

import { useRef } from "preact/hooks";
import { useShortcuts } from "../data/shortcuts.ts";
import { useDraft } from "../data/use-draft.ts";
import { Icon } from "./icons.tsx";

interface SearchFieldProps {
  readonly label: string;
  readonly placeholder: string;
  readonly value: string;
  /** How long after the last key the field sends its value to the view, in milliseconds. Default 0: at once. */
  readonly delayMs?: number;
  readonly hasShortcut?: boolean;
  /** Why this value cannot be searched for; null: it can. */
  readonly problem?: string | null;
  readonly onChange: (value: string) => void;
}

const MAX_LENGTH = 512;

export function SearchField(props: SearchFieldProps) {
  const { label, placeholder, value, delayMs = 0, hasShortcut = false, problem = null, onChange } = props;
  const ref = useRef<HTMLInputElement>(null);
  const draft = useDraft(value, onChange);
  useShortcuts(hasShortcut ? { "/": () => ref.current?.select() } : {});

  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === "Enter" && !event.isComposing) {
      draft.flush();
      ref.current?.blur();
    }
    if (event.key !== "Escape") return;
    event.preventDefault();
    if (draft.text !== "") draft.change("", 0);
    else ref.current?.blur();
  };
  return (
    <label class="field">
      <span class="visually-hidden">{label}</span>
      <Icon name="search" />
      <input
        ref={ref}
        type="text"
        value={draft.text}
        placeholder={placeholder}
        maxLength={MAX_LENGTH}
        autocomplete="off"
        autocapitalize="off"
        spellcheck={false}
        aria-invalid={problem === null ? undefined : true}
        title={problem ?? undefined}
        dir="auto"
        onInput={(event) => draft.change(event.currentTarget.value, delayMs)}
        onKeyDown={onKeyDown}
      />
      {hasShortcut && draft.text === "" && <span class="key-hint">/</span>}
    </label>
  );
}

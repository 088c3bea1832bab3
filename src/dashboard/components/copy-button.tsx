/** Copies a command, and says so. */

import { useEffect, useState } from "preact/hooks";
import { copyText } from "../data/clipboard.ts";
import { Icon } from "./icons.tsx";

interface CopyButtonProps {
  readonly text: string;
  /** What the text alone does not say of the command. */
  readonly hint?: string | null;
  readonly label: string;
  /** For readers of the screen, if the label alone does not say what is copied. */
  readonly description?: string;
}

const SHOWN_MS = 2_000;

export function CopyButton({ text, hint = null, label, description }: CopyButtonProps) {
  const [result, setResult] = useState<"none" | "copied" | "failed">("none");
  useEffect(() => {
    if (result === "none") return;
    const timer = setTimeout(() => setResult("none"), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [result]);
  const copy = async (): Promise<void> => setResult((await copyText(text)) ? "copied" : "failed");
  const shown = result === "none" ? label : result === "copied" ? "Copied" : "Not copied";
  return (
    <button
      type="button"
      class="button"
      title={hint === null ? text : `${text}\n(${hint})`}
      onClick={() => void copy()}
    >
      <Icon name={result === "copied" ? "ok" : "copy"} />
      <span aria-live="polite">{shown}</span>
      {description !== undefined && <span class="visually-hidden">{description}</span>}
    </button>
  );
}

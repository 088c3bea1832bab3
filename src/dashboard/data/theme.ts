/** Light and dark: as the system has it, or as the viewer has chosen. */

import { readItem, writeItem } from "./storage.ts";
import { ValueStore } from "./value-store.ts";

export type Theme = "system" | "light" | "dark";

export const THEMES: readonly Theme[] = ["system", "light", "dark"];

const THEME_ITEM = "holdfast-ui-theme";

export const theme: ValueStore<Theme> = new ValueStore<Theme>("system");

/** Applies what was chosen before. */
export function startTheme(): void {
  const stored = readItem(THEME_ITEM);
  chooseTheme(THEMES.find((known) => known === stored) ?? "system");
}

export function chooseTheme(chosen: Theme): void {
  writeItem(THEME_ITEM, chosen);
  document.documentElement.dataset.theme = chosen;
  theme.set(chosen);
}

/** Calls it when colours have changed. Returns what ends it. */
export function onColorsChanged(listener: () => void): () => void {
  const media = matchMedia("(prefers-color-scheme: dark)");
  media.addEventListener("change", listener);
  const unsubscribe = theme.subscribe(listener);
  return () => {
    media.removeEventListener("change", listener);
    unsubscribe();
  };
}

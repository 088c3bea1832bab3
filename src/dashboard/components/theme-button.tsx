/** Changes between the scheme of the system, light and dark. */

import { chooseTheme, THEMES, theme } from "../data/theme.ts";
import { useStored } from "../data/value-store.ts";
import { Icon } from "./icons.tsx";

export function ThemeButton() {
  const current = useStored(theme);
  const next = THEMES[(THEMES.indexOf(current) + 1) % THEMES.length] ?? "system";
  const label = `Colours: ${current}`;
  return (
    <button
      type="button"
      class="icon-button"
      title={`${label}; click for ${next}`}
      aria-label={label}
      onClick={() => chooseTheme(next)}
    >
      <Icon name="theme" />
    </button>
  );
}

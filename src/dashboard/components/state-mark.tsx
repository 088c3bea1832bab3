/** A state as a picture and a word, in its colour. */

import type { IconName } from "./icons.tsx";
import { Icon } from "./icons.tsx";

interface StateMarkProps {
  readonly tone: "held" | "waiting" | "lost" | "over" | "ok" | "unknown";
  readonly children: string;
}

export function StateMark({ tone, children }: StateMarkProps) {
  const icon: IconName = tone;
  return (
    <span class={`state state-${tone}`}>
      <Icon name={icon} />
      <span>{children}</span>
    </span>
  );
}

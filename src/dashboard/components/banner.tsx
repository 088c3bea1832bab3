/** What a viewer must know of what is shown: that it is old, that it is not all, that the store is paused. */

import type { ComponentChildren } from "preact";
import { Icon } from "./icons.tsx";

interface BannerProps {
  readonly tone: "info" | "warn" | "bad";
  readonly title?: string;
  readonly children: ComponentChildren;
}

/** Tells readers of the screen what a banner says, without the figures in it that change each second. */
export function Announcement({ text }: { readonly text: string }) {
  return (
    <p class="visually-hidden" role="status">
      {text}
    </p>
  );
}

export function Banner({ tone, title, children }: BannerProps) {
  return (
    <div class={`banner banner-${tone}`}>
      <Icon name={tone === "info" ? "unknown" : tone === "warn" ? "waiting" : "lost"} />
      <div>
        {title !== undefined && <strong>{title}</strong>} {children}
      </div>
    </div>
  );
}

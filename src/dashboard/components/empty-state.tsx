/** What a view shows in place of its contents: there are none, they are not there yet, or they may not be seen. */

import type { ComponentChildren } from "preact";

interface EmptyStateProps {
  readonly title: string;
  readonly tone?: "plain" | "refused";
  readonly children?: ComponentChildren;
}

export function EmptyState({ title, tone = "plain", children }: EmptyStateProps) {
  return (
    <div class={`empty empty-${tone}`}>
      <h2>{title}</h2>
      {children !== undefined && <div class="empty-text">{children}</div>}
    </div>
  );
}

/** Rows without text, until there are some. */
export function LoadingRows({ label }: { readonly label: string }) {
  return (
    <div class="loading" role="status">
      <span class="visually-hidden">{label}</span>
      {["w1", "w2", "w3", "w4", "w5", "w6"].map((width) => (
        <span key={width} class={`loading-row ${width}`} />
      ))}
    </div>
  );
}

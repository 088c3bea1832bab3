/** A link to a view of the pages, without loading them again. */

import type { ComponentChildren } from "preact";
import { openRoute } from "../data/navigation.ts";
import type { Route } from "../model/routes.ts";
import { formatRoute } from "../model/routes.ts";

interface LinkProps {
  readonly to: Route;
  readonly class?: string;
  readonly isCurrent?: boolean;
  /** Instead of opening the view. */
  readonly onOpen?: () => void;
  readonly children: ComponentChildren;
}

export function Link({ to, class: className, isCurrent = false, onOpen, children }: LinkProps) {
  const open = (event: MouseEvent): void => {
    // with a modifier the browser opens another tab
    if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    if (onOpen === undefined) openRoute(to);
    else onOpen();
  };
  return (
    <a href={formatRoute(to)} class={className} aria-current={isCurrent ? "page" : undefined} onClick={open}>
      {children}
    </a>
  );
}

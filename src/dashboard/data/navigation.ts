/** The view in the address of the page. */

import type { Route } from "../model/routes.ts";
import { DEFAULT_QUERY, formatRoute, parseRoute } from "../model/routes.ts";
import { useStored, ValueStore } from "./value-store.ts";

const route: ValueStore<Route> = new ValueStore(readRoute());

function readRoute(): Route {
  return parseRoute(location.pathname, location.search);
}

/** What the browser keeps for each place in its history. */
interface Place {
  /** How far the page was scrolled when it was left. */
  readonly scrollPx?: number;
  /** The place before it is another one of these pages. */
  readonly hasBefore?: boolean;
}

function readPlace(): Place {
  return (history.state ?? {}) as Place;
}

/** How far the page is to be scrolled once its rows are there; null: it is where it should be. */
let dueScrollPx: number | null = null;

/** Follows the buttons of the browser. */
export function startNavigation(): void {
  // the rows are not there yet when the browser would scroll
  history.scrollRestoration = "manual";
  window.addEventListener("popstate", () => {
    dueScrollPx = readPlace().scrollPx ?? 0;
    route.set(readRoute());
  });
}

export function useRoute(): Route {
  return useStored(route);
}

/** Opens a view. */
export function openRoute(next: Route): void {
  history.replaceState({ ...readPlace(), scrollPx: scrollY }, "");
  history.pushState({ hasBefore: true } satisfies Place, "", formatRoute(next));
  dueScrollPx = null;
  route.set(next);
  scrollTo(0, 0);
}

/** The same view with other contents, such as a search: the back button leaves the view. */
export function replaceRoute(next: Route): void {
  history.replaceState(history.state, "", formatRoute(next));
  route.set(next);
}

/** Leaves a key for the place it was opened from, or for the list of keys. */
export function leaveKey(): void {
  if (readPlace().hasBefore === true) history.back();
  else openRoute({ view: "keys", query: DEFAULT_QUERY });
}

/** Scrolls to where the page was left, now that its rows are there. */
export function restoreScroll(): void {
  if (dueScrollPx === null) return;
  scrollTo(0, dueScrollPx);
  dueScrollPx = null;
}

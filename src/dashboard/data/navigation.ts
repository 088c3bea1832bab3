/** The view in the address of the page. */

import type { Route } from "../model/routes.ts";
import { formatRoute, parseRoute } from "../model/routes.ts";
import { useStored, ValueStore } from "./value-store.ts";

const route: ValueStore<Route> = new ValueStore(readRoute());

function readRoute(): Route {
  return parseRoute(location.pathname, location.search);
}

/** Follows the buttons of the browser. */
export function startNavigation(): void {
  window.addEventListener("popstate", () => route.set(readRoute()));
}

export function useRoute(): Route {
  return useStored(route);
}

/** Opens a view. */
export function openRoute(next: Route): void {
  history.pushState(null, "", formatRoute(next));
  route.set(next);
  scrollTo(0, 0);
}

/** The same view with other contents, such as a search: the back button leaves the view. */
export function replaceRoute(next: Route): void {
  history.replaceState(null, "", formatRoute(next));
  route.set(next);
}

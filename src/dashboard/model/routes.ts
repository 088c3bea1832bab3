/** The addresses of the views: from the location to a route and back. All are deep links. */

import type { SortOrder } from "../../listing/key-rows.ts";
import { SORT_ORDERS } from "../../listing/key-rows.ts";

/** What the list of keys shows. */
export interface KeysQuery {
  /** Rows that contain this text, of those that are loaded. */
  readonly search: string;
  /** Only keys that begin with this text are loaded. */
  readonly prefix: string;
  readonly sort: SortOrder;
  readonly isReversed: boolean;
}

/** A view, and what it shows. */
export type Route =
  | { readonly view: "keys"; readonly query: KeysQuery }
  | { readonly view: "key"; readonly key: string }
  | { readonly view: "holders" | "events"; readonly search: string }
  | { readonly view: "now" | "store" | "unknown" };

export type ViewName = Route["view"];

const BASE_PATH = "/ui";

export const DEFAULT_QUERY: KeysQuery = { search: "", prefix: "", sort: "waiters", isReversed: false };

/** A url resolves these segments as folders, also when they are percent-encoded: such a key goes into the query. */
const DOT_SEGMENTS: readonly string[] = [".", ".."];

/** The route of a location. */
export function parseRoute(pathname: string, search: string): Route {
  const [view = "", ...rest] = pathname.slice(BASE_PATH.length).split("/").slice(1);
  const query = new URLSearchParams(search);
  const text = query.get("q") ?? "";
  switch (view) {
    case "":
      return { view: "keys", query: parseKeysQuery(query) };
    case "k":
      return parseKeyRoute(rest, query);
    case "holders":
    case "events":
      return { view, search: text };
    case "now":
    case "store":
      return { view };
    default:
      return { view: "unknown" };
  }
}

function parseKeyRoute(segments: readonly string[], query: URLSearchParams): Route {
  const key = query.get("key") ?? decodeSegment(segments.join("/"));
  return key === null || key === "" ? { view: "unknown" } : { view: "key", key };
}

function decodeSegment(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

function parseKeysQuery(query: URLSearchParams): KeysQuery {
  const sort = SORT_ORDERS.find((order) => order === query.get("sort")) ?? DEFAULT_QUERY.sort;
  return {
    search: query.get("q") ?? "",
    prefix: query.get("prefix") ?? "",
    sort,
    isReversed: query.get("reverse") === "1",
  };
}

/** The path and query of a route. */
export function formatRoute(route: Route): string {
  switch (route.view) {
    case "keys":
      return BASE_PATH + formatQuery(toParameters(route.query));
    case "key":
      return DOT_SEGMENTS.includes(route.key)
        ? `${BASE_PATH}/k${formatQuery({ key: route.key })}`
        : `${BASE_PATH}/k/${encodeURIComponent(route.key.toWellFormed())}`;
    case "holders":
    case "events":
      return `${BASE_PATH}/${route.view}${formatQuery({ q: route.search })}`;
    default:
      return `${BASE_PATH}/${route.view}`;
  }
}

function toParameters({ search, prefix, sort, isReversed }: KeysQuery): Record<string, string> {
  return {
    q: search,
    prefix,
    sort: sort === DEFAULT_QUERY.sort ? "" : sort,
    reverse: isReversed ? "1" : "",
  };
}

/** Without what is empty. */
function formatQuery(parameters: Readonly<Record<string, string>>): string {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== ""));
  return query.size === 0 ? "" : `?${query}`;
}

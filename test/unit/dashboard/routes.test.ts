import { describe, expect, test } from "vitest";
import type { Route } from "../../../src/dashboard/model/routes.ts";
import { DEFAULT_QUERY, formatRoute, parseRoute } from "../../../src/dashboard/model/routes.ts";

/** As a browser resolves the address. */
function reopen(route: Route): Route {
  const { pathname, search } = new URL(formatRoute(route), "http://localhost");
  return parseRoute(pathname, search);
}

describe("the address of a key", () => {
  test.each([
    "invoice:4711",
    "a/b",
    "a?b#c",
    "%2F",
    "<script>",
    "مفتاح",
    "🔒",
    "\n\t\u0000",
    " ",
    ".",
    "..",
    "...",
    "+",
  ])("%j is found again", (key) => {
    expect(reopen({ view: "key", key })).toEqual({ view: "key", key });
  });

  test("a path that is not encoded properly is no view", () => {
    expect(parseRoute("/ui/k/%zz", "")).toEqual({ view: "unknown" });
    expect(parseRoute("/ui/k/", "")).toEqual({ view: "unknown" });
  });
});

describe("the address of a view", () => {
  test("keys with search, prefix and order", () => {
    const query = { search: "a&b=c", prefix: "order:", sort: "held", isReversed: true } as const;
    expect(formatRoute({ view: "keys", query })).toBe("/ui?q=a%26b%3Dc&prefix=order%3A&sort=held&reverse=1");
    expect(reopen({ view: "keys", query })).toEqual({ view: "keys", query });
  });

  test("what is as usual is not in it", () => {
    expect(formatRoute({ view: "keys", query: DEFAULT_QUERY })).toBe("/ui");
    expect(parseRoute("/ui", "")).toEqual({ view: "keys", query: DEFAULT_QUERY });
    expect(parseRoute("/ui/", "?sort=nonsense")).toEqual({ view: "keys", query: DEFAULT_QUERY });
  });

  test.each<Route>([
    { view: "holders", search: "ana" },
    { view: "events", search: "" },
    { view: "now" },
    { view: "store" },
  ])("%j", (route) => {
    expect(reopen(route)).toEqual(route);
  });

  test("any other path is unknown", () => {
    expect(parseRoute("/ui/other", "")).toEqual({ view: "unknown" });
  });
});

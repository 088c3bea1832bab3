// Faults of the dashboard: who may open it, what a viewer sees, and what it costs the store.

import type { Mutant } from "./mutants.ts";

const ROUTES = "test/integration/http/dashboard.test.ts";
const SESSIONS = "test/unit/gateway/dashboard/viewer-sessions.test.ts";
const SAMPLER = "test/unit/gateway/dashboard/store-sampler.test.ts";
const EVENTS = "test/unit/gateway/dashboard/event-history.test.ts";

export const DASHBOARD_MUTANTS: readonly Mutant[] = [
  {
    name: "a start token that opens two sessions",
    file: "src/gateway/dashboard/viewer-sessions.ts",
    find: "    this.#startTokens.delete(key);\n",
    replace: "",
    tests: SESSIONS,
  },
  {
    name: "a start token that does not expire",
    file: "src/gateway/dashboard/viewer-sessions.ts",
    find: "expiresAt !== undefined && this.#clock.now() < expiresAt",
    replace: "expiresAt !== undefined",
    tests: SESSIONS,
  },
  {
    name: "a session that outlives its credential",
    file: "src/gateway/dashboard/viewer-sessions.ts",
    find: "this.#clock.now() < expiresAt && principal.isValid",
    replace: "this.#clock.now() < expiresAt",
    tests: SESSIONS,
  },
  {
    name: "a cookie that is enough",
    file: "src/gateway/dashboard/viewer-sessions.ts",
    find: "secret !== undefined && hash(secret) === secretHash",
    replace: 'secret !== "x" || hash(secret) === secretHash',
    tests: ROUTES,
  },
  {
    name: "a change without an Origin",
    file: "src/gateway/dashboard/routes.ts",
    find: "headers.origin === undefined)",
    replace: 'headers.origin === "")',
    tests: ROUTES,
  },
  {
    name: "a dashboard without accounts that serves the API",
    file: "src/gateway/http/app.ts",
    find: "dashboard.options.hasStartTokens === true && !access.isRequired",
    replace: "dashboard.options.hasStartTokens === true && access.isRequired",
    tests: ROUTES,
  },
  {
    name: "a link in a foreign page that leads to the data of the dashboard",
    file: "src/gateway/http/origin-check.ts",
    find: "|store)?)?",
    replace: "|store|api[/]claims)?)?",
    tests: ROUTES,
  },
  {
    name: "a viewer who sees the keys of others",
    file: "src/gateway/dashboard/routes.ts",
    find: "selectVisible(listing.views, listQuery, visibleKeys(principal))",
    replace: "listing.views",
    tests: ROUTES,
  },
  {
    name: "a viewer who sees events of the keys of others",
    file: "src/gateway/dashboard/visible-events.ts",
    find: '  if (canSee("")) return wanted;\n',
    replace: "  if (key === undefined) return wanted;\n",
    tests: EVENTS,
  },
  {
    name: "a read-only dashboard that revokes",
    file: "src/gateway/dashboard/routes.ts",
    find: "    if (dashboard.options.isReadOnly === true)\n",
    replace: "    if (dashboard.options.isReadOnly === false)\n",
    tests: ROUTES,
  },
  {
    name: "a slow store that is listed all the time",
    file: "src/gateway/dashboard/store-sampler.ts",
    find: "const REST_FACTOR = 19;",
    replace: "const REST_FACTOR = 1;",
    tests: SAMPLER,
  },
  {
    name: "new searches that cost the store nothing",
    file: "src/gateway/dashboard/store-sampler.ts",
    find: "this.#nextRoundAt += costMs;",
    replace: "this.#nextRoundAt += spentMs;",
    tests: SAMPLER,
  },
  {
    name: "a search answered from a list that is not complete",
    file: "src/gateway/dashboard/store-sampler.ts",
    find: "if (listing === null || !listing.isComplete) return false;",
    replace: "if (listing === null) return false;",
    tests: SAMPLER,
  },
  {
    name: "a claim with reported events that is recorded from lists too",
    file: "src/gateway/dashboard/event-history.ts",
    find: "this.#sampled.filter(({ tag }) => !isReported(tag))",
    replace: "this.#sampled.filter(({ tag }) => !isReported(tag.slice(1)))",
    tests: EVENTS,
  },
  {
    name: "events made of lists that are not complete",
    file: "src/gateway/dashboard/event-history.ts",
    find: "this.#previous?.isComplete === true && listing?.isComplete === true",
    replace: "this.#previous !== null && listing !== null",
    tests: EVENTS,
  },
  {
    name: "a search that tells whether a hidden key exists",
    file: "src/auth/visible-page.ts",
    find: "locks.some(({ key }) => matchesQuery(key, query))",
    replace: "locks.length > 0",
    tests: ROUTES,
  },
  {
    name: "a store that was away and is listed minutes later",
    file: "src/gateway/dashboard/store-sampler.ts",
    find: "    let spentMs = 0;\n    try {\n",
    replace: "    let spentMs = 25_000;\n    try {\n",
    tests: SAMPLER,
  },
];

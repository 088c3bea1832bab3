// Faults of the gateway: places, references, accounts.

import type { Mutant } from "./mutants.ts";

const GATEWAYS = "test/integration/http/gateway.test.ts";
const PLACES = "test/unit/gateway/places.test.ts";

export const GATEWAY_MUTANTS: readonly Mutant[] = [
  {
    name: "a suspended claim granted after its connection was cut",
    file: "src/drivers/server/driver.ts",
    find: "      this.#repeatSuspensions();\n",
    replace: "",
    tests: "test/integration/server/connection-breaks.test.ts",
  },
  {
    name: "the claim after one that was passed on granted for no request",
    file: "src/gateway/place.ts",
    find: '      if (this.#state.kind === "unattended") this.#suspend(true);\n',
    replace: "",
    tests: PLACES,
  },
  {
    name: "a place withdrawn while the store is asked for a request that came in time",
    file: "src/gateway/place.ts",
    find: "else if (this.arrivingCount > 0) this.#timer.set(",
    replace: "else if (this.arrivingCount > 0 && this.#now() < this.#graceEndsAt) this.#timer.set(",
    tests: PLACES,
  },
  {
    name: "a claim that could not be detached answered as held",
    file: "src/gateway/place.ts",
    find: 'if (answer.state === "held" && engine.driver.detach === undefined) return',
    replace: 'if (answer.state === "held") return',
    tests: PLACES,
  },
  {
    name: "a place promised to a claim that may have none when the program stops",
    file: "src/gateway/place.ts",
    find: 'if (this.#activeClaim.state.status === "waiting") this.pause();',
    replace: "if (this.#activeClaim.state.status !== undefined) this.pause();",
    tests: PLACES,
  },
  {
    name: "a lock granted to a credential that was removed meanwhile",
    file: "src/gateway/places.ts",
    find: "if (!principal.isValid || !canAcquire(principal, claim)) return",
    replace: "if (!principal.isValid && !canAcquire(principal, claim)) return",
    tests: PLACES,
  },
  {
    name: "a reference with any seal accepted",
    file: "src/gateway/reference-seal.ts",
    find: "timingSafeEqual(given, this.#mac(text))",
    replace: "given.length > 0",
    tests: GATEWAYS,
  },
  {
    name: "a reference accepted from any account",
    file: "src/gateway/http/claim-routes.ts",
    find: 'if (account !== c.get("principal").name)',
    replace: "if (account === null)",
    tests: GATEWAYS,
  },
  {
    name: "a place of another gateway taken over",
    file: "src/gateway/places.ts",
    find: "if (ended === undefined && !this.#store.isOwnServer) return unknownOutcome();",
    replace: "",
    tests: GATEWAYS,
  },
  {
    name: "a place of another account in the queue used",
    file: "src/gateway/places.ts",
    find: "place === undefined || place.principal.name === principal.name ? place : null",
    replace: "place",
    tests: "test/integration/http/permissions.test.ts test/integration/http/authorization.test.ts",
  },
  {
    name: "a place kept although its account may no longer acquire the keys",
    file: "src/gateway/places.ts",
    find: "(this.#store.isOwnServer || canAcquire(account, claim))",
    replace: "(this.#store.isOwnServer || principal.name !== claim.label)",
    tests: GATEWAYS,
  },
  {
    name: "a granted lock kept for a client that has gone until its grace ends",
    file: "src/gateway/place.ts",
    find: "    else this.#passOn();\n",
    replace: "    else this.#timer.set(this.#graceEndsAt);\n",
    tests: GATEWAYS,
  },
  {
    name: "grants not told to pass over a claim for which no request waits",
    file: "src/gateway/place.ts",
    find: "    this.#suspend(true);\n",
    replace: "",
    tests: PLACES,
  },
  {
    name: "a lock kept for a client that has gone while it was granted",
    file: "src/gateway/place.ts",
    find: 'if (outcome.state === "held" && isWanted) return;',
    replace: 'if (outcome.state === "held") return;',
    tests: PLACES,
  },
  {
    name: "a reference with the rest of the lease of a claim that has waited",
    file: "src/gateway/place.ts",
    find: "sentAt > MIN_LEASE_SHARE * ttlMs",
    replace: "sentAt > 0",
    tests: PLACES,
  },
  {
    name: "a lock over HTTP that ends with the client of the gateway",
    file: "src/gateway/references.ts",
    find: "    if (driver.detach !== undefined) {\n",
    replace: "    if (driver.detach !== undefined && claims.length > 1_000) {\n",
    tests: "test/integration/http/pending-claims.test.ts",
  },
  {
    name: "a recovery that waits for the gateway of the server before",
    file: "src/server/session/session.ts",
    find: "this.isPersisted = isInProcess;",
    replace: "this.isPersisted = false;",
    tests: "test/integration/http/pending-claims.test.ts",
  },
  {
    name: "claims of an ended gateway left in the queue",
    file: "src/gateway/gateway.ts",
    find: "      await service.places.withdrawAll(CLOSE_TIMEOUT_MS);\n",
    replace: "",
    tests: GATEWAYS,
  },
  {
    name: "a list with the claims of all accounts",
    file: "src/gateway/gateway-store.ts",
    find: "return this.isOwnServer ? list(max, after) : listVisible(list, principal, query, max, after);",
    replace: "return list(max, principal.isValid ? after : undefined);",
    tests: GATEWAYS,
  },
  {
    name: "a limit of an account that counts nothing",
    file: "src/gateway/claim-register.ts",
    find: "const count = (this.#counts.get(account) ?? 0) + keys;",
    replace: "const count = keys - keys;",
    tests: GATEWAYS,
  },
];

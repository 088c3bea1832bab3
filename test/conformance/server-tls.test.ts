import { describe, test } from "vitest";
import { testDriver } from "../client/suite.ts";
import { leakCheckedTest } from "../support/leak-checked-test.ts";
import { createTlsServerStore, SERVER_SUITE_OPTIONS } from "../support/stores/server-store.ts";

testDriver({ describe, test: leakCheckedTest(test) }, "server over TLS", {
  ...SERVER_SUITE_OPTIONS,
  open: () => createTlsServerStore(),
  traits: { lease: { claim: true, sessionMs: 30_000 }, recall: "push" },
});

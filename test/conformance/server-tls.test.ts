import { describe, test } from "vitest";
import { conformance } from "../../src/conformance/suite.ts";
import { leakCheckedTest } from "../support/leak-checked-test.ts";
import { createTlsServerStore, SERVER_SUITE_OPTIONS } from "../support/stores/server-store.ts";

conformance({ describe, test: leakCheckedTest(test) }, "server over TLS", {
  ...SERVER_SUITE_OPTIONS,
  open: () => createTlsServerStore(),
  traits: { lease: { claim: true, sessionMs: 30_000 } },
});

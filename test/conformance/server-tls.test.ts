import { testDriver } from "../client/suite.ts";
import { createTlsServerStore, SERVER_SUITE_OPTIONS } from "../support/stores/server-store.ts";
import { createLibraryRunner } from "../support/stores/sql-conformance.ts";

// it differs from TCP in its sockets alone: what depends on those, and in long runs everything
testDriver(createLibraryRunner(), "server over TLS", {
  ...SERVER_SUITE_OPTIONS,
  open: () => createTlsServerStore(),
  traits: { lease: { claim: true, sessionMs: 30_000 }, recall: "push" },
});

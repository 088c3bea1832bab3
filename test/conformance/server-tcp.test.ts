import { describe, test } from "vitest";
import { testDriver } from "../client/suite.ts";
import { leakCheckedTest } from "../support/leak-checked-test.ts";
import { createServerStore, SERVER_SUITE_OPTIONS } from "../support/stores/server-store.ts";

testDriver({ describe, test: leakCheckedTest(test) }, "server over TCP", {
  ...SERVER_SUITE_OPTIONS,
  open: () => createServerStore(() => "holdfast://127.0.0.1:0"),
  openPaused: () => createServerStore(() => "holdfast://127.0.0.1:0", true),
  traits: { lease: { claim: true, sessionMs: 30_000 }, recall: "push" },
});

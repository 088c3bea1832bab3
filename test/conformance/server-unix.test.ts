import { join } from "node:path";
import { describe, test } from "vitest";
import { testDriver } from "../client/suite.ts";
import { leakCheckedTest } from "../support/leak-checked-test.ts";
import { createServerStore, SERVER_SUITE_OPTIONS } from "../support/stores/server-store.ts";

testDriver({ describe, test: leakCheckedTest(test) }, "server on a Unix socket", {
  ...SERVER_SUITE_OPTIONS,
  open: () => createServerStore((folder) => `holdfast+unix:${join(folder, "socket")}`),
  openPaused: () => createServerStore((folder) => `holdfast+unix:${join(folder, "socket")}`, true),
  traits: { lease: { claim: true, sessionMs: 30_000, endsWithConnection: true }, recall: "push" },
});

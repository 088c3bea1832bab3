import { describe, test } from "vitest";
import { conformance } from "../../src/conformance/suite.ts";
import { SERVER_OPTIONS, serverStore } from "../support/server-store.ts";
import { watched } from "../support/watched-test.ts";

conformance({ describe, test: watched(test) }, "server over TCP", {
  ...SERVER_OPTIONS,
  open: () => serverStore(() => "tcp://127.0.0.1:0"),
  openPaused: () => serverStore(() => "tcp://127.0.0.1:0", true),
  traits: { lease: { claim: true, sessionMs: 30_000 } },
});

import { describe, test } from "vitest";
import { conformance } from "../../src/conformance/suite.ts";
import { SERVER_OPTIONS, tlsServerStore } from "../support/server-store.ts";
import { watched } from "../support/watched-test.ts";

conformance({ describe, test: watched(test) }, "server over TLS", {
  ...SERVER_OPTIONS,
  open: () => tlsServerStore(),
  traits: { lease: { claim: true, sessionMs: 30_000 } },
});

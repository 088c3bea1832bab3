import { join } from "node:path";
import { describe, test } from "vitest";
import { conformance } from "../../src/conformance/suite.ts";
import { SERVER_OPTIONS, serverStore } from "../support/server-store.ts";
import { watched } from "../support/watched-test.ts";

conformance({ describe, test: watched(test) }, "server on a Unix socket", {
  ...SERVER_OPTIONS,
  open: () => serverStore((folder) => `unix:${join(folder, "socket")}`),
  openPaused: () => serverStore((folder) => `unix:${join(folder, "socket")}`, true),
  traits: { lease: { claim: true, sessionMs: 30_000, silenceKeeps: true } },
});

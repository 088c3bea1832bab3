import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "vitest";
import { conformance } from "../../src/conformance/suite.ts";
import { server } from "../../src/drivers/server/driver.ts";
import { serve, type Server } from "../../src/server/serve.ts";
import { watched } from "../support/watched-test.ts";

const long = process.env.HOLDFAST_LONG === "1";

/** A server with a folder of its own, which survives a restart. */
async function store(listen: (folder: string) => string) {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-conformance-"));
  const start = (at = listen(folder)): Promise<Server> => serve({ listen: at, state: join(folder, "state") });
  let running = await start();
  const [address] = running.addresses as [string];
  const port = Number(address.split(":").at(-1));
  return {
    driver: () => server(address.startsWith("unix:") ? { path: address.slice(5) } : { host: "127.0.0.1", port }),
    async restart() {
      await running.close();
      running = await start(address);
    },
    async close() {
      await running.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

const shared = {
  verbs: ["detach", "revoke"] as const,
  keys: long ? 100_000 : 10_000,
  random: long ? { seeds: 200, steps: 200 } : { seeds: 5 },
};

conformance({ describe, test: watched(test) }, "server on a Unix socket", {
  ...shared,
  open: () => store((folder) => `unix:${join(folder, "socket")}`),
  restart: (it) => it.restart(),
  traits: { lease: { claim: true, sessionMs: 30_000, silenceKeeps: true } },
});

conformance({ describe, test: watched(test) }, "server over TCP", {
  ...shared,
  open: () => store(() => "tcp://127.0.0.1:0"),
  restart: (it) => it.restart(),
  traits: { lease: { claim: true, sessionMs: 30_000 } },
});

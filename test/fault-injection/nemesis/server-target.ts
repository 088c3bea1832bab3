/** The Holdfast server, on a Unix socket or on TCP behind a proxy, its state on a small disk. */

import { readFileSync } from "node:fs";
import { until } from "../../../src/testing/until.ts";
import { startPlaceProxy } from "../../../src/torture/place-proxy.ts";
import { createDatabaseProcess } from "../../../src/torture/processes/database-process.ts";
import { freePort } from "../../../src/torture/processes/free-port.ts";
import { isListening } from "../../../src/torture/stores/lock-server.ts";
import { injectIntoServer } from "../../../src/torture/stores/store-process.ts";
import { PROGRAM } from "../../support/cli-sandbox.ts";
import type { ProcessHarness } from "../../support/processes/process-harness.ts";
import { mountSmallDisk } from "../../support/processes/small-disk.ts";
import type { Target } from "./faults.ts";
import { diskFault, tortureFaults, victimFaults } from "./faults.ts";

export async function serverTarget(harness: ProcessHarness, transport: "socket" | "TCP"): Promise<Target> {
  const disk = await mountSmallDisk(harness, "disk", 4);
  const port = await freePort();
  const address = transport === "TCP" ? { host: "127.0.0.1", port } : { path: harness.path("socket") };
  const listen = "path" in address ? `holdfast+unix:${address.path}` : `holdfast://127.0.0.1:${port}`;
  const log = harness.path("server.log");
  const command = [process.execPath, PROGRAM, "serve", "--listen", listen, "--state", `${disk.path}/state`];
  const server = createDatabaseProcess({
    name: "the lock server",
    command: [...disk.commandPrefix, ...command] as [string, ...string[]],
    log,
    environment: {},
    stopSignal: "SIGTERM",
    faults: /internal error/g,
    isReady: () => isListening(address),
  });
  await server.start();
  const name = `our server on ${transport}`;
  const proxies = transport === "TCP" ? [await startPlaceProxy([address])] : [];
  const proxied = proxies[0]?.addresses[0];
  const store = {
    faults: ["store-kill", "store-restart", "store-pause"] as const,
    inject: injectIntoServer(name, server),
  };
  return {
    name,
    clients:
      proxied !== undefined && "port" in proxied
        ? { url: `holdfast://127.0.0.1:${proxied.port}`, leaseFlags: ["--ttl", "2s", "--grace", "900ms"] }
        : { url: listen, leaseFlags: ["--grace", "2s"], commandPrefix: disk.commandPrefix },
    faults: (victims) => [...victimFaults(victims), ...tortureFaults(store, proxies), diskFault(() => disk)],
    waitUntilWhole: () =>
      until(() => isListening(address), { within: 30_000, what: `the server after the repair: ${readLog(log)}` }).then(
        () => undefined,
      ),
    async close() {
      await server.crash();
      await Promise.all(proxies.map((proxy) => proxy.close()));
    },
  };
}

function readLog(path: string): string {
  return readFileSync(path, "utf8").slice(-1_000);
}

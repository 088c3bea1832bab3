import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ConformanceOptions, Store } from "../../src/conformance/suite.ts";
import { server } from "../../src/drivers/server/driver.ts";
import type { Server } from "../../src/server/serve.ts";
import { serve } from "../../src/server/serve.ts";

export type ServerStore = Store & {
  /** Stops the server and starts it again at the same address, from its state file. */
  restart(): Promise<void>;
};

/** A lock server with a folder of its own. */
export async function serverStore(listen: (folder: string) => string): Promise<ServerStore> {
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

const long = process.env.HOLDFAST_LONG === "1";

/** What every server is held to. */
export const SERVER_OPTIONS: Pick<
  ConformanceOptions<ServerStore>,
  "verbs" | "keys" | "random" | "restart" | "timeScale"
> = {
  verbs: ["detach", "revoke"],
  keys: long ? 100_000 : 5_000,
  random: long ? { seeds: 200, steps: 200 } : { seeds: 3 },
  restart: (store) => store.restart(),
  timeScale: 0.5,
};

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createAccessControl, RIGHTS } from "../../../src/auth/access-control.ts";
import { createCredential } from "../../../src/auth/accounts-file.ts";
import type { ConformanceOptions, TestStore } from "../../../src/conformance/suite.ts";
import { lockServer } from "../../../src/drivers/server/driver.ts";
import { createTlsConnector } from "../../../src/net/tls.ts";
import type { ServeOptions, Server } from "../../../src/server/server.ts";
import { serve } from "../../../src/server/server.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { MAX_DURATION_MS } from "../../../src/util/duration.ts";
import { formatServerUrl } from "../../../src/util/server-url.ts";
import { createAuthority, writeCertificate } from "../certificates.ts";
import { inspectTables } from "../setup/table-inspection.ts";

export type ServerStore = TestStore & {
  /** Stops the server and starts it again at the same address, from its state file. */
  restart(): Promise<void>;
};

/** A lock server with a folder of its own. isPaused: it keeps nothing, so that its start is a recovery of 60 s. */
export async function createServerStore(listen: (folder: string) => string, isPaused = false): Promise<ServerStore> {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-conformance-"));
  const connectDriver = (address: string): Driver => {
    const port = Number(address.split(":").at(-1));
    return lockServer(
      address.startsWith("holdfast+unix:")
        ? { path: address.slice("holdfast+unix:".length) }
        : { host: "127.0.0.1", port },
    );
  };
  return createStoreIn(
    folder,
    { listen: listen(folder), ...(isPaused && { state: "none", log: ignoreLog }) },
    connectDriver,
  );
}

/** One that lets clients in by TLS, with a credential. */
export async function createTlsServerStore(): Promise<ServerStore> {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-conformance-"));
  const issuer = createAuthority();
  const { cert, key, ca } = writeCertificate(folder, issuer.issue(["127.0.0.1"]), issuer);
  const { credential, hash } = createCredential();
  const access = createAccessControl([{ name: "tests", hashes: [hash], rules: [{ prefix: "", rights: RIGHTS }] }]);
  const connectDriver = (address: string): Driver => {
    const endpoint = { host: "127.0.0.1", port: Number(address.split(":").at(-1)) };
    return lockServer({
      ...endpoint,
      credential,
      connector: createTlsConnector(endpoint, { ca }, formatServerUrl(endpoint, true)),
    });
  };
  return createStoreIn(folder, { listen: "holdfasts://127.0.0.1:0", tls: { cert, key }, access }, connectDriver);
}

async function createStoreIn(
  folder: string,
  options: Omit<ServeOptions, "state"> & { readonly state?: string },
  connectDriver: (address: string) => Driver,
): Promise<ServerStore> {
  const start = (listen = options.listen): Promise<Server> =>
    // the suite asks for the longest lease there is
    serve({ limits: { ttlMs: MAX_DURATION_MS }, state: join(folder, "state"), ...options, listen });
  let running = await start();
  const [address] = running.addresses as [string];
  return {
    driver: () => connectDriver(address),
    inspect: inspectTables,
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

function ignoreLog(): void {
  // that it keeps nothing is meant
}

const isLongRun = process.env.HOLDFAST_LONG === "1";

/** What every server is held to. */
export const SERVER_SUITE_OPTIONS: Pick<
  ConformanceOptions<ServerStore>,
  "verbs" | "keys" | "random" | "restart" | "timeScale"
> = {
  verbs: ["detach", "revoke"],
  keys: isLongRun ? 100_000 : 5_000,
  random: isLongRun ? { seeds: 200, steps: 200 } : { seeds: 3 },
  restart: (store) => store.restart(),
  timeScale: 0.5,
};

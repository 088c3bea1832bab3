/** The gateway of a lock server, in its process: its store is the server, without sockets between. */

import type { Principal } from "../auth/access-control.ts";
import { Client } from "../client/client.ts";
import { parseClientOptions } from "../client/options.ts";
import { lockServer } from "../drivers/server/driver.ts";
import type { Connector } from "../net/transport.ts";
import { GatewayStore } from "./gateway-store.ts";
import type { GatewayService } from "./service.ts";

/** What the gateway needs of its server. */
export interface GatewayServer extends Omit<GatewayService, "store" | "recoveryRemainingMs"> {
  readonly backend: { recoveryRemainingMs(): number };
}

/** @param createConnector connects to the server as this account */
export function createServerGateway(
  server: GatewayServer,
  createConnector: (principal: Principal) => Connector,
): GatewayService {
  const { clock, log, limits, runId, rejectionLog, backend } = server;
  const recoveryRemainingMs = (): number => backend.recoveryRemainingMs();
  const store = new GatewayStore({
    createClient: (principal) =>
      new Client(
        lockServer({ clock, connector: createConnector(principal) }),
        parseClientOptions({ clock, label: "http" }),
        Math.random,
      ),
    recoveryRemainingMs,
    isDraining: () => server.isDraining,
  });
  return {
    ...{ store, clock, log, limits, runId, rejectionLog, recoveryRemainingMs },
    get isDraining() {
      return server.isDraining;
    },
  };
}

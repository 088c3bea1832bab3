/** The gateway of a lock server, in its process: its store is the server, without sockets between. */

import type { AccessControl, Principal } from "../auth/access-control.ts";
import { Client } from "../client/client.ts";
import { parseClientOptions } from "../client/options.ts";
import { lockServer } from "../drivers/server/driver.ts";
import type { Connector } from "../net/transport.ts";
import type { EventLog } from "../server/events/event-log.ts";
import { NO_REGISTER } from "./claim-register.ts";
import { Dashboard } from "./dashboard/dashboard.ts";
import { eventsOfLog } from "./dashboard/event-sources.ts";
import { GatewayStore } from "./gateway-store.ts";
import { Places } from "./places.ts";
import type { GatewayService } from "./service.ts";
import { ClientPerAccount } from "./store-clients.ts";

/** What the gateway needs of its server. */
export interface GatewayServer
  extends Omit<GatewayService, "store" | "register" | "places" | "seal" | "recoveryRemainingMs"> {
  readonly backend: { recoveryRemainingMs(): number };
}

/** @param createConnector connects to the server as this account */
export function createServerGateway(
  server: GatewayServer,
  access: AccessControl,
  createConnector: (principal: Principal) => Connector,
): GatewayService {
  const { clock, log, limits, runId, rejectionLog, backend } = server;
  const recoveryRemainingMs = (): number => backend.recoveryRemainingMs();
  const store = new GatewayStore({
    access,
    clients: new ClientPerAccount(
      access,
      (principal) =>
        new Client(
          lockServer({ clock, connector: createConnector(principal) }),
          parseClientOptions({ clock, label: "http" }),
          Math.random,
        ),
    ),
    isOwnServer: true,
    recoveryRemainingMs,
    isDraining: () => server.isDraining,
  });
  return {
    ...{ store, register: NO_REGISTER, places: new Places(store, NO_REGISTER), seal: null },
    ...{ clock, log, limits, runId, rejectionLog, recoveryRemainingMs },
    get isDraining() {
      return server.isDraining;
    },
  };
}

/** The pages of the dashboard, in the process of the server: it tells all events. */
export function createServerDashboard(gateway: GatewayService, eventLog: EventLog): Dashboard {
  const { store, clock } = gateway;
  return new Dashboard({
    clock,
    storeName: "this lock server",
    list: (query, max, account) => (account === null ? store.listAll(query, max) : store.list(account, query, max)),
    events: eventsOfLog(eventLog),
    isServer: true,
    recoveryRemainingMs: () => gateway.recoveryRemainingMs(),
  });
}

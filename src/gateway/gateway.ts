/** A gateway: locks of any store over HTTP. Run by `holdfast gateway`. */

import { RejectionLog } from "../auth/failure-limiter.ts";
import { Client } from "../client/client.ts";
import { parseClientOptions } from "../client/options.ts";
import { getServerEndpoint } from "../drivers/server/address.ts";
import { PACKAGE_VERSION } from "../protocol/handshake.ts";
import { reloadFiles } from "../server/config/reload.ts";
import { EventLog } from "../server/events/event-log.ts";
import type { ConnectionCounts } from "../server/events/metrics.ts";
import { Metrics } from "../server/events/metrics.ts";
import type { HttpListener } from "../server/net/listener.ts";
import type { Readiness } from "../server/status.ts";
import type { Driver } from "../spi/driver.ts";
import type { Clock } from "../util/clock.ts";
import { systemClock } from "../util/clock.ts";
import { randomId } from "../util/ids.ts";
import { StoreRegister } from "./claim-register.ts";
import { Dashboard } from "./dashboard/dashboard.ts";
import { eventsOfLog, eventsOfServer } from "./dashboard/event-sources.ts";
import type { GatewayConfig, GatewayOptions } from "./gateway-config.ts";
import { GatewayStore } from "./gateway-store.ts";
import { openHttpServer } from "./http/http-server.ts";
import { Places } from "./places.ts";
import { ReferenceSeal } from "./reference-seal.ts";
import type { GatewayService } from "./service.ts";
import { SharedClient } from "./store-clients.ts";
import { StoreHealth } from "./store-health.ts";

export { resolveGatewayConfig } from "./gateway-config.ts";

/** How long the store may take to answer the withdrawals at the end. */
const CLOSE_TIMEOUT_MS = 5_000;

/** A running gateway. */
export interface Gateway {
  /** "http://host:port" or "https://host:port". */
  readonly address: string;
  /** Identifies this run. */
  readonly runId: string;
  /** A link that opens the pages of the dashboard once; without a start token if there are accounts. */
  createLink(): string;
  /** Reads accounts and certificates again. @throws Error naming what was not reloaded */
  reload(): void;
  /** Answers all waiting requests, withdraws their claims and ends. Held locks stay held. */
  close(): Promise<void>;
}

/**
 * Opens the store, and serves it.
 * @throws (rejects) as connect(), and a system error, naming the address, if listening fails
 */
export async function openGateway(options: GatewayOptions, config: GatewayConfig): Promise<Gateway> {
  const { driver, log } = options;
  const clock = options.clock ?? systemClock;
  const client = new Client(driver, parseClientOptions({ clock, label: "http" }), Math.random);
  await client.open();
  if (config.tls !== null) log(config.tls.summary);
  const parts = createParts(client, config, { ...options, clock });
  let listener: HttpListener;
  try {
    listener = await openHttpServer(config.http, { ...parts.http, names: options.httpNames ?? [] }, config.tls);
  } catch (error) {
    await parts.service.store.close();
    throw error;
  }
  return {
    address: listener.address,
    runId: parts.service.runId,
    createLink: () => createLink(listener.address, parts.http.dashboard, config.access.isRequired),
    reload: () => reloadFiles(options, { access: config.access, listener, log }),
    async close() {
      const { service, eventLog } = parts;
      parts.startDraining();
      listener.drain();
      // the port still answers, so that /ready can report the reason
      await service.places.withdrawAll(CLOSE_TIMEOUT_MS);
      try {
        await service.store.close();
      } finally {
        await listener.close();
        eventLog.close();
      }
    },
  };
}

interface Parts {
  readonly service: GatewayService;
  readonly eventLog: EventLog;
  readonly http: Omit<Parameters<typeof openHttpServer>[1], "names">;
  startDraining(): void;
}

interface DashboardContext extends Pick<GatewayOptions, "log"> {
  readonly clock: Clock;
  readonly storeName: string | undefined;
  readonly settings: GatewayOptions["dashboard"];
}

function createParts(
  client: Client,
  { access, limits, referenceKey }: GatewayConfig,
  { clock, log, storeName, dashboard: dashboardSettings }: GatewayOptions & { readonly clock: Clock },
): Parts {
  const runId = randomId().slice(0, 8);
  const eventLog = new EventLog({ clock });
  const metrics = new Metrics();
  const register = new StoreRegister({ clock, eventLog, limits });
  const health = new StoreHealth(client.driver, clock, log);
  let isDraining = false;
  const store = new GatewayStore({
    access,
    clients: new SharedClient(client),
    isOwnServer: false,
    health,
    recoveryRemainingMs: () => 0,
    isDraining: () => isDraining,
  });
  const service: GatewayService = {
    ...{
      store,
      register,
      places: new Places(store, register),
      clock,
      log,
      limits,
      runId,
      rejectionLog: new RejectionLog(log, clock),
    },
    seal: access.isRequired ? new ReferenceSeal(referenceKey ?? undefined) : null,
    get isDraining() {
      return isDraining;
    },
    recoveryRemainingMs: () => 0,
  };
  const dashboard = createDashboard(client.driver, store, eventLog, {
    clock,
    log,
    storeName,
    settings: dashboardSettings,
  });
  const checkReadiness = (): Readiness => {
    const reason = isDraining ? "the gateway is stopping" : health.unhealthyReason();
    return reason === null ? { ok: true } : { ok: false, reason };
  };
  const renderMetrics = (http: ConnectionCounts): string =>
    metrics.render({
      version: PACKAGE_VERSION,
      eventLog,
      connections: null,
      http,
      authFailures: access.failureCount,
      sessions: 0,
      claims: register.size,
      recoveryRemainingMs: 0,
    });
  return {
    service,
    eventLog,
    http: {
      ...{ service, access, eventLog, dashboard, checkReadiness, version: PACKAGE_VERSION },
      metrics: { recordRefusal: (code) => metrics.recordRefusal(code), render: renderMetrics },
    },
    startDraining() {
      isDraining = true;
    },
  };
}

/** In front of a lock server its events are those of the server, else what passes through this gateway. */
function createDashboard(
  driver: Driver,
  store: GatewayStore,
  eventLog: EventLog,
  { clock, log, storeName, settings }: DashboardContext,
): Dashboard {
  const isServer = getServerEndpoint(driver) !== undefined;
  const ownEvents = eventsOfLog(eventLog);
  return new Dashboard({
    ...settings,
    clock,
    storeName: storeName ?? driver.name,
    list: (query, max, account) => (account === null ? store.listAll(query, max) : store.list(account, query, max)),
    events: isServer ? eventsOfServer(driver, ownEvents, clock, log) : ownEvents,
  });
}

function createLink(address: string, { options, sessions }: Dashboard, hasAccounts: boolean): string {
  const needsToken = options.hasStartTokens === true && !hasAccounts;
  // a fragment is sent to no server, and stands in no log
  return `${address}/ui${needsToken ? `#start=${sessions.createStartToken()}` : ""}`;
}

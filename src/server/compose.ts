/** Creates the parts of a server and connects them. Opens no listening socket. */

import { PACKAGE_VERSION, PROTOCOL_VERSION } from "../protocol/handshake.ts";
import type { Clock } from "../util/clock.ts";
import { randomId } from "../util/ids.ts";
import type { ServerConfig } from "./config/config.ts";
import type { HostPort } from "./config/listen-address.ts";
import type { Logger } from "./config/logger.ts";
import type { Readiness, ServeOptions } from "./config/options.ts";
import type { ServerStatus } from "./connection/admin-handler.ts";
import { createAdminHandler } from "./connection/admin-handler.ts";
import { EventLog } from "./events/event-log.ts";
import { Metrics } from "./events/metrics.ts";
import type { HttpApp } from "./http/app.ts";
import type { HttpListener } from "./http/http-listener.ts";
import { openHttpListener } from "./http/http-listener.ts";
import { Listeners } from "./net/listeners.ts";
import type { BackendHandle } from "./open-backend.ts";
import { openBackend } from "./open-backend.ts";
import { resolveRunDirectory } from "./runs/run-files.ts";
import { LockService } from "./service.ts";

export interface ServerParts {
  readonly backendHandle: BackendHandle;
  readonly service: LockService;
  readonly listeners: Listeners;
  readonly eventLog: EventLog;
  /** The server is stopping and grants nothing any more. */
  isStopping: boolean;
  checkReadiness(): Readiness;
}

function createEventLog(clock: Clock, limits: ServerConfig["limits"]): EventLog {
  const { subscribers: maxSubscribers, subscribersPerAccount: maxSubscribersPerAccount } = limits;
  return new EventLog({ clock, maxSubscribers, maxSubscribersPerAccount });
}

/** @throws StateError if the state cannot be used; any error of the driver's open() */
export async function composeServer(
  options: ServeOptions,
  config: ServerConfig,
  clock: Clock,
  log: Logger,
): Promise<ServerParts> {
  const { access, limits, tls, http, addresses } = config;
  const eventLog = createEventLog(clock, limits);
  let httpApp: HttpApp | null = null;
  const remote = http !== null || addresses.some((address) => !("path" in address));
  const socketPath = addresses.find((address) => "path" in address)?.path ?? null;
  const runDirectory = resolveRunDirectory(options.state, socketPath);
  const metrics = new Metrics({
    eventLog,
    version: PACKAGE_VERSION,
    connections: () => service.connectionLimiter,
    http: () => httpApp?.connectionCounts() ?? null,
    authFailures: () => access.failureCount,
    sessions: () => backendHandle.sessions.byId.size,
    claims: () => backendHandle.claimCount(),
    recoveryRemainingMs: () => backendHandle.backend.recoveryRemainingMs(),
  });
  const backendHandle: BackendHandle = await openBackend(options, {
    clock,
    log,
    remote,
    limits,
    eventLog,
    runDirectory,
    onWrite: (file, ok) => metrics.recordWrite(file, ok),
  });
  const runId = randomId().slice(0, 8);
  const startedAt = clock.now();
  const onRefused = (code: string): void => metrics.recordRefusal(code);
  const { subscribersPerConnection: maxWatches, concurrentLists: maxPendingHistories } = limits;
  const handlerOptions = { eventLog, clock, maxWatches, maxPendingHistories, onRefused };
  const adminHandler = createAdminHandler({ ...handlerOptions, serverStatus: () => serverStatus() });
  const { backend, sessions } = backendHandle;
  const identity = { runId, version: PACKAGE_VERSION };
  const common = { ...identity, backend, sessions, clock, log, access, limits, adminHandler, onRefused };
  const service = new LockService({ ...common, runDirectory });
  const listeners = new Listeners(config, service, http === null ? null : () => openHttp(http));
  const parts: ServerParts = {
    backendHandle,
    service,
    listeners,
    eventLog,
    isStopping: false,
    checkReadiness: () => checkReadiness(parts),
  };

  function serverStatus(): ServerStatus {
    const readiness = parts.checkReadiness();
    const claimCount = backendHandle.claimCount();
    return {
      version: PACKAGE_VERSION,
      protocol: PROTOCOL_VERSION,
      start: runId,
      upMs: Math.round(clock.now() - startedAt),
      wallMs: Math.round(clock.wall()),
      reclaimMs: Math.ceil(backend.recoveryRemainingMs()),
      why: readiness.ok ? "" : readiness.reason,
      store: options.driver?.name ?? "table",
      load: {
        connections: service.connectionLimiter.open,
        sessions: sessions.byId.size,
        held: eventLog.heldCount,
        waiting: Math.max(claimCount - eventLog.heldCount, 0),
      },
    };
  }

  async function openHttp(address: HostPort): Promise<HttpListener> {
    const { createHttpApp } = await import("./http/app.ts");
    let certificateNames = tls?.hostNames ?? [];
    const app = createHttpApp({
      service,
      access,
      eventLog,
      metrics,
      checkReadiness: () => parts.checkReadiness(),
      version: PACKAGE_VERSION,
      host: address.host,
      get names() {
        return [...(options.httpNames ?? []), ...certificateNames];
      },
    });
    httpApp = app;
    const listener = await openHttpListener(address, app, tls);
    return {
      ...listener,
      replaceCertificate(tlsConfig) {
        certificateNames = tlsConfig.hostNames;
        listener.replaceCertificate(tlsConfig);
      },
    };
  }
  return parts;
}

function checkReadiness({ isStopping, backendHandle }: ServerParts): Readiness {
  if (isStopping) return { ok: false, reason: "the server is stopping" };
  const unhealthyReason = backendHandle.unhealthyReason();
  if (unhealthyReason !== null) return { ok: false, reason: unhealthyReason };
  const recoveryRemainingMs = backendHandle.backend.recoveryRemainingMs();
  if (recoveryRemainingMs === 0) return { ok: true };
  const remainingSeconds = Math.ceil(recoveryRemainingMs / 1_000);
  return {
    ok: false,
    reason: `recovering after a restart; new locks will be granted in at most ${remainingSeconds} s`,
  };
}

/**
 * Creates the parts of a server and connects them. It opens no socket and no file: serve(), the tests and the simulator
 * pass in the storage, and connect transports to the service.
 */

import type { AccessControl } from "../auth/access-control.ts";
import type { ProcessProbe } from "../os/process-info.ts";
import { PACKAGE_VERSION } from "../protocol/handshake.ts";
import type { Clock } from "../util/clock.ts";
import { createAdminHandler } from "./connection/admin-handler.ts";
import type { Connection } from "./connection/connection.ts";
import { ConnectionLimiter } from "./connection/connection-limiter.ts";
import { EventLog } from "./events/event-log.ts";
import type { ConnectionCounts } from "./events/metrics.ts";
import { Metrics } from "./events/metrics.ts";
import type { ServerLimits } from "./limits.ts";
import { openLocalBackend } from "./local/startup.ts";
import type { Logger } from "./logger.ts";
import type { CommandRuns } from "./runs/command-run.ts";
import { LockService } from "./service.ts";
import type { Backend } from "./session/backend.ts";
import type { SessionRegistry } from "./session/session-registry.ts";
import { StatusReader } from "./status.ts";
import type { Storage } from "./storage/storage.ts";

export interface ServerDependencies {
  readonly clock: Clock;
  readonly log: Logger;
  /** Identifies this run of the server. */
  readonly runId: string;
  /** null: nothing is saved, and every start begins with a recovery. The server closes it, but not if composeServer() fails. */
  readonly storage: Storage | null;
  /** The operator confirms that no lock of an earlier run can be held. */
  readonly firstStart: boolean;
  /** Runs of `holdfast run` that survive their wrappers and this server. */
  readonly commandRuns: CommandRuns;
  readonly access: AccessControl;
  readonly limits: ServerLimits;
  /** Clients may connect by something other than a Unix socket. */
  readonly remote: boolean;
  /** How long a session survives without contact. */
  readonly sessionMs: number;
  readonly probe: ProcessProbe;
  /** Where runs of `holdfast run` on a Unix socket record their claims; null: nowhere. */
  readonly runDirectory: string | null;
}

export interface ServerParts {
  readonly backend: Backend;
  readonly sessions: SessionRegistry;
  readonly service: LockService;
  readonly status: StatusReader;
  readonly eventLog: EventLog;
  readonly metrics: {
    recordRefusal(code: string): void;
    /** http: the connections over HTTP; null: HTTP is not served. */
    render(http: ConnectionCounts | null): string;
  };
  /**
   * Saves the state and closes its files. To be called after the clients were informed.
   * @throws StateError if the state could not be saved; all resources are released even so
   */
  closeBackend(): Promise<void>;
}

/** @throws StateError if the state cannot be used */
export async function composeServer(dependencies: ServerDependencies): Promise<ServerParts> {
  const { clock, log, runId, access, limits, remote, sessionMs, probe, runDirectory } = dependencies;
  const { storage, firstStart, commandRuns } = dependencies;
  const eventLog = new EventLog({ clock });
  const metrics = new Metrics();
  const onRefused = (code: string): void => metrics.recordRefusal(code);
  const onWrite = (file: "journal" | "state", isOk: boolean): void => metrics.recordWrite(file, isOk);
  const { backend, sessions, close } = await openLocalBackend({
    ...{ clock, log, limits, eventLog, sessionMs, probe },
    ...{ storage, firstStart, commandRuns, remote, onWrite },
  });
  const connectionLimiter = new ConnectionLimiter<Connection>(limits);
  const status = new StatusReader({
    clock,
    runId,
    backend,
    sessions,
    connections: connectionLimiter,
    eventLog,
  });
  const serverStatus = (): ReturnType<StatusReader["read"]> => status.read();
  const adminHandler = createAdminHandler({ eventLog, clock, onRefused, serverStatus });
  const service = new LockService({
    runId,
    clock,
    log,
    limits,
    access,
    backend,
    sessions,
    connectionLimiter,
    adminHandler,
    onRefused,
    runDirectory,
  });
  const renderMetrics = (http: ConnectionCounts | null): string =>
    metrics.render({
      version: PACKAGE_VERSION,
      eventLog,
      connections: connectionLimiter,
      http,
      authFailures: access.failureCount,
      sessions: sessions.clients().length,
      claims: backend.claimCount,
      recoveryRemainingMs: backend.recoveryRemainingMs(),
    });
  return {
    backend,
    sessions,
    service,
    status,
    eventLog,
    metrics: { recordRefusal: onRefused, render: renderMetrics },
    closeBackend: close,
  };
}

/** What a server reports about itself: whether it can grant locks, and the figures of the `info` frame. */

import { PACKAGE_VERSION, PROTOCOL_VERSION } from "../protocol/handshake.ts";
import type { Clock } from "../util/clock.ts";
import type { ServerStatus } from "./connection/admin-handler.ts";
import type { Backend } from "./session/backend.ts";

/** Whether a server can grant a lock now. */
export type Readiness = { readonly ok: true } | { readonly ok: false; readonly reason: string };

export interface StatusReaderOptions {
  readonly clock: Clock;
  readonly runId: string;
  readonly backend: Pick<Backend, "claimCount" | "recoveryRemainingMs" | "unhealthyReason">;
  readonly sessions: { clients(): readonly unknown[] };
  readonly connections: { readonly open: number };
  readonly eventLog: { readonly heldCount: number };
}

export class StatusReader {
  readonly #options: StatusReaderOptions;
  readonly #startedAt: number;
  #isStopping = false;

  constructor(options: StatusReaderOptions) {
    this.#options = options;
    this.#startedAt = options.clock.now();
  }

  /** The server is stopping and grants nothing any more. */
  markStopping(): void {
    this.#isStopping = true;
  }

  readiness(): Readiness {
    if (this.#isStopping) return { ok: false, reason: "the server is stopping" };
    const { backend } = this.#options;
    const unhealthyReason = backend.unhealthyReason();
    if (unhealthyReason !== null) return { ok: false, reason: unhealthyReason };
    const recoveryRemainingMs = backend.recoveryRemainingMs();
    if (recoveryRemainingMs === 0) return { ok: true };
    const remainingSeconds = Math.ceil(recoveryRemainingMs / 1_000);
    return {
      ok: false,
      reason: `recovering after a restart; new locks will be granted in at most ${remainingSeconds} s`,
    };
  }

  read(): ServerStatus {
    const { clock, runId, backend, sessions, connections, eventLog } = this.#options;
    const readiness = this.readiness();
    return {
      version: PACKAGE_VERSION,
      protocol: PROTOCOL_VERSION,
      runId,
      upMs: Math.round(clock.now() - this.#startedAt),
      wallMs: Math.round(clock.wall()),
      recoveryRemainingMs: Math.ceil(backend.recoveryRemainingMs()),
      reason: readiness.ok ? "" : readiness.reason,
      load: {
        connections: connections.open,
        sessions: sessions.clients().length,
        held: eventLog.heldCount,
        waiting: Math.max(backend.claimCount - eventLog.heldCount, 0),
      },
    };
  }
}

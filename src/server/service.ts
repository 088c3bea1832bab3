/**
 * The transport-independent part of a server: connections, sessions, the backend and the server's one timer. It opens
 * no sockets, so a simulator can pass in transports of its own.
 */

import type { AccessControl, Principal } from "../auth/access-control.ts";
import { AUTH_FAILED } from "../auth/access-control.ts";
import { RejectionLog } from "../auth/failure-limiter.ts";
import type { ClientHello, LastSeenState } from "../protocol/handshake.ts";
import {
  encodeServerHello,
  PACKAGE_VERSION,
  PROTOCOL_LIMITS,
  PROTOCOL_VERSION,
  ProtocolError,
} from "../protocol/handshake.ts";
import type { Clock, Timer } from "../util/clock.ts";
import { DeadlineHeap } from "../util/deadline-heap.ts";
import type { AdminHandler } from "./connection/admin-handler.ts";
import type { ConnectionService, LineTransport } from "./connection/connection.ts";
import { Connection } from "./connection/connection.ts";
import type { ConnectionLimiter, Peer } from "./connection/connection-limiter.ts";
import type { ServerLimits } from "./limits.ts";
import type { Logger } from "./logger.ts";
import { authorizeCalls } from "./session/authorized-calls.ts";
import type { Backend, BackendControl, ClientCalls } from "./session/backend.ts";
import type { Session } from "./session/session.ts";
import type { SessionRegistry } from "./session/session-registry.ts";
import { RoundRobinScheduler } from "./time-slicer.ts";

/** How long a connection may take for its handshake: a client that is alive needs two round trips, with TLS three. */
export const HELLO_TIMEOUT_MS = 5_000;

export interface LockServiceOptions {
  readonly backend: Backend;
  readonly sessions: SessionRegistry;
  readonly clock: Clock;
  /** Identifies this run of the server. */
  readonly runId: string;
  readonly log: Logger;
  /** Which client may do what. */
  readonly access: AccessControl;
  readonly limits: ServerLimits;
  readonly connectionLimiter: ConnectionLimiter<Connection>;
  /** Answers the admin frames. */
  readonly adminHandler: AdminHandler;
  /** Called with the error code of each refused call and connection. */
  readonly onRefused: (code: string) => void;
  /** Directory in which runs of `holdfast run` on a Unix socket record their claims; null: none. */
  readonly runDirectory: string | null;
}

export class LockService implements ConnectionService {
  readonly runId: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly limits: ServerLimits;
  readonly adminHandler: AdminHandler;
  readonly onRefused: (code: string) => void;
  readonly connectionLimiter: ConnectionLimiter<Connection>;
  readonly scheduler: RoundRobinScheduler;
  /** Records failed authentication attempts, those over HTTP, too. */
  readonly rejectionLog: RejectionLog;
  readonly backend: BackendControl;
  /** The calls of clients, checked against the rights of each session. */
  readonly calls: ClientCalls;
  readonly #sessions: SessionRegistry;
  readonly #access: AccessControl;
  readonly #accessListener: Disposable;
  readonly #runDirectory: string | null;
  readonly #connections = new Set<Connection>();
  /** Connections with unwritten output. */
  #pendingFlush: Connection[] = [];
  #lastActive: Connection | null = null;
  /** Connections without a completed handshake, by the time at which they are closed. */
  readonly #unauthenticated = new DeadlineHeap<Connection>();
  readonly #timer: Timer;
  #timerDueAt = Number.POSITIVE_INFINITY;
  #isDraining = false;

  constructor(options: LockServiceOptions) {
    this.runId = options.runId;
    this.clock = options.clock;
    this.log = options.log;
    this.limits = options.limits;
    this.adminHandler = options.adminHandler;
    this.onRefused = options.onRefused;
    this.connectionLimiter = options.connectionLimiter;
    this.scheduler = new RoundRobinScheduler(options.clock);
    this.rejectionLog = new RejectionLog(options.log, options.clock);
    this.#sessions = options.sessions;
    this.#access = options.access;
    this.backend = options.backend;
    this.calls = authorizeCalls(options.backend, this.#access);
    this.#runDirectory = options.runDirectory;
    this.#timer = options.clock.timer(() => this.#onTimer());
    this.#accessListener = this.#access.onChange(() => this.#revalidatePrincipals());
    this.backend.onChange(() => {
      if (!this.#isDraining) this.endBatch();
    });
    this.endBatch();
  }

  /**
   * Registers a new connection. The caller passes it the received lines and reports the end of the transport. If a
   * limit is reached, an unauthenticated connection is evicted to make room; if there is none, the new connection is
   * closed at once.
   */
  accept(transport: LineTransport, peer: Peer): Connection {
    const connection = new Connection(this, transport, peer);
    for (
      let refusal = this.connectionLimiter.check(peer);
      refusal !== null;
      refusal = this.connectionLimiter.check(peer)
    ) {
      this.connectionLimiter.rejected++;
      if (refusal.evictable !== null && !this.#isDraining) refusal.evictable.fail(refusal.error);
      else {
        connection.reject(refusal.error);
        return connection;
      }
    }
    this.connectionLimiter.add(peer, connection);
    this.#connections.add(connection);
    this.#unauthenticated.set(connection, this.clock.now() + HELLO_TIMEOUT_MS);
    this.#scheduleTimer();
    return connection;
  }

  /** Registers a connection of a client in this process. Limits and the handshake's time are for others. */
  acceptInProcess(transport: LineTransport, principal: Principal): Connection {
    const connection = new Connection(this, transport, { isLocal: true, address: "", principal });
    this.#connections.add(connection);
    return connection;
  }

  get lastActive(): Connection | null {
    return this.#lastActive;
  }

  beginBatch(connection: Connection): void {
    this.#lastActive = connection;
    this.backend.beginBatch();
  }

  requestFlush(connection: Connection): void {
    this.#pendingFlush.push(connection);
  }

  /** Called after every batch of calls, and after every change outside one. */
  endBatch(): void {
    // 1 grants of this batch are pushed, and the token ceiling is raised if admitted claims wait for it
    this.backend.endBatch();
    // 2 all output is written
    this.#flushConnections();
    // 3 the timer fires in time for what the batch has changed
    this.#scheduleTimer();
  }

  #flushConnections(): void {
    if (this.#pendingFlush.length === 0) return;
    const connections = this.#pendingFlush;
    this.#pendingFlush = [];
    // A new holder is woken before the client that released: waking the latter first might cost us the CPU core.
    for (const connection of connections) if (connection !== this.#lastActive) connection.flush();
    this.#lastActive?.flush();
  }

  /** True once the server reads no more input. The backend must not change any more. */
  get isDraining(): boolean {
    return this.#isDraining;
  }

  /** Announces the shutdown to every client and stops reading input. */
  drain(): void {
    this.#isDraining = true;
    this.#timer.stop();
    this.scheduler.stop();
    this.#accessListener[Symbol.dispose]();
    for (const connection of this.#connections) {
      // locks that the gateway has not detached: no response has named them, and none will
      if (connection.isInProcess && connection.session !== null) this.backend.endClaims(connection.session, "held");
      connection.drain();
    }
    this.#connections.clear();
  }

  /** @throws ProtocolError AUTH or LIMIT if the credential is not valid */
  openSession(hello: ClientHello, connection: Connection): Session {
    const { session, replaced } = this.#authenticate(hello, connection);
    this.#markHandshakeDone(connection);
    if (this.#hasSeenLaterState(hello.seen)) this.backend.reportOutdatedState();
    replaced?.fail(new ProtocolError("REPLACED", "a newer connection of this session has replaced this one"));
    return session;
  }

  #authenticate(hello: ClientHello, connection: Connection): ReturnType<SessionRegistry["open"]> {
    const { address, principal } = connection.peer;
    try {
      if (principal !== undefined) return this.#openInProcess(hello, connection, principal);
      return this.#sessions.open(hello, connection, this.#access.authenticate(hello.credential ?? null, address));
    } catch (error) {
      if (error instanceof ProtocolError) this.rejectionLog.record(error, address);
      throw error;
    }
  }

  #openInProcess(
    hello: ClientHello,
    connection: Connection,
    principal: Principal,
  ): ReturnType<SessionRegistry["open"]> {
    if (!principal.isValid) throw new ProtocolError("AUTH", AUTH_FAILED);
    return this.#sessions.open(hello, connection, principal);
  }

  /** Needs no credential: the session's id is a secret, and a client that knows it may keep the session alive. */
  attachKeepSession(hello: ClientHello, connection: Connection): Session {
    if (!connection.isLocal) throw new ProtocolError("UNSUPPORTED", "a keep-session connection needs a Unix socket");
    const session = this.#sessions.attachKeepSession(hello.session, connection);
    if (session === null) throw new ProtocolError("PROTOCOL", "a keep-session connection needs a connected session");
    this.#markHandshakeDone(connection);
    return session;
  }

  encodeHello(isLocal: boolean): string {
    const { identity } = this.backend;
    const { lineBytes, ttlMs } = this.limits;
    return encodeServerHello({
      protocol: PROTOCOL_VERSION,
      version: PACKAGE_VERSION,
      runId: this.runId,
      sessionMs: this.#sessions.sessionMs,
      endsWithConnection: isLocal,
      traits: this.backend.traits(isLocal),
      recoveryRemainingMs: Math.ceil(this.backend.recoveryRemainingMs()),
      ...(identity && { state: { id: identity.id, generation: identity.generation } }),
      limits: { ...PROTOCOL_LIMITS, lineBytes, ttlMs },
      ...(isLocal && this.#runDirectory !== null && { runDirectory: this.#runDirectory }),
    });
  }

  /** A connection has closed. isClosedByServer: the server closed it, so its client may be alive. */
  connectionClosed(connection: Connection, session: Session | null, isClosedByServer: boolean): void {
    if (!this.#connections.delete(connection)) return;
    if (this.#lastActive === connection) this.#lastActive = null;
    if (!connection.isInProcess) this.connectionLimiter.remove(connection.peer, connection);
    this.#unauthenticated.remove(connection);
    if (session === null || this.#isDraining) return;
    this.adminHandler.connectionClosed(connection);
    this.#sessions.connectionLost(session, connection, isClosedByServer);
  }

  /**
   * True if the client has seen a later state than ours, or a different one at our address: the state directory was
   * emptied or restored from an older copy.
   */
  #hasSeenLaterState(lastSeen: LastSeenState | null | undefined): boolean {
    const state = this.backend.identity;
    if (state === null || !lastSeen || lastSeen.runId === this.runId) return false;
    return lastSeen.id !== state.id || lastSeen.generation >= state.generation;
  }

  #markHandshakeDone(connection: Connection): void {
    this.#unauthenticated.remove(connection);
    if (!connection.isInProcess) this.connectionLimiter.markAuthenticated(connection.peer, connection);
  }

  /**
   * The accounts have changed: disconnects the clients whose credential was removed, and applies the rules to the
   * claims of the others, over HTTP, too.
   */
  #revalidatePrincipals(): void {
    for (const connection of [...this.#connections]) {
      if (connection.session === null || connection.session.principal.isValid) continue;
      const error = new ProtocolError("AUTH", AUTH_FAILED);
      // claims that the gateway has not detached: no response has named them
      if (!connection.isInProcess) connection.disconnect(error);
      else connection.fail(error);
    }
    this.backend.revalidateClaims();
    this.endBatch();
  }

  #onTimer(): void {
    this.#timerDueAt = Number.POSITIVE_INFINITY;
    if (this.#isDraining) return;
    const now = this.clock.now();
    for (
      let connection = this.#unauthenticated.takeDue(now);
      connection !== null;
      connection = this.#unauthenticated.takeDue(now)
    ) {
      connection.fail(new ProtocolError("PROTOCOL", "no hello received in time"));
    }
    this.#sessions.advance(now);
    this.backend.advance(now);
    this.endBatch();
  }

  /** The timer is only ever moved forward: a spurious wake-up is cheaper than re-arming it for every claim. */
  #scheduleTimer(): void {
    if (this.#isDraining) return;
    const dueAt = Math.min(
      this.backend.nextDueAt(),
      this.#sessions.nextDueAt() ?? Number.POSITIVE_INFINITY,
      this.#unauthenticated.nextDueAt() ?? Number.POSITIVE_INFINITY,
    );
    if (dueAt >= this.#timerDueAt) return;
    this.#timerDueAt = dueAt;
    this.#timer.set(dueAt);
  }
}

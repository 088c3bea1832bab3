/**
 * One client, across its connections. A claim belongs to the session that last placed it.
 *
 *   here   the client is connected
 *   away   it is not. On a Unix socket the client counts as dead and its claims are released at once, unless one of its
 *          keep-session connections is open, a run of it lives (command-run.ts), the server restarted or closed the
 *          connection, or the client has not reclaimed its claims from this run of the server yet. Over TCP a broken
 *          connection looks like a dead client: held claims last as long as their leases; grants pass over waiting
 *          claims, which are dropped after a grace period.
 *   ended  all its claims have ended
 *
 * A claim with ttl "session" ends when a session that is not local has been silent for sessionMs, here or away.
 */

import type { ClaimRecord } from "../../lock-table/claim-record.ts";
import type { ClientHello } from "../../protocol/handshake.ts";
import { ProtocolError } from "../../protocol/handshake.ts";
import type { Answer, ClaimId } from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";
import { DeadlineHeap } from "../../util/deadline-heap.ts";
import { LinkedList } from "../../util/linked-list.ts";
import type { Principal } from "../auth/access-control.ts";
import { ANONYMOUS, AUTH_FAILED, ownsClaim } from "../auth/access-control.ts";
import type { Backend } from "../backend.ts";
import type { Connection } from "../connection/connection.ts";
import type { CommandRun, CommandRuns } from "../runs/command-run.ts";
import { NO_COMMAND_RUNS } from "../runs/command-run.ts";
import { detachForRemainder, renewLeases } from "../runs/lease-renewal.ts";

/** How long waiting claims survive the end of their connection. */
const WAITER_GRACE_MS = 5_000;
/** How long a client whose process is alive may take to reconnect after a restart of the server. */
const RETURN_TIMEOUT_MS = 60_000;
/** How often to check the processes of clients that have not reconnected. */
const PROBE_INTERVAL_MS = 1_000;

/** The state of a process. stopped: by a signal, as with Ctrl-Z; unknown: the system does not tell. */
export type ProcessState = "running" | "stopped" | "gone" | "unknown";
/** Looks up the process with this id and start time (field 22 of /proc/PID/stat). */
export type ProcessProbe = (pid: number, pidStart: string) => ProcessState;

/** Receives the notifications of a session's claims: its connection, or a request over HTTP. */
export interface NotificationSink {
  pushAnswer(id: ClaimId, answer: Answer): void;
  pushRecheck(id: ClaimId): void;
  /** Closes it with this error. */
  fail(error: unknown): void;
}

export class Session {
  readonly id: string;
  /** Connected by a Unix socket of this machine. */
  readonly isLocal: boolean;
  readonly label: string;
  readonly pid: number | null;
  readonly pidStart: string | null;
  /** The principal of the last handshake. */
  principal: Principal = ANONYMOUS;
  sink: NotificationSink | null = null;
  readonly keepSessionConnections: Set<Connection> = new Set();
  /** Its claims in the lock table. */
  readonly records: LinkedList<ClaimRecord> = new LinkedList();
  lastHeardAt: number;
  disconnectedAt: number | null = null;
  /** Restored at the start: it is disconnected because the server was, not by its client. */
  isRestored = false;
  /**
   * Reconnected, but its claims are not reclaimed yet: until then the end of its connection does not count as its
   * death.
   */
  returning = false;
  /** Set while the client is away and a run of it keeps its claims. */
  commandRun: CommandRun | null = null;
  /** Its waiting claims were dropped while it was away. */
  hasDroppedWaiters = false;
  /** The server closed its last connection, so the client may be alive. */
  isClosedByServer = false;
  isEnded = false;
  /** It is in the file of sessions that may be holders. */
  isPersisted = false;
  // for the deadline heap
  dueAt = 0;
  heapIndex = -1;

  constructor(hello: Pick<ClientHello, "session" | "label" | "pid" | "pidStart">, isLocal: boolean, now: number) {
    this.id = hello.session;
    this.isLocal = isLocal;
    this.label = hello.label;
    this.pid = hello.pid;
    this.pidStart = hello.pidStart;
    this.lastHeardAt = now;
  }
}

/** Makes the session the owner of a claim in the table; a detached claim has no owner. */
export function assignOwner(record: ClaimRecord, session: Session): void {
  if (record.isDetached) return;
  record.owner = session;
  if (record.ownerList === session.records) return;
  clearOwner(record);
  record.notifyOnRemoval = true;
  record.ownerList = session.records;
  record.ownerList.push(record);
}

/** Removes a claim from the list of its session. */
export function clearOwner(record: ClaimRecord): void {
  record.ownerList?.remove(record);
  record.ownerList = null;
}

/** All sessions of a server by id, with the deadlines of those that are away. */
export class SessionRegistry {
  readonly byId: Map<string, Session> = new Map();
  readonly #deadlines = new DeadlineHeap<Session>();
  readonly #backend: Backend;
  readonly #clock: Clock;
  readonly #probe: ProcessProbe;
  readonly #commandRuns: CommandRuns;
  /** Whether the remainders of finished runs were detached. */
  readonly #detachments = new WeakMap<CommandRun, "pending" | "done">();
  readonly sessionMs: number;
  /** Called when a persisted session has no claims any more. */
  onForgotten: (session: Session) => void = () => undefined;
  /** Called when a restored session turns out to have a run that the start did not find. */
  onRunFound: (session: Session, run: CommandRun) => void = () => undefined;

  constructor(
    backend: Backend,
    clock: Clock,
    probe: ProcessProbe,
    sessionMs: number,
    commandRuns: CommandRuns = NO_COMMAND_RUNS,
  ) {
    this.#backend = backend;
    this.#clock = clock;
    this.#probe = probe;
    this.#commandRuns = commandRuns;
    this.sessionMs = sessionMs;
  }

  /**
   * Completes a handshake. Returns the session and the connection that it replaces, if any.
   * @throws ProtocolError "AUTH" if the session belongs to another account
   */
  open(
    hello: ClientHello,
    connection: Connection,
    principal: Principal,
  ): { readonly session: Session; readonly replaced: NotificationSink | null } {
    const now = this.#clock.now();
    let session = this.byId.get(hello.session);
    if (session === undefined) {
      session = new Session(this.#verifyPid(hello), connection.isLocal, now);
      this.byId.set(session.id, session);
    } else if (!ownsClaim(session.principal.name, principal)) {
      throw new ProtocolError("AUTH", AUTH_FAILED);
    }
    const replaced = session.sink;
    session.principal = principal;
    session.sink = connection;
    session.lastHeardAt = now;
    session.returning ||= session.isRestored && session.isLocal;
    session.isRestored = false;
    session.commandRun = null;
    session.isClosedByServer = false;
    if (session.disconnectedAt !== null) this.#markConnected(session);
    if (!session.isLocal) this.#deadlines.set(session, now + this.sessionMs);
    return { session, replaced };
  }

  /** Adds a connection that keeps a session alive. Null if the session does not exist. */
  attachKeepSession(id: string, connection: Connection): Session | null {
    const session = this.byId.get(id) ?? null;
    session?.keepSessionConnections.add(connection);
    return session;
  }

  /** A connection of the session has ended. isClosedByServer: the client may be alive and still rely on its locks. */
  connectionLost(session: Session, connection: Connection, isClosedByServer = false): void {
    session.keepSessionConnections.delete(connection);
    if (session.sink === connection) {
      session.sink = null;
      session.isClosedByServer = isClosedByServer;
    }
    if (session.sink !== null || session.isEnded) return;
    if (session.commandRun !== null) this.#deadlines.set(session, this.#clock.now());
    // the end of a keep-session connection does not mean that a client which has not reconnected yet is dead: its
    // process is checked
    if (session.isRestored || session.commandRun !== null) return;
    session.commandRun = session.isLocal ? this.#commandRuns.find(session.id) : null;
    if (session.commandRun !== null) {
      // its file may be newer than the start: a client that has not reclaimed yet has nothing in the table
      if (session.returning) this.onRunFound(session, session.commandRun);
      // the run keeps held claims, but no client is left to receive a grant
      this.#backend.endClaims(session, "waiting");
      return this.#markDisconnected(session, this.#clock.now());
    }
    // the client may have given up waiting for our handshake, as after a start with thousands of clients: its process
    // is checked
    if (session.returning) session.isRestored = true;
    else if (session.isLocal && !session.isClosedByServer) {
      // a keep-session connection keeps held claims, but no client is left to receive a grant
      if (session.keepSessionConnections.size > 0) this.#backend.endClaims(session, "waiting");
      else this.#endSession(session);
      return;
    }
    if (session.disconnectedAt !== null) return;
    this.#markDisconnected(session, this.#clock.now());
  }

  /** Adds a session from before this start of the server, whose client has not reconnected yet. */
  restore(session: Session, commandRun: CommandRun | null = null): void {
    session.isRestored = true;
    session.commandRun = commandRun;
    this.byId.set(session.id, session);
    this.#markDisconnected(session, this.#clock.now());
  }

  nextDueAt(): number | null {
    return this.#deadlines.nextDueAt();
  }

  advance(now: number): void {
    for (let session = this.#deadlines.takeDue(now); session !== null; session = this.#deadlines.takeDue(now)) {
      const nextCheckAt = this.#nextCheckAt(session, now);
      if (nextCheckAt !== null) this.#deadlines.set(session, nextCheckAt);
    }
  }

  /** When to check the session again; null: never. */
  #nextCheckAt(session: Session, now: number): number | null {
    if (session.commandRun !== null) return this.#checkCommandRun(session, session.commandRun, now);
    return session.isRestored && session.isLocal
      ? this.#probeProcess(session, now)
      : this.#checkDeadlines(session, now);
  }

  #markDisconnected(session: Session, now: number): void {
    session.disconnectedAt = now;
    session.hasDroppedWaiters = false;
    this.#backend.suspend(session);
    this.#deadlines.set(
      session,
      (session.isRestored && session.isLocal) || session.commandRun !== null ? now : now + WAITER_GRACE_MS,
    );
  }

  #markConnected(session: Session): void {
    session.disconnectedAt = null;
    this.#deadlines.remove(session);
    this.#backend.resume(session);
  }

  /**
   * Ends claims whose deadline has passed while the client was silent or away. Returns when to check again; null:
   * never.
   */
  #checkDeadlines(session: Session, now: number): number | null {
    const silenceEndsAt = session.lastHeardAt + this.sessionMs;
    if (now >= silenceEndsAt) this.#backend.endClaims(session, "session");
    if (session.disconnectedAt === null) return now >= silenceEndsAt ? now + this.sessionMs : silenceEndsAt;
    const dropWaitersAt = session.disconnectedAt + (session.isRestored ? RETURN_TIMEOUT_MS : WAITER_GRACE_MS);
    if (now >= dropWaitersAt && !session.hasDroppedWaiters) {
      session.hasDroppedWaiters = true;
      this.#backend.endClaims(session, "waiting");
    }
    if (now < dropWaitersAt) return now < silenceEndsAt ? Math.min(dropWaitersAt, silenceEndsAt) : dropWaitersAt;
    if (now < silenceEndsAt) return silenceEndsAt;
    // held claims have leases of their own; the session is kept as long as it has any
    if (this.#backend.hasClaims(session)) return now + this.sessionMs;
    this.#forget(session);
    return null;
  }

  /** Checks whether the process of a local client from before our start has ended. */
  #probeProcess(session: Session, now: number): number | null {
    const state =
      session.pid === null || session.pidStart === null ? "unknown" : this.#probe(session.pid, session.pidStart);
    // a child process that works under the lock keeps the session alive by its keep-session connection
    if (session.keepSessionConnections.size > 0) return now + PROBE_INTERVAL_MS;
    if (state === "gone") {
      // its run may have begun while no server was running
      session.commandRun = this.#commandRuns.find(session.id);
      if (session.commandRun !== null) {
        this.onRunFound(session, session.commandRun);
        return this.#checkCommandRun(session, session.commandRun, now);
      }
      this.#endSession(session);
      return null;
    }
    if (now < (session.disconnectedAt as number) + RETURN_TIMEOUT_MS || state === "stopped")
      return now + PROBE_INTERVAL_MS;
    return this.#expireClaims(session, now);
  }

  /**
   * The client is too busy to reconnect, or has closed its lock client. It may still rely on claims with a lease of
   * their own.
   */
  #expireClaims(session: Session, now: number): number | null {
    this.#backend.endClaims(session, "waiting");
    this.#backend.endClaims(session, "session");
    if (this.#backend.hasClaims(session)) return now + PROBE_INTERVAL_MS;
    this.#forget(session);
    return null;
  }

  /** Keeps the session's held claims as long as its run lives. */
  #checkCommandRun(session: Session, commandRun: CommandRun, now: number): number | null {
    const { status, nextProbeMs } = commandRun.probe();
    const isConnected = session.keepSessionConnections.size > 0;
    if (isConnected || status === "works") renewLeases(this.#backend, session, now);
    if (isConnected || status === "works" || status === "held") return now + nextProbeMs;
    if (status === "unknown") {
      return now < (session.disconnectedAt as number) + RETURN_TIMEOUT_MS
        ? now + nextProbeMs
        : this.#expireClaims(session, now);
    }
    if (status === "over") {
      if (!this.#isRemainderDetached(session, commandRun)) return now + PROBE_INTERVAL_MS;
      commandRun.remove();
    }
    session.commandRun = null;
    // the run of a client that has not reconnected yet reports nothing any more: its process decides
    if (status !== "over" && session.isRestored) return this.#nextCheckAt(session, now);
    this.#endSession(session);
    return null;
  }

  /**
   * True once the claims of a finished run are detached on disk for the remaining time of `--hold-at-least`. Until then
   * the session must keep them, because the end of the session would free them. A failed write is repeated by the next
   * call.
   */
  #isRemainderDetached(session: Session, commandRun: CommandRun): boolean {
    const detachment = this.#detachments.get(commandRun);
    if (detachment === "done" || commandRun.remainingHoldMs() === 0) return true;
    if (detachment === "pending") return false;
    this.#detachments.set(commandRun, "pending");
    detachForRemainder(this.#backend, session, commandRun).then(
      () => this.#detachments.set(commandRun, "done"),
      // the failed write is in the log already
      () => this.#detachments.delete(commandRun),
    );
    return false;
  }

  #endSession(session: Session): void {
    this.#backend.endClaims(session, "all");
    this.#forget(session);
  }

  #forget(session: Session): void {
    session.isEnded = true;
    this.#deadlines.remove(session);
    this.byId.delete(session.id);
    if (session.isPersisted) this.onForgotten(session);
  }

  /** A process id is useful only if it means the same process to us: the client may be in another container. */
  #verifyPid(hello: ClientHello): ClientHello {
    const { pid, pidStart } = hello;
    if (pid === null || pidStart === null) return { ...hello, pid: null, pidStart: null };
    const state = this.#probe(pid, pidStart);
    return state === "running" || state === "stopped" ? hello : { ...hello, pid: null, pidStart: null };
  }
}

/**
 * One client, over its connections. Claims belong to the session that placed them last.
 *
 *   here   it has a connection (its link)
 *   away   it has none. On a Unix socket that is the death of the client, unless a tether of it is still connected, a run
 *          of it lives (command-run.ts), the server itself went away, or it has not told this start yet what it had: what it
 *          held is released at once. Elsewhere a cut and
 *          a death look alike: holds last as long as their leases, waiting places are passed over and dropped after a grace.
 *   ended  nothing of it is left
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

/** How long waiting places outlive their connection. */
const WAITER_GRACE_MS = 5_000;
/** How long a client whose process still lives may take to come back after a restart of the server. */
const RETURN_TIMEOUT_MS = 60_000;
/** How often the processes of clients that have not come back are looked for. */
const PROBE_INTERVAL_MS = 1_000;

/** What the system says of a process. stopped: by a signal, as with Ctrl-Z; unknown: it cannot be told. */
export type ProcessState = "running" | "stopped" | "gone" | "unknown";
/** Asks the system for the process with this id and start time (field 22 of /proc/PID/stat). */
export type ProcessProbe = (pid: number, pidStart: string) => ProcessState;

/** Who is told what becomes of a session's claims: its connection, or a request over HTTP. */
export interface NotificationSink {
  pushAnswer(id: ClaimId, answer: Answer): void;
  pushRecheck(id: ClaimId): void;
  /** Ends it, saying why. */
  fail(error: unknown): void;
}

export class Session {
  readonly id: string;
  /** On a Unix socket of this machine. */
  readonly isLocal: boolean;
  readonly label: string;
  readonly pid: number | null;
  readonly pidStart: string | null;
  /** Who it is, as it last said hello. */
  principal: Principal = ANONYMOUS;
  sink: NotificationSink | null = null;
  readonly keepSessionConnections: Set<Connection> = new Set();
  /** Its claims in the keeper's table. */
  readonly records: LinkedList<ClaimRecord> = new LinkedList();
  lastHeardAt: number;
  disconnectedAt: number | null = null;
  /** It was here before the server started: its absence is our doing. */
  isRestored = false;
  /** It is here again, but has not told this start what it had: until then the end of its connection is not its death. */
  returning = false;
  /** Away, and a run of it keeps what it holds. */
  commandRun: CommandRun | null = null;
  /** Places it had while away were dropped. */
  hasDroppedWaiters = false;
  /** The server has ended its last connection itself: that tells nothing of whether the client lives. */
  isClosedByServer = false;
  isEnded = false;
  /** It stands in the file of those who may hold something. */
  isPersisted = false;
  // for the schedule
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

/** Makes a claim of the table the session's; a detached one is nobody's. */
export function assignOwner(record: ClaimRecord, session: Session): void {
  if (record.isDetached) return;
  record.owner = session;
  if (record.ownerList === session.records) return;
  clearOwner(record);
  record.notifyOnRemoval = true;
  record.ownerList = session.records;
  record.ownerList.push(record);
}

/** Takes a claim out of its session's list. */
export function clearOwner(record: ClaimRecord): void {
  record.ownerList?.remove(record);
  record.ownerList = null;
}

/** All clients of a server, by the id of their session, and when each of those that are away is given up. */
export class SessionRegistry {
  readonly byId: Map<string, Session> = new Map();
  readonly #deadlines = new DeadlineHeap<Session>();
  readonly #backend: Backend;
  readonly #clock: Clock;
  readonly #probe: ProcessProbe;
  readonly #commandRuns: CommandRuns;
  /** Of runs that are over. */
  readonly #detachments = new WeakMap<CommandRun, "pending" | "done">();
  readonly sessionMs: number;
  /** Called when a session that was noted has nothing any more. */
  onForgotten: (session: Session) => void = () => undefined;
  /** Called when a restored session turns out to have a run that was not known at the start. */
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
   * A client has said hello; gives the link it replaces, if any.
   * @throws ProtocolError "AUTH" if the session is another account's
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

  /** A second connection that keeps a session alive. Null if there is no such session. */
  attachKeepSession(id: string, connection: Connection): Session | null {
    const session = this.byId.get(id) ?? null;
    session?.keepSessionConnections.add(connection);
    return session;
  }

  /** A connection of the session has ended. severed: by us, so that its client may live on and believe in what it holds. */
  connectionLost(session: Session, connection: Connection, isClosedByServer = false): void {
    session.keepSessionConnections.delete(connection);
    if (session.sink === connection) {
      session.sink = null;
      session.isClosedByServer = isClosedByServer;
    }
    if (session.sink !== null || session.isEnded) return;
    if (session.commandRun !== null) this.#deadlines.set(session, this.#clock.now());
    // the end of a tether is not the end of a client that is still on its way back: its process is looked at
    if (session.isRestored || session.commandRun !== null) return;
    session.commandRun = session.isLocal ? this.#commandRuns.find(session.id) : null;
    if (session.commandRun !== null) {
      // its file may be newer than the start: a client that has not reclaimed yet has nothing in the table
      if (session.returning) this.onRunFound(session, session.commandRun);
      // the run keeps what is held, but nobody is left to be told of a grant
      this.#backend.endClaims(session, "waiting");
      return this.#markDisconnected(session, this.#clock.now());
    }
    // a client that gave up waiting for our welcome, as after a start with thousands of others: its process is looked at
    if (session.returning) session.isRestored = true;
    else if (session.isLocal && !session.isClosedByServer) {
      // a tether keeps what is held, but nobody is left to be told of a grant
      if (session.keepSessionConnections.size > 0) this.#backend.endClaims(session, "waiting");
      else this.#endSession(session);
      return;
    }
    if (session.disconnectedAt !== null) return;
    this.#markDisconnected(session, this.#clock.now());
  }

  /** A session from before this start of the server, whose client has not come back yet. */
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

  /** When to look at it again; null: never. */
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

  /** What silence and absence end; when to look again, or null: never. */
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
    // its holds have leases of their own; it is remembered as long as there are any
    if (this.#backend.hasClaims(session)) return now + this.sessionMs;
    this.#forget(session);
    return null;
  }

  /** Has the process of a local client that was here before our start gone meanwhile? */
  #probeProcess(session: Session, now: number): number | null {
    const state =
      session.pid === null || session.pidStart === null ? "unknown" : this.#probe(session.pid, session.pidStart);
    // a child that still works under its lock speaks for it by the tether
    if (session.keepSessionConnections.size > 0) return now + PROBE_INTERVAL_MS;
    if (state === "gone") {
      // its run may have begun while no server was there to be told of anything
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

  /** It is too busy to come back, or has let go of its client: what it holds by a lease of its own it may still believe in. */
  #expireClaims(session: Session, now: number): number | null {
    this.#backend.endClaims(session, "waiting");
    this.#backend.endClaims(session, "session");
    if (this.#backend.hasClaims(session)) return now + PROBE_INTERVAL_MS;
    this.#forget(session);
    return null;
  }

  /** What the session holds stays for as long as its run lives. */
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
    // of a client that is still on its way back no run tells any more: its process does
    if (status !== "over" && session.isRestored) return this.#nextCheckAt(session, now);
    this.#endSession(session);
    return null;
  }

  /**
   * Are the claims of a run that is over detached for the time they are to stay held (`--hold-at-least`), and on disk as
   * such? Until then they must stay the session's: the end of the session would free them. A write that has failed is
   * repeated by the next call.
   */
  #isRemainderDetached(session: Session, commandRun: CommandRun): boolean {
    const detachment = this.#detachments.get(commandRun);
    if (detachment === "done" || commandRun.remainingHoldMs() === 0) return true;
    if (detachment === "pending") return false;
    this.#detachments.set(commandRun, "pending");
    detachForRemainder(this.#backend, session, commandRun).then(
      () => this.#detachments.set(commandRun, "done"),
      // the log already has that the disk cannot be written
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

  /** A process id is worth something only if we see the same process by it (it may live in another container). */
  #verifyPid(hello: ClientHello): ClientHello {
    const { pid, pidStart } = hello;
    if (pid === null || pidStart === null) return { ...hello, pid: null, pidStart: null };
    const state = this.#probe(pid, pidStart);
    return state === "running" || state === "stopped" ? hello : { ...hello, pid: null, pidStart: null };
  }
}

/** The sessions of a server: opened, kept alive and ended as session.ts says. */

import type { Principal } from "../../auth/access-control.ts";
import { AUTH_FAILED, ownsClaim } from "../../auth/access-control.ts";
import type { ProcessProbe } from "../../os/process-info.ts";
import type { ClientHello } from "../../protocol/handshake.ts";
import { ProtocolError } from "../../protocol/handshake.ts";
import type { Clock } from "../../util/clock.ts";
import { DeadlineHeap } from "../../util/deadline-heap.ts";
import type { CommandRun, CommandRuns } from "../runs/command-run.ts";
import { NO_COMMAND_RUNS } from "../runs/command-run.ts";
import type { Backend } from "./backend.ts";
import type { DisconnectedState, NotificationSink, RunningState } from "./session.ts";
import { Session } from "./session.ts";

/** How long waiting claims survive the end of their connection. */
const WAITER_GRACE_MS = 5_000;
/** How long a client whose process is alive may take to reconnect after a restart of the server. */
const RETURN_TIMEOUT_MS = 60_000;
/** How often to check the processes of clients that have not reconnected. */
const PROBE_INTERVAL_MS = 1_000;

/** A connection by which a client opens a session, or keeps one alive. */
interface ClientConnection extends NotificationSink {
  /** Connected by a Unix socket of this machine. */
  readonly isLocal: boolean;
  /** Of a client that is a part of the server. Default: false. */
  readonly isInProcess?: boolean;
}

export interface SessionListener {
  /** A persisted session has no claims any more. */
  onForgotten?(session: Session): void;
  /** A session from before the start turns out to have a run that the start did not find. */
  onRunFound?(session: Session, run: CommandRun): void;
}

/** All sessions of a server by id, with the deadlines of those that are away. */
export class SessionRegistry {
  readonly byId: Map<string, Session> = new Map();
  readonly #deadlines = new DeadlineHeap<Session>();
  readonly #backend: Backend;
  readonly #clock: Clock;
  readonly #probe: ProcessProbe;
  readonly #commandRuns: CommandRuns;
  readonly #listener: SessionListener;
  readonly sessionMs: number;

  constructor(
    backend: Backend,
    clock: Clock,
    probe: ProcessProbe,
    sessionMs: number,
    commandRuns: CommandRuns = NO_COMMAND_RUNS,
    listener: SessionListener = {},
  ) {
    this.#backend = backend;
    this.#clock = clock;
    this.#probe = probe;
    this.#commandRuns = commandRuns;
    this.#listener = listener;
    this.sessionMs = sessionMs;
  }

  /** Those of clients, without the parts of the server. */
  clients(): Session[] {
    return [...this.byId.values()].filter(({ isInProcess }) => !isInProcess);
  }

  /**
   * Completes a handshake. Returns the session and the connection that it replaces, if any.
   * @throws ProtocolError "AUTH" if the session belongs to another account
   */
  open(
    hello: ClientHello,
    connection: ClientConnection,
    principal: Principal,
  ): { readonly session: Session; readonly replaced: NotificationSink | null } {
    const now = this.#clock.now();
    let session = this.byId.get(hello.session);
    if (session === undefined) {
      session = new Session(this.#verifyPid(hello), connection.isLocal, now, connection.isInProcess);
      this.byId.set(session.id, session);
    } else if (!ownsClaim(session.principal.name, principal)) {
      throw new ProtocolError("AUTH", AUTH_FAILED);
    }
    const { state, sink: replaced } = session;
    session.principal = principal;
    session.connect(connection);
    session.lastHeardAt = now;
    if (state.kind !== "connected" && state.kind !== "keptAlive") {
      this.#deadlines.remove(session);
      // its rules may have changed while it was away
      this.#backend.revalidateClaims(session);
      this.#backend.resume(session);
    }
    if (!session.isLocal) this.#deadlines.set(session, now + this.sessionMs);
    return { session, replaced };
  }

  /** Adds a connection that keeps a session alive. Null if the session does not exist. */
  attachKeepSession(id: string, connection: ClientConnection): Session | null {
    const session = this.byId.get(id) ?? null;
    session?.keepSessionConnections.add(connection);
    return session;
  }

  /** A connection of the session has ended. isClosedByServer: the client may be alive and still rely on its locks. */
  connectionLost(session: Session, connection: ClientConnection, isClosedByServer = false): void {
    session.keepSessionConnections.delete(connection);
    const { state } = session;
    switch (state.kind) {
      case "connected":
        if (state.sink === connection) this.#clientLeft(session, isClosedByServer);
        return;
      case "keptAlive":
        if (!this.#keepByRun(session)) this.#keepAliveOrEnd(session);
        return;
      case "disconnected":
        this.#keepByRun(session);
        return;
      case "running":
        this.#deadlines.set(session, this.#clock.now());
        return;
      case "restored":
        // the client may be alive, though it has not reconnected yet: its process is checked
        return;
      case "ended":
        return;
    }
  }

  /** No client is connected to the session: its run, its process or its keep-session connections may keep it. */
  #clientLeft(session: Session, isClosedByServer: boolean): void {
    if (this.#keepByRun(session)) return;
    // the client may have given up waiting for our handshake, as after a start with thousands of clients: its process
    // is checked
    if (!session.hasReclaimed) return this.restore(session);
    if (session.isLocal && !isClosedByServer) {
      session.state = { kind: "keptAlive" };
      return this.#keepAliveOrEnd(session);
    }
    const now = this.#clock.now();
    session.state = { kind: "disconnected", since: now };
    this.#suspend(session, now + WAITER_GRACE_MS);
  }

  /** True if the session has a command run, which keeps its held claims from now on. */
  #keepByRun(session: Session): boolean {
    const run = session.isLocal ? this.#commandRuns.find(session.id) : null;
    if (run === null) return false;
    const now = this.#clock.now();
    const { hasReclaimed } = session;
    session.state = { kind: "running", since: now, run, hasReclaimed, detachment: "none" };
    // its file may be newer than the start: a client that has not reclaimed yet has nothing in the table
    if (!hasReclaimed) this.#listener.onRunFound?.(session, run);
    // no client is left to receive a grant
    this.#backend.endClaims(session, "waiting");
    this.#suspend(session, now);
    return true;
  }

  /**
   * Its keep-session connections keep its held claims, but no client is left to receive a grant. Without them it ends.
   */
  #keepAliveOrEnd(session: Session): void {
    if (session.keepSessionConnections.size > 0) this.#backend.endClaims(session, "waiting");
    else this.#endSession(session);
  }

  /** Adds a session from before this start of the server, whose client has not reclaimed its claims yet. */
  restore(session: Session, run: CommandRun | null = null): void {
    const since = this.#clock.now();
    session.state =
      run === null
        ? { kind: "restored", since }
        : { kind: "running", since, run, hasReclaimed: false, detachment: "none" };
    this.byId.set(session.id, session);
    this.#suspend(session, session.isLocal || run !== null ? since : since + WAITER_GRACE_MS);
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
    const { state } = session;
    if (state.kind === "running") return this.#checkCommandRun(session, state, now);
    if (state.kind === "restored" && session.isLocal) return this.#probeProcess(session, state, now);
    return state.kind === "restored" || state.kind === "disconnected"
      ? this.#checkDisconnected(session, state, now)
      : this.#checkConnected(session, now);
  }

  #suspend(session: Session, nextCheckAt: number): void {
    this.#backend.suspend(session);
    this.#deadlines.set(session, nextCheckAt);
  }

  /** Ends claims with ttl "session" if the client was silent for too long. Returns when to check again. */
  #checkConnected(session: Session, now: number): number {
    const silenceEndsAt = session.lastHeardAt + this.sessionMs;
    if (now < silenceEndsAt) return silenceEndsAt;
    this.#backend.endClaims(session, "session");
    return now + this.sessionMs;
  }

  /** Ends claims whose deadline has passed while the client was away. Returns when to check again; null: never. */
  #checkDisconnected(session: Session, state: DisconnectedState, now: number): number | null {
    const silenceEndsAt = session.lastHeardAt + this.sessionMs;
    if (now >= silenceEndsAt) this.#backend.endClaims(session, "session");
    const dropWaitersAt = state.since + (state.kind === "restored" ? RETURN_TIMEOUT_MS : WAITER_GRACE_MS);
    if (now < dropWaitersAt) return now < silenceEndsAt ? Math.min(dropWaitersAt, silenceEndsAt) : dropWaitersAt;
    this.#backend.endClaims(session, "waiting");
    if (now < silenceEndsAt) return silenceEndsAt;
    // held claims have leases of their own; the session is kept as long as it has any
    if (this.#backend.hasClaims(session)) return now + this.sessionMs;
    this.#forget(session);
    return null;
  }

  /** Checks whether the process of a local client from before our start has ended. */
  #probeProcess(session: Session, { since }: DisconnectedState, now: number): number | null {
    const status =
      session.pid === null || session.pidStart === null ? "unknown" : this.#probe(session.pid, session.pidStart);
    // a child process that works under the lock keeps the session alive by its keep-session connection
    if (session.keepSessionConnections.size > 0) return now + PROBE_INTERVAL_MS;
    if (status === "gone") {
      // its run may have begun while no server was running
      const run = this.#commandRuns.find(session.id);
      if (run !== null) {
        const running: RunningState = { kind: "running", since, run, hasReclaimed: false, detachment: "none" };
        session.state = running;
        this.#listener.onRunFound?.(session, run);
        return this.#checkCommandRun(session, running, now);
      }
      this.#endSession(session);
      return null;
    }
    if (now < since + RETURN_TIMEOUT_MS || status === "stopped") return now + PROBE_INTERVAL_MS;
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
  #checkCommandRun(session: Session, running: RunningState, now: number): number | null {
    const { run } = running;
    const { status, nextProbeMs } = run.probe();
    const isConnected = session.keepSessionConnections.size > 0;
    // the system may stop telling for a moment, for lack of descriptors, long after the client has left
    if (status === "works" || status === "held") running.since = now;
    const { since } = running;
    if (isConnected || status === "works") renewLeases(this.#backend, session, now);
    if (isConnected || status === "works" || status === "held") return now + nextProbeMs;
    if (status === "unknown") {
      return now < since + RETURN_TIMEOUT_MS ? now + nextProbeMs : this.#expireClaims(session, now);
    }
    if (status === "over") {
      if (!this.#isRemainderDetached(session, running)) return now + PROBE_INTERVAL_MS;
      run.remove();
    } else if (!running.hasReclaimed) {
      // the run of a client that may still return to reclaim reports nothing any more: its process decides
      session.state = { kind: "restored", since };
      return this.#nextCheckAt(session, now);
    }
    this.#endSession(session);
    return null;
  }

  /**
   * True once the claims of a finished run are detached on disk for the remaining time of `--hold-at-least`. Until then
   * the session must keep them, because the end of the session would free them. A failed write is repeated by the next
   * call.
   */
  #isRemainderDetached(session: Session, running: RunningState): boolean {
    if (running.detachment === "done" || running.run.remainingHoldMs() === 0) return true;
    if (running.detachment === "pending") return false;
    running.detachment = "pending";
    detachForRemainder(this.#backend, session, running.run).then(
      () => {
        running.detachment = "done";
      },
      () => {
        // the failed write is in the log already
        running.detachment = "none";
      },
    );
    return false;
  }

  #endSession(session: Session): void {
    this.#backend.endClaims(session, "all");
    this.#forget(session);
  }

  #forget(session: Session): void {
    session.end();
    this.#deadlines.remove(session);
    this.byId.delete(session.id);
    if (session.isPersisted) this.#listener.onForgotten?.(session);
  }

  /** A process id is useful only if it means the same process to us: the client may be in another container. */
  #verifyPid(hello: ClientHello): ClientHello {
    const { pid, pidStart } = hello;
    if (pid === null || pidStart === null) return { ...hello, pid: null, pidStart: null };
    const state = this.#probe(pid, pidStart);
    return state === "running" || state === "stopped" ? hello : { ...hello, pid: null, pidStart: null };
  }
}

/** Renews claims with less than half of their lease left. Claims with ttl "session" need no renewal. */
function renewLeases(backend: Backend, session: Session, now: number): void {
  const items = [];
  for (const { claim, isHeld, revokeReason, expiresAt } of session.records) {
    if (claim.ttlMs === "session" || !isHeld || revokeReason !== null) continue;
    if (expiresAt - now < claim.ttlMs / 2) items.push({ id: claim.id, claim: null });
  }
  if (items.length > 0) void renewQuietly(backend, session, items);
}

async function renewQuietly(backend: Backend, session: Session, items: Parameters<Backend["renew"]>[1]): Promise<void> {
  try {
    await backend.renew(session, items);
  } catch {
    // a lease over a minute is written to disk: a failure is logged there, and the next check renews again
  }
}

/**
 * Detaches the claims of a finished run for the remaining time of `--hold-at-least`. The run file must stay until this
 * settles: if the server ends before, the next one needs it.
 * @throws (rejects) RequestError if the disk fails: the session still owns the claims then
 */
async function detachForRemainder(backend: Backend, session: Session, run: CommandRun): Promise<void> {
  const runClaimIds = new Set(run.claims.map(({ claim }) => claim.id));
  const ids = [];
  for (const { claim, isHeld, revokeReason } of session.records) {
    if (isHeld && revokeReason === null && runClaimIds.has(claim.id)) ids.push(claim.id);
  }
  if (ids.length > 0) await backend.detach(session, ids, run.remainingHoldMs());
}

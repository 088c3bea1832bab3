/**
 * One client, across its connections. A claim belongs to the session that last placed it.
 *
 *   connected     its client has a connection
 *   keptAlive     a local client has disconnected, and only keep-session connections keep its held claims
 *   disconnected  another client has disconnected: over TCP, where a broken connection looks like a dead client, or
 *                 because the server closed its connection. Held claims last as long as their leases; grants pass over
 *                 waiting claims, which are dropped after a grace period.
 *   restored      it is known from before this start of the server, and its client is away. The process of a local
 *                 client is checked; another client has a longer grace period.
 *   running       its client has disconnected, and its command run (command-run.ts) keeps its held claims
 *   ended         all its claims have ended
 *
 * Which states may follow:
 *
 *   connected     keptAlive, disconnected, restored (a local client that has not reclaimed), running, ended
 *   keptAlive     connected, running, ended
 *   disconnected  connected, running, ended
 *   restored      connected, running, ended
 *   running       connected, restored (a client that has not reclaimed), ended
 *
 * hasReclaimed: its client has reported all its claims from before this start of the server. A restored one has not; it
 * has in the states that do not say.
 *
 * On a Unix socket the end of the last connection, also of the keep-session ones, means that the client is dead: its
 * claims are released at once, unless the server closed the connection, or the client has not reclaimed.
 *
 * A claim with ttl "session" ends when a session that is not local has been silent for sessionMs, connected or not.
 */

import type { Principal } from "../../auth/access-control.ts";
import { ANONYMOUS } from "../../auth/access-control.ts";
import type { ClaimRecord } from "../../lock-table/key-queue.ts";
import type { ClientHello } from "../../protocol/handshake.ts";
import type { Answer, ClaimId } from "../../spi/driver.ts";
import { LinkedList } from "../../util/linked-list.ts";
import type { CommandRun } from "../runs/command-run.ts";

/** Receives the notifications of a session's claims: its connection, or a request over HTTP. */
export interface NotificationSink {
  pushAnswer(id: ClaimId, answer: Answer): void;
  pushRecheck(id: ClaimId): void;
  /** Another claim waits for this one. */
  pushRecalled(id: ClaimId): void;
  /** Closes it with this error. */
  fail(error: unknown): void;
}

export type SessionState =
  | ConnectedState
  | { readonly kind: "keptAlive" }
  | DisconnectedState
  | RunningState
  | { readonly kind: "ended" };

interface ConnectedState {
  readonly kind: "connected";
  readonly sink: NotificationSink;
  hasReclaimed: boolean;
}

export interface DisconnectedState {
  readonly kind: "disconnected" | "restored";
  readonly since: number;
}

export interface RunningState {
  readonly kind: "running";
  /** When the run was last known to live. */
  since: number;
  readonly run: CommandRun;
  readonly hasReclaimed: boolean;
  /** Whether its claims are detached on disk for the remaining time of `--hold-at-least`, after its end. */
  detachment: "none" | "pending" | "done";
}

export class Session {
  readonly id: string;
  /** Connected by a Unix socket of this machine. */
  readonly isLocal: boolean;
  /** Its client is a part of the server: it ends with the server, and is not counted among the clients. */
  readonly isInProcess: boolean;
  readonly label: string;
  readonly pid: number | null;
  readonly pidStart: string | null;
  /** The principal of the last handshake. */
  principal: Principal = ANONYMOUS;
  state: SessionState;
  readonly keepSessionConnections: Set<NotificationSink> = new Set();
  /** Its claims in the lock table. */
  readonly records: LinkedList<ClaimRecord<Session>> = new LinkedList();
  lastHeardAt: number;
  /** It is in the file of sessions that may be holders. */
  isPersisted = false;
  // for the deadline heap
  dueAt = 0;
  heapIndex = -1;

  constructor(
    hello: Pick<ClientHello, "session" | "label" | "pid" | "pidStart">,
    isLocal: boolean,
    now: number,
    isInProcess = false,
  ) {
    this.id = hello.session;
    this.isLocal = isLocal;
    this.isInProcess = isInProcess;
    // not saved: after a restart its client is gone, too, so that recovery need not wait for its report
    this.isPersisted = isInProcess;
    this.label = hello.label;
    this.pid = hello.pid;
    this.pidStart = hello.pidStart;
    this.lastHeardAt = now;
    this.state = { kind: "disconnected", since: now };
  }

  /** Where notifications go; null: no client is connected. */
  get sink(): NotificationSink | null {
    return this.state.kind === "connected" ? this.state.sink : null;
  }

  get isEnded(): boolean {
    return this.state.kind === "ended";
  }

  get hasReclaimed(): boolean {
    const { state } = this;
    return state.kind === "connected" || state.kind === "running" ? state.hasReclaimed : state.kind !== "restored";
  }

  connect(sink: NotificationSink): void {
    // the end of a remote connection does not count as the death of its client, reclaimed or not
    this.state = { kind: "connected", sink, hasReclaimed: this.hasReclaimed || !this.isLocal };
  }

  /** The client has reclaimed all its claims. If its connection has ended meanwhile, it reclaims them again. */
  markReclaimed(): void {
    if (this.state.kind === "connected") this.state.hasReclaimed = true;
  }

  end(): void {
    this.state = { kind: "ended" };
  }
}

/** Makes the session the owner of a claim in the table; a detached claim has no owner. */
export function linkToSession(record: ClaimRecord<Session>, session: Session): void {
  if (record.isDetached) return;
  record.owner = session;
  if (record.ownerList === session.records) return;
  unlinkFromSession(record);
  record.ownerList = session.records;
  record.ownerList.push(record);
}

/** Removes a claim from the list of its session. */
export function unlinkFromSession(record: ClaimRecord<Session>): void {
  record.ownerList?.remove(record);
  record.ownerList = null;
}

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

import type { ClaimRecord } from "../../lock-table/key-queue.ts";
import type { ClientHello } from "../../protocol/handshake.ts";
import type { Answer, ClaimId } from "../../spi/driver.ts";
import { LinkedList } from "../../util/linked-list.ts";
import type { Principal } from "../auth/access-control.ts";
import { ANONYMOUS } from "../auth/access-control.ts";
import type { CommandRun } from "../runs/command-run.ts";

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
  readonly keepSessionConnections: Set<NotificationSink> = new Set();
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

/**
 * One client, over its connections. Claims belong to the session that placed them last.
 *
 *   here   it has a connection (its link)
 *   away   it has none. On a Unix socket that is the death of the client, unless a tether of it is still connected, a run
 *          of it lives (run-life.ts), the server itself went away, or it has not told this start yet what it had: what it
 *          held is released at once. Elsewhere a cut and
 *          a death look alike: holds last as long as their leases, waiting places are passed over and dropped after a grace.
 *   ended  nothing of it is left
 *
 * A claim with ttl "session" ends when a session that is not local has been silent for sessionMs, here or away.
 */

import type { Clock } from "../clock.ts";
import type { Entry } from "../core/entry.ts";
import { LinkedList } from "../core/queue.ts";
import { Schedule } from "../core/schedule.ts";
import type { ClientHello } from "../protocol/hello.ts";
import { ProtocolError } from "../protocol/hello.ts";
import type { Answer, ClaimId } from "../spi/driver.ts";
import type { Principal } from "./access.ts";
import { ANYBODY, answersTo, NO_CREDENTIAL } from "./access.ts";
import type { Backend } from "./backend.ts";
import type { Link } from "./link.ts";
import { keepLeases, leaveHeld } from "./run-leases.ts";
import type { Run, Runs } from "./run-life.ts";
import { NO_RUNS } from "./run-life.ts";

/** How long waiting places outlive their connection. */
const GRACE_MS = 5_000;
/** How long a client whose process still lives may take to come back after a restart of the server. */
const RETURN_MS = 60_000;
/** How often the processes of clients that have not come back are looked for. */
const LOOK_MS = 1_000;

/** What the system says of a process. stopped: by a signal, as with Ctrl-Z; unknown: it cannot be told. */
export type ProcessState = "running" | "stopped" | "gone" | "unknown";
/** Asks the system for the process with this id and start time (field 22 of /proc/PID/stat). */
export type ProcessProbe = (pid: number, pidStart: string) => ProcessState;

/** Who is told what becomes of a session's claims: its connection, or a request over HTTP. */
export interface Inbox {
  push(id: ClaimId, answer: Answer): void;
  nudge(id: ClaimId): void;
  /** Ends it, saying why. */
  refuse(error: unknown): void;
}

export class Session {
  readonly id: string;
  /** On a Unix socket of this machine. */
  readonly local: boolean;
  readonly label: string;
  readonly pid: number | null;
  readonly pidStart: string | null;
  /** Who it is, as it last said hello. */
  principal: Principal = ANYBODY;
  link: Inbox | null = null;
  readonly tethers: Set<Link> = new Set();
  /** Its claims in the keeper's table. */
  readonly entries: LinkedList<Entry> = new LinkedList();
  heardAt: number;
  awayAt: number | null = null;
  /** It was here before the server started: its absence is our doing. */
  restored = false;
  /** It is here again, but has not told this start what it had: until then the end of its connection is not its death. */
  returning = false;
  /** Away, and a run of it keeps what it holds. */
  run: Run | null = null;
  /** Places it had while away were dropped. */
  dropped = false;
  /** The server has ended its last connection itself: that tells nothing of whether the client lives. */
  severed = false;
  ended = false;
  /** It stands in the file of those who may hold something. */
  noted = false;
  // for the schedule
  dueAt = 0;
  heapIndex = -1;

  constructor(hello: Pick<ClientHello, "session" | "label" | "pid" | "pidStart">, local: boolean, now: number) {
    this.id = hello.session;
    this.local = local;
    this.label = hello.label;
    this.pid = hello.pid;
    this.pidStart = hello.pidStart;
    this.heardAt = now;
  }
}

/** Makes a claim of the table the session's; a detached one is nobody's. */
export function own(entry: Entry, session: Session): void {
  if (entry.detached) return;
  entry.owner = session;
  if (entry.list === session.entries) return;
  disown(entry);
  entry.kept = true;
  entry.list = session.entries;
  entry.list.push(entry);
}

/** Takes a claim out of its session's list. */
export function disown(entry: Entry): void {
  entry.list?.remove(entry);
  entry.list = null;
}

/** All clients of a server, by the id of their session, and when each of those that are away is given up. */
export class Sessions {
  readonly all: Map<string, Session> = new Map();
  readonly #due = new Schedule<Session>();
  readonly #backend: Backend;
  readonly #clock: Clock;
  readonly #probe: ProcessProbe;
  readonly #runs: Runs;
  readonly sessionMs: number;
  /** Called when a session that was noted has nothing any more. */
  forgotten: (session: Session) => void = () => undefined;
  /** Called when a restored session turns out to have a run that was not known at the start. */
  found: (session: Session, run: Run) => void = () => undefined;

  constructor(backend: Backend, clock: Clock, probe: ProcessProbe, sessionMs: number, runs: Runs = NO_RUNS) {
    this.#backend = backend;
    this.#clock = clock;
    this.#probe = probe;
    this.#runs = runs;
    this.sessionMs = sessionMs;
  }

  /**
   * A client has said hello; gives the link it replaces, if any.
   * @throws ProtocolError "AUTH" if the session is another account's
   */
  join(
    hello: ClientHello,
    link: Link,
    principal: Principal,
  ): { readonly session: Session; readonly replaced: Inbox | null } {
    const now = this.#clock.now();
    let session = this.all.get(hello.session);
    if (session === undefined) {
      session = new Session(this.#believed(hello), link.local, now);
      this.all.set(session.id, session);
    } else if (!answersTo(session.principal.name, principal)) {
      throw new ProtocolError("AUTH", NO_CREDENTIAL);
    }
    const replaced = session.link;
    session.principal = principal;
    session.link = link;
    session.heardAt = now;
    session.returning ||= session.restored && session.local;
    session.restored = false;
    session.run = null;
    session.severed = false;
    if (session.awayAt !== null) this.#back(session);
    if (!session.local) this.#due.set(session, now + this.sessionMs);
    return { session, replaced };
  }

  /** A second connection that keeps a session alive. Null if there is no such session. */
  tether(id: string, link: Link): Session | null {
    const session = this.all.get(id) ?? null;
    session?.tethers.add(link);
    return session;
  }

  /** A connection of the session has ended. severed: by us, so that its client may live on and believe in what it holds. */
  left(session: Session, link: Link, severed = false): void {
    session.tethers.delete(link);
    if (session.link === link) {
      session.link = null;
      session.severed = severed;
    }
    if (session.link !== null || session.ended) return;
    if (session.run !== null) this.#due.set(session, this.#clock.now());
    // the end of a tether is not the end of a client that is still on its way back: its process is looked at
    if (session.restored || session.run !== null) return;
    session.run = session.local ? this.#runs.find(session.id) : null;
    if (session.run !== null) {
      // the run keeps what is held, but nobody is left to be told of a grant
      this.#backend.end(session, "waiting");
      return this.#away(session, this.#clock.now());
    }
    // a client that gave up waiting for our welcome, as after a start with thousands of others: its process is looked at
    if (session.returning) session.restored = true;
    else if (session.local && !session.severed) {
      // a tether keeps what is held, but nobody is left to be told of a grant
      if (session.tethers.size > 0) this.#backend.end(session, "waiting");
      else this.#end(session);
      return;
    }
    if (session.awayAt !== null) return;
    this.#away(session, this.#clock.now());
  }

  /** A session from before this start of the server, whose client has not come back yet. */
  restore(session: Session, run: Run | null = null): void {
    session.restored = true;
    session.run = run;
    this.all.set(session.id, session);
    this.#away(session, this.#clock.now());
  }

  nextDue(): number | null {
    return this.#due.next();
  }

  advance(now: number): void {
    for (let session = this.#due.takeDue(now); session !== null; session = this.#due.takeDue(now)) {
      const next = this.#next(session, now);
      if (next !== null) this.#due.set(session, next);
    }
  }

  /** When to look at it again; null: never. */
  #next(session: Session, now: number): number | null {
    if (session.run !== null) return this.#watch(session, session.run, now);
    return session.restored && session.local ? this.#look(session, now) : this.#dueAgain(session, now);
  }

  #away(session: Session, now: number): void {
    session.awayAt = now;
    session.dropped = false;
    this.#backend.park(session);
    this.#due.set(session, (session.restored && session.local) || session.run !== null ? now : now + GRACE_MS);
  }

  #back(session: Session): void {
    session.awayAt = null;
    this.#due.remove(session);
    this.#backend.unpark(session);
  }

  /** What silence and absence end; when to look again, or null: never. */
  #dueAgain(session: Session, now: number): number | null {
    const silentAt = session.heardAt + this.sessionMs;
    if (now >= silentAt) this.#backend.end(session, "session");
    if (session.awayAt === null) return now >= silentAt ? now + this.sessionMs : silentAt;
    const dropAt = session.awayAt + (session.restored ? RETURN_MS : GRACE_MS);
    if (now >= dropAt && !session.dropped) {
      session.dropped = true;
      this.#backend.end(session, "waiting");
    }
    if (now < dropAt) return now < silentAt ? Math.min(dropAt, silentAt) : dropAt;
    if (now < silentAt) return silentAt;
    // its holds have leases of their own; it is remembered as long as there are any
    if (this.#backend.owns(session)) return now + this.sessionMs;
    this.#forget(session);
    return null;
  }

  /** Has the process of a local client that was here before our start gone meanwhile? */
  #look(session: Session, now: number): number | null {
    const state =
      session.pid === null || session.pidStart === null ? "unknown" : this.#probe(session.pid, session.pidStart);
    // a child that still works under its lock speaks for it by the tether
    if (session.tethers.size > 0) return now + LOOK_MS;
    if (state === "gone") {
      // its run may have begun while no server was there to be told of anything
      session.run = this.#runs.find(session.id);
      if (session.run !== null) {
        this.found(session, session.run);
        return this.#watch(session, session.run, now);
      }
      this.#end(session);
      return null;
    }
    if (now < (session.awayAt as number) + RETURN_MS || state === "stopped") return now + LOOK_MS;
    return this.#giveUp(session, now);
  }

  /** It is too busy to come back, or has let go of its client: what it holds by a lease of its own it may still believe in. */
  #giveUp(session: Session, now: number): number | null {
    this.#backend.end(session, "waiting");
    this.#backend.end(session, "session");
    if (this.#backend.owns(session)) return now + LOOK_MS;
    this.#forget(session);
    return null;
  }

  /** What the session holds stays for as long as its run lives. */
  #watch(session: Session, run: Run, now: number): number | null {
    const { life, againMs } = run.look();
    const isHere = session.tethers.size > 0;
    if (isHere || life === "works") keepLeases(this.#backend, session, now);
    if (isHere || life === "works" || life === "held") return now + againMs;
    if (life === "unknown") {
      return now < (session.awayAt as number) + RETURN_MS ? now + againMs : this.#giveUp(session, now);
    }
    if (life === "over") void leaveHeld(this.#backend, session, run);
    session.run = null;
    // of a client that is still on its way back no run tells any more: its process does
    if (life !== "over" && session.restored) return this.#next(session, now);
    this.#end(session);
    return null;
  }

  #end(session: Session): void {
    this.#backend.end(session, "all");
    this.#forget(session);
  }

  #forget(session: Session): void {
    session.ended = true;
    this.#due.remove(session);
    this.all.delete(session.id);
    if (session.noted) this.forgotten(session);
  }

  /** A process id is worth something only if we see the same process by it (it may live in another container). */
  #believed(hello: ClientHello): ClientHello {
    const { pid, pidStart } = hello;
    if (pid === null || pidStart === null) return { ...hello, pid: null, pidStart: null };
    const state = this.#probe(pid, pidStart);
    return state === "running" || state === "stopped" ? hello : { ...hello, pid: null, pidStart: null };
  }
}

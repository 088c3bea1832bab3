/**
 * Sessions, their links and what stands behind them, with the one timer of a server. It knows no sockets: a simulator
 * gives it streams of its own.
 */

import type { Clock, Timer } from "../clock.ts";
import { Schedule } from "../core/schedule.ts";
import type { ClientHello } from "../protocol/hello.ts";
import { encodeWelcome, LIMITS, PROTOCOL, ProtocolError } from "../protocol/hello.ts";
import type { Backend } from "./backend.ts";
import type { Stream } from "./link.ts";
import { Link } from "./link.ts";
import type { Session, Sessions } from "./session.ts";

/** How long a connection may take to say hello. */
const HELLO_MS = 5_000;

/** Where the server says what people should know. */
export type Log = (message: string, error?: unknown) => void;

export interface HubOptions {
  readonly backend: Backend;
  readonly sessions: Sessions;
  readonly clock: Clock;
  /** Names this run of the server. */
  readonly start: string;
  readonly version: string;
  readonly log: Log;
}

export class Hub {
  readonly start: string;
  readonly clock: Clock;
  readonly log: Log;
  /** Links with something to write. */
  dirty: Link[] = [];
  readonly #backend: Backend;
  readonly #sessions: Sessions;
  readonly #version: string;
  readonly #links = new Set<Link>();
  readonly #strangers = new Schedule<Link>();
  readonly #timer: Timer;
  #armedFor = Number.POSITIVE_INFINITY;
  #draining = false;

  constructor(options: HubOptions) {
    this.start = options.start;
    this.clock = options.clock;
    this.log = options.log;
    this.#backend = options.backend;
    this.#sessions = options.sessions;
    this.#version = options.version;
    this.#timer = options.clock.timer(() => this.#tick());
    this.#backend.attend(() => {
      if (!this.#draining) this.settle();
    });
    this.settle();
  }

  /** A connection has come. The caller hands its lines to the link, and tells it when the stream has ended. */
  accept(stream: Stream, local: boolean): Link {
    const link = new Link(this, this.#backend, stream, local);
    this.#links.add(link);
    this.#strangers.set(link, this.clock.now() + HELLO_MS);
    this.#arm();
    return link;
  }

  /** Writes what there is to write, and sees that the timer will ring in time. */
  settle(): void {
    this.#backend.settle();
    if (this.dirty.length > 0) {
      const links = this.dirty;
      this.dirty = [];
      for (const link of links) link.flush();
    }
    this.#arm();
  }

  /** Tells every client that the server goes, and listens to nobody from now on. */
  drain(): void {
    this.#draining = true;
    this.#timer.stop();
    for (const link of this.#links) link.drain();
    this.#links.clear();
  }

  join(hello: ClientHello, link: Link): Session {
    this.#strangers.remove(link);
    const { session, replaced } = this.#sessions.join(hello, link, link.local);
    replaced?.refuse(new ProtocolError("REPLACED", "a newer connection of this session has come"));
    return session;
  }

  tether(hello: ClientHello, link: Link): Session {
    this.#strangers.remove(link);
    if (!link.local) throw new ProtocolError("UNSUPPORTED", "a tether needs a Unix socket");
    const session = this.#sessions.tether(hello.session, link);
    if (session === null) throw new ProtocolError("PROTOCOL", "a tether needs a session that is connected");
    return session;
  }

  welcome(local: boolean): string {
    return encodeWelcome({
      protocol: PROTOCOL,
      version: this.#version,
      start: this.start,
      sessionMs: this.#sessions.sessionMs,
      silenceKeeps: local,
      traits: this.#backend.traits(local),
      reclaimMs: Math.ceil(this.#backend.reclaimMs()),
      limits: LIMITS,
    });
  }

  /** A link has closed, from either side. */
  gone(link: Link, session: Session | null): void {
    this.#links.delete(link);
    this.#strangers.remove(link);
    if (session !== null && !this.#draining) this.#sessions.left(session, link);
  }

  #tick(): void {
    this.#armedFor = Number.POSITIVE_INFINITY;
    if (this.#draining) return;
    const now = this.clock.now();
    for (let link = this.#strangers.takeDue(now); link !== null; link = this.#strangers.takeDue(now)) {
      link.refuse(new ProtocolError("PROTOCOL", "no hello in time"));
    }
    this.#sessions.advance(now);
    this.#backend.advance(now);
    this.settle();
  }

  /** The timer is only ever moved forward: an early ring costs less than arming it anew for every claim. */
  #arm(): void {
    if (this.#draining) return;
    const next = Math.min(
      this.#backend.nextDue(),
      this.#sessions.nextDue() ?? Number.POSITIVE_INFINITY,
      this.#strangers.next() ?? Number.POSITIVE_INFINITY,
    );
    if (next >= this.#armedFor) return;
    this.#armedFor = next;
    this.#timer.set(next);
  }
}

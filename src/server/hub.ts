/**
 * Sessions, their links and what stands behind them, with the one timer of a server. It knows no sockets: a simulator
 * gives it streams of its own.
 */

import type { Clock, Timer } from "../clock.ts";
import { Schedule } from "../core/schedule.ts";
import type { ClientHello, SeenState } from "../protocol/hello.ts";
import { encodeWelcome, PROTOCOL, ProtocolError } from "../protocol/hello.ts";
import type { Access } from "./access.ts";
import { NO_CREDENTIAL, OPEN } from "./access.ts";
import type { Backend } from "./backend.ts";
import type { Origin } from "./door.ts";
import { Door } from "./door.ts";
import { guarded } from "./guard.ts";
import type { ServerLimits } from "./limits.ts";
import { DEFAULT_LIMITS } from "./limits.ts";
import type { Stream } from "./link.ts";
import { Link } from "./link.ts";
import type { Log } from "./logging.ts";
import { Rejections } from "./rejections.ts";
import type { Session, Sessions } from "./session.ts";
import type { Tools } from "./tools.ts";
import { Turns } from "./turns.ts";

export type { Log } from "./logging.ts";

export interface HubOptions {
  readonly backend: Backend;
  readonly sessions: Sessions;
  readonly clock: Clock;
  /** Names this run of the server. */
  readonly start: string;
  readonly version: string;
  readonly log: Log;
  /** Who may do what. Default: everybody everything. */
  readonly access?: Access;
  readonly limits?: ServerLimits;
  /** Answers the frames that serve people. Default: there are none. */
  readonly tools?: Tools;
  /** Told the code of each call and connection that is refused. Default: nobody is. */
  readonly refused?: (code: string) => void;
  /** Where runs on a Unix socket write down what they hold. Default: nowhere. */
  readonly runsIn?: string | null;
}

export class Hub {
  readonly start: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly limits: ServerLimits;
  readonly tools: Tools | null;
  readonly refused: (code: string) => void;
  readonly door: Door<Link>;
  readonly turns: Turns;
  /** Told of each who showed no valid credential. For HTTP, too. */
  readonly rejections: Rejections;
  /** What stands behind the links, as far as each of them may see and use it. For HTTP, too. */
  readonly backend: Backend;
  /** Links with something to write. */
  dirty: Link[] = [];
  /** The link that said something last. */
  speaker: Link | null = null;
  readonly #sessions: Sessions;
  readonly #access: Access;
  readonly #attended: Disposable;
  readonly #version: string;
  readonly #runsIn: string | null;
  readonly #links = new Set<Link>();
  /** Those who have not said hello, due when they are given up, and those who are to be refused. */
  readonly #strangers = new Schedule<Link>();
  readonly #timer: Timer;
  #armedFor = Number.POSITIVE_INFINITY;
  #draining = false;

  constructor(options: HubOptions) {
    this.start = options.start;
    this.clock = options.clock;
    this.log = options.log;
    this.limits = options.limits ?? DEFAULT_LIMITS;
    this.tools = options.tools ?? null;
    this.refused = options.refused ?? (() => undefined);
    this.door = new Door(this.limits);
    this.turns = new Turns(options.clock);
    this.rejections = new Rejections(options.log, options.clock);
    this.#sessions = options.sessions;
    this.#access = options.access ?? OPEN;
    this.backend = guarded(options.backend, this.#access);
    this.#version = options.version;
    this.#runsIn = options.runsIn ?? null;
    this.#timer = options.clock.timer(() => this.#tick());
    this.#attended = this.#access.attend(() => this.#reexamine());
    this.backend.attend(() => {
      if (!this.#draining) this.settle();
    });
    this.settle();
  }

  /**
   * A connection has come. The caller hands its lines to the link, and tells it when the stream has ended. Where there is
   * no room one that has not said hello is given up for it; if there is none the link is closed at once.
   */
  accept(stream: Stream, origin: Origin): Link {
    const link = new Link(this, stream, origin);
    for (let full = this.door.full(origin); full !== null; full = this.door.full(origin)) {
      this.door.turnedAway++;
      if (full.oldest !== null && !this.#draining) full.oldest.refuse(full.error);
      else {
        link.turnAway(full.error);
        return link;
      }
    }
    this.door.enter(origin, link);
    this.#links.add(link);
    this.#strangers.set(link, this.clock.now() + this.limits.helloMs);
    this.#arm();
    return link;
  }

  /** Writes what there is to write, and sees that the timer will ring in time. */
  settle(): void {
    this.backend.settle();
    if (this.dirty.length > 0) {
      const links = this.dirty;
      this.dirty = [];
      // who was granted something comes before who let go of it, whose wake-up might take our core
      for (const link of links) if (link !== this.speaker) link.flush();
      this.speaker?.flush();
    }
    this.#arm();
  }

  /** It listens to nobody any more, and what stands behind it must not be changed. */
  get draining(): boolean {
    return this.#draining;
  }

  /** Tells every client that the server goes, and listens to nobody from now on. */
  drain(): void {
    this.#draining = true;
    this.#timer.stop();
    this.turns.stop();
    this.#attended[Symbol.dispose]();
    for (const link of this.#links) link.drain();
    this.#links.clear();
  }

  /** @throws ProtocolError AUTH or LIMIT if its credential is none */
  join(hello: ClientHello, link: Link): Session {
    const principal = this.#access.authenticate(hello.credential ?? null, link.origin.address);
    const { session, replaced } = this.#sessions.join(hello, link, principal);
    this.#known(link);
    if (this.#isOutdatedBy(hello.seen)) this.backend.outdated?.();
    replaced?.refuse(new ProtocolError("REPLACED", "a newer connection of this session has come"));
    return session;
  }

  /** Needs no credential: who knows the session, which is secret, may keep it alive. */
  tether(hello: ClientHello, link: Link): Session {
    if (!link.local) throw new ProtocolError("UNSUPPORTED", "a tether needs a Unix socket");
    const session = this.#sessions.tether(hello.session, link);
    if (session === null) throw new ProtocolError("PROTOCOL", "a tether needs a session that is connected");
    this.#known(link);
    return session;
  }

  /** Refuses who showed no valid credential, after a while if not too many wait for that. Nothing of it is read meanwhile. */
  refuseSlowly(link: Link, refusal: ProtocolError): void {
    const { refusals, refusalMs } = this.limits;
    this.rejections.add(refusal, link.origin.address);
    if (refusal.code !== "AUTH" || this.door.refused >= refusals) return link.refuse(refusal);
    this.door.refused++;
    link.sentence(refusal);
    this.#strangers.set(link, this.clock.now() + refusalMs);
    this.#arm();
  }

  welcome(local: boolean): string {
    const identity = this.backend.identity ?? null;
    const { lineBytes, holds, tokens, page, batch, frames, ttlMs } = this.limits;
    return encodeWelcome({
      protocol: PROTOCOL,
      version: this.#version,
      start: this.start,
      sessionMs: this.#sessions.sessionMs,
      silenceKeeps: local,
      traits: this.backend.traits(local),
      reclaimMs: Math.ceil(this.backend.reclaimMs()),
      ...(identity && { state: { id: identity.id, generation: identity.generation } }),
      limits: { lineBytes, holds, tokens, page, batch, frames, ttlMs },
      ...(local && this.#runsIn !== null && { runsIn: this.#runsIn }),
    });
  }

  /** A link has closed, from either side. severed: from ours, although its client may be well. */
  gone(link: Link, session: Session | null, severed: boolean): void {
    if (!this.#links.delete(link)) return;
    if (this.speaker === link) this.speaker = null;
    this.door.leave(link.origin, link);
    if (link.isSentenced) this.door.refused--;
    this.#strangers.remove(link);
    if (session === null || this.#draining) return;
    this.tools?.left(link);
    this.#sessions.left(session, link, severed);
  }

  /** Has a client seen a later state than ours, or another one under our address? Then ours was put back, or begun anew. */
  #isOutdatedBy(seen: SeenState | null | undefined): boolean {
    const state = this.backend.identity ?? null;
    if (state === null || !seen || seen.start === this.start) return false;
    return seen.id !== state.id || seen.generation >= state.generation;
  }

  #known(link: Link): void {
    this.#strangers.remove(link);
    this.door.known(link.origin, link);
  }

  /** The accounts have changed: whoever came in by a credential that is gone goes. */
  #reexamine(): void {
    for (const link of [...this.#links]) {
      if (link.session !== null && !link.session.principal.valid) link.sever(new ProtocolError("AUTH", NO_CREDENTIAL));
    }
    this.settle();
  }

  #tick(): void {
    this.#armedFor = Number.POSITIVE_INFINITY;
    if (this.#draining) return;
    const now = this.clock.now();
    for (let link = this.#strangers.takeDue(now); link !== null; link = this.#strangers.takeDue(now)) {
      link.refuse(link.verdict ?? new ProtocolError("PROTOCOL", "no hello in time"));
    }
    this.#sessions.advance(now);
    this.backend.advance(now);
    this.settle();
  }

  /** The timer is only ever moved forward: an early ring costs less than arming it anew for every claim. */
  #arm(): void {
    if (this.#draining) return;
    const next = Math.min(
      this.backend.nextDue(),
      this.#sessions.nextDue() ?? Number.POSITIVE_INFINITY,
      this.#strangers.next() ?? Number.POSITIVE_INFINITY,
    );
    if (next >= this.#armedFor) return;
    this.#armedFor = next;
    this.#timer.set(next);
  }
}

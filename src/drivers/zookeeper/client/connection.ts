/**
 * One session with an ensemble, over its connections.
 *
 *   idle      before open()
 *   dialing   a connection is being made to one of the servers
 *   greeting  it stands; the session is being made, or found again
 *   proving   with SASL only: the server's challenges are answered
 *   up        requests leave as they come
 *   resting   the attempt failed; the next server has its turn in a moment
 *   over      closed, or refused for good; open() begins anew
 *
 * Invariants
 * - On a new connection first credentials are sent, then watches, then requests: nothing is asked as nobody.
 * - No request is answered on a connection before SetWatches2 was: a server that does not know it (before 3.6) would lose our
 *   watches at the first reconnect, and is refused for good, on whichever connection it is met.
 * - Replies come in the order of requests: one that is not the oldest's ends the connection.
 * - What has left and has no answer when its connection ends has an unknown outcome, and is never sent again.
 * - A session ends by our own clock (session-clock.ts) before its server may end it, whether we reach anybody or not. Then
 *   what was asked within it fails, its watches end, and another one is made.
 * - Another session number than ours after a reconnect means that ours is gone.
 */

import type { Clock, Timer } from "../../../clock.ts";
import type { Request } from "./calls.ts";
import { Calls } from "./calls.ts";
import { AuthFailedError, closedError, errorOf, OutdatedServerError, SessionExpiredError } from "./errors.ts";
import { Handshake } from "./handshake.ts";
import type { ConnectionOptions, Hooks } from "./hooks.ts";
import { JuteError, JuteReader, JuteWriter } from "./jute.ts";
import { closeSession } from "./operations.ts";
import { OP, readEvent, XID } from "./records.ts";
import { Servers } from "./servers.ts";
import type { Session } from "./session-clock.ts";
import { SessionClock } from "./session-clock.ts";
import { Watches } from "./watches.ts";
import type { Wire } from "./wire.ts";

const EXPIRED = -112;
const UNIMPLEMENTED = -6;

export class Connection {
  readonly watches: Watches = new Watches();
  readonly #options: ConnectionOptions;
  readonly #hooks: Hooks;
  readonly #clock: Clock;
  readonly #timer: Timer;
  readonly #handshake: Handshake;
  readonly #calls = new Calls();
  #at: "idle" | "dialing" | "greeting" | "proving" | "up" | "resting" | "over" = "idle";
  #wire: Wire | null = null;
  #session: Session | null = null;
  /** Its owner knows the session that stands. */
  #isKnown = false;
  #lastZxid = 0n;
  readonly #servers: Servers;
  #greetedAt = 0;
  #flushing = false;
  /** Why it is over. */
  #ended: Error = closedError();
  #needed = false;
  #alive = false;

  constructor(options: ConnectionOptions, hooks: Hooks) {
    this.#options = options;
    this.#hooks = hooks;
    this.#clock = options.clock;
    this.#handshake = new Handshake(options.auth, options.sasl);
    this.#servers = new Servers(options.servers, options.random, options.retry);
    this.#timer = options.clock.timer(() => this.#tick());
  }

  get isOver(): boolean {
    return this.#at === "over";
  }

  get isUp(): boolean {
    return this.#at === "up";
  }

  /** Why the last connection ended, or never stood. */
  get failure(): Error | null {
    return this.#servers.failure;
  }

  /** 0: there is none. */
  get sessionId(): bigint {
    return this.#session?.id ?? 0n;
  }

  /** What the servers agreed to, or what they will be asked for. */
  get sessionMs(): number {
    return this.#session?.time.timeoutMs ?? this.#options.sessionMs;
  }

  /** Milliseconds for which the session cannot have ended yet; 0: it may have. */
  leftMs(): number {
    return this.#session === null ? 0 : Math.max(this.#session.time.endsAt() - this.#clock.now(), 0);
  }

  open(): void {
    if (this.#at === "idle" || this.#at === "over") this.#dial();
  }

  /** Settles with the answer, or fails with an error of errors.ts. Waits for a connection as long as `withinMs` allows. */
  ask<T>(request: Request<T>, withinMs: number): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.#at === "over") return reject(this.#ended);
      this.#calls.add(request, this.#clock.now() + withinMs, resolve, reject);
      if (this.#at === "up") this.#flushSoon();
      this.#arm();
    });
  }

  /** Keeps the process alive for the session's sake, or not. */
  need(on: boolean): void {
    this.#needed = on;
    this.#arm();
  }

  /** Ends the session, if it can be reached within so long (null: it is left to its own time), and everything else. */
  async close(withinMs: number | null): Promise<void> {
    if (this.#session !== null && withinMs !== null) {
      // a server that is not told ends it by itself
      await this.ask(closeSession(), withinMs).catch(() => undefined);
    }
    this.#end(closedError());
  }

  #end(error: Error): void {
    if (this.#at === "over") return;
    this.#at = "over";
    this.#ended = error;
    this.#wire?.close();
    this.#wire = null;
    this.#forget(error);
    this.#arm();
    this.#timer.stop();
    this.#hooks.over(error);
  }

  #forget(error: Error): void {
    this.#session = null;
    this.#isKnown = false;
    // a store that was restored, or is empty, is behind what the last session saw, and would refuse us for ever
    this.#lastZxid = 0n;
    this.#calls.failAll(error);
    this.watches.end();
  }

  #dial(): void {
    this.#at = "dialing";
    this.#wire = this.#options.dial(this.#servers.next(this.#clock.now(), this.sessionMs), {
      connected: () => this.#greet(),
      frames: (frames) => this.#frames(frames),
      closed: (error) => this.#lost(error),
    });
    this.#wire.keepAlive(this.#alive);
    this.#arm();
  }

  #greet(): void {
    this.#at = "greeting";
    this.#greetedAt = this.#clock.now();
    this.#wire?.write([this.#handshake.hello(this.#lastZxid, this.#options.sessionMs, this.#session)]);
  }

  #frames(frames: readonly Buffer[]): void {
    this.#session?.time.heard(this.#clock.now());
    try {
      for (const frame of frames) {
        if (this.#at === "greeting") this.#welcome(frame);
        else if (this.#at === "proving") this.#prove(frame);
        else if (this.#at === "up") this.#reply(new JuteReader(frame));
      }
    } catch (error) {
      if (error instanceof AuthFailedError || error instanceof OutdatedServerError) return this.#end(error);
      if (!(error instanceof JuteError)) throw error;
      this.#lost(error);
    }
    this.#arm();
  }

  #welcome(frame: Buffer): void {
    const { timeoutMs, sessionId: id, password } = this.#handshake.welcome(frame);
    if (timeoutMs <= 0 || (this.#session !== null && this.#session.id !== id)) this.#expire();
    if (timeoutMs <= 0) return this.#lost(null);
    this.#session ??= { id, password, time: new SessionClock(timeoutMs, this.#greetedAt) };
    this.#session.time.attached(timeoutMs, this.#greetedAt, this.#clock.now());
    const question = this.#handshake.challengeMe();
    if (question === null) return this.#up();
    this.#at = "proving";
    this.#wire?.write([question]);
  }

  #prove(frame: Buffer): void {
    const answer = this.#handshake.prove(frame);
    if (answer === null) this.#up();
    else this.#wire?.write([answer]);
  }

  #up(): void {
    this.#at = "up";
    this.#servers.reached();
    this.#wire?.write([...this.#handshake.credentials(), ...this.#handshake.watches(this.watches, this.#lastZxid)]);
    this.#flush();
    const renewed = !this.#isKnown;
    this.#isKnown = true;
    this.#hooks.connected(renewed);
  }

  #reply(reader: JuteReader): void {
    const [xid, zxid, code] = [reader.int(), reader.long(), reader.int()];
    if (zxid > 0n) this.#lastZxid = zxid;
    switch (xid) {
      case XID.event: {
        const event = readEvent(reader);
        if (event !== null) this.watches.fire(event);
        return;
      }
      case XID.ping:
        return this.#session?.time.pingAnswered();
      case XID.auth:
        if (code !== 0) throw new AuthFailedError();
        return;
      case XID.setWatches:
        if (code === UNIMPLEMENTED) throw new OutdatedServerError();
        // without its watches this connection is worth nothing
        if (code !== 0) this.#lost(errorOf(code, "set watches"));
        return;
    }
    const sentAt = this.#calls.reply(xid, zxid, code, reader);
    // the server says that it has ended the session meanwhile; nothing is proved by that
    if (code === EXPIRED) this.#lost(new SessionExpiredError());
    else this.#session?.time.answered(sentAt);
  }

  /** All that one turn of the event loop wants leaves in one write. */
  #flushSoon(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    queueMicrotask(() => process.nextTick(() => this.#flush()));
  }

  #flush(): void {
    this.#flushing = false;
    if (this.#at !== "up") return;
    const now = this.#clock.now();
    const frames = this.#calls.send(now);
    if (frames.length === 0) return;
    this.#session?.time.sent(now);
    this.#wire?.write(frames);
    this.#arm();
  }

  /** The connection has ended, or never stood, or is worth nothing. */
  #lost(cause: Error | null): void {
    if (this.#at === "over" || this.#at === "resting") return;
    const wasUp = this.#at === "up";
    this.#wire?.close();
    this.#wire = null;
    this.#servers.failed(this.#clock.now(), cause);
    this.#at = "resting";
    this.#calls.lost(cause);
    if (wasUp) this.#hooks.suspended();
    if (cause instanceof SessionExpiredError) this.#expire();
    this.#arm();
  }

  /** The session is over; the next connection makes another one. */
  #expire(): void {
    if (this.#session === null) return;
    const wasKnown = this.#isKnown;
    this.#forget(new SessionExpiredError());
    if (wasKnown) this.#hooks.expired();
  }

  #tick(): void {
    const now = this.#clock.now();
    if (this.#session !== null && now >= this.#session.time.endsAt()) {
      this.#lost(new SessionExpiredError());
      this.#expire();
    }
    const connects = this.#at === "dialing" || this.#at === "greeting" || this.#at === "proving";
    if (connects && now >= this.#servers.dueAt) this.#lost(new Error("no answer in time"));
    if (this.#at === "up" && this.#session !== null) this.#keepUp(this.#session.time, now);
    if (this.#at === "resting" && now >= this.#servers.dueAt) this.#dial();
    this.#calls.endLate(now);
    this.#arm();
  }

  #keepUp(time: SessionClock, now: number): void {
    if (now >= time.deadAt()) return this.#lost(new Error("the server has fallen silent"));
    if (now < time.pingDueAt()) return;
    time.pinged(now);
    this.#wire?.write([new JuteWriter().int(XID.ping).int(OP.ping).frame()]);
  }

  #arm(): void {
    if (this.#at === "idle") return;
    const alive = this.#at !== "over" && (this.#needed || this.#calls.size > 0);
    if (alive !== this.#alive) {
      this.#alive = alive;
      this.#wire?.keepAlive(alive);
      this.#timer.keepAlive(alive);
    }
    if (this.#at === "over") return;
    const time = this.#session?.time;
    let due = Math.min(this.#calls.dueAt, time?.endsAt() ?? Number.POSITIVE_INFINITY);
    if (this.#at !== "up") due = Math.min(due, this.#servers.dueAt);
    else if (time !== undefined) due = Math.min(due, time.pingDueAt(), time.deadAt());
    this.#timer.set(due === Number.POSITIVE_INFINITY ? null : due);
  }
}

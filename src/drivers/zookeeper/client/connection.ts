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
 * - A session ends by our own clock (session-timer.ts) before its server may end it, whether we reach anybody or not. Then
 *   what was asked within it fails, its watches end, and another one is made.
 * - Another session number than ours after a reconnect means that ours is gone.
 */

import type { Clock, Timer } from "../../../util/clock.ts";
import type { ConnectionListener, ConnectionOptions } from "./connection-options.ts";
import {
  AuthFailedError,
  createClosedError,
  OutdatedServerError,
  SessionExpiredError,
  toServerError,
} from "./errors.ts";
import { Handshake } from "./handshake.ts";
import { JuteError, JuteReader, JuteWriter } from "./jute.ts";
import { closeSession } from "./operations.ts";
import { OP, readEvent, XID } from "./records.ts";
import type { Request } from "./requests.ts";
import { PendingRequests } from "./requests.ts";
import { ServerList } from "./server-list.ts";
import type { Session } from "./session-timer.ts";
import { SessionTimer } from "./session-timer.ts";
import type { Transport } from "./transport.ts";
import { Watches } from "./watches.ts";

const EXPIRED_CODE = -112;
const UNIMPLEMENTED_CODE = -6;

export class Connection {
  readonly watches: Watches = new Watches();
  readonly #options: ConnectionOptions;
  readonly #listener: ConnectionListener;
  readonly #clock: Clock;
  readonly #timer: Timer;
  readonly #handshake: Handshake;
  readonly #requests = new PendingRequests();
  #status: "idle" | "dialing" | "greeting" | "proving" | "up" | "resting" | "over" = "idle";
  #transport: Transport | null = null;
  #session: Session | null = null;
  /** Its owner knows the session that stands. */
  #isSessionReported = false;
  #lastZxid = 0n;
  readonly #servers: ServerList;
  #helloSentAt = 0;
  #isFlushScheduled = false;
  /** Why it is over. */
  #closeError: Error = createClosedError();
  #isNeeded = false;
  #isKeptAlive = false;

  constructor(options: ConnectionOptions, listener: ConnectionListener) {
    this.#options = options;
    this.#listener = listener;
    this.#clock = options.clock;
    this.#handshake = new Handshake(options.auth, options.sasl);
    this.#servers = new ServerList(options.servers, options.random, options.retry);
    this.#timer = options.clock.timer(() => this.#onTimer());
  }

  get isClosed(): boolean {
    return this.#status === "over";
  }

  get isConnected(): boolean {
    return this.#status === "up";
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
    return this.#session?.timer.timeoutMs ?? this.#options.sessionMs;
  }

  /** Milliseconds for which the session cannot have ended yet; 0: it may have. */
  leftMs(): number {
    return this.#session === null ? 0 : Math.max(this.#session.timer.endsAt() - this.#clock.now(), 0);
  }

  open(): void {
    if (this.#status === "idle" || this.#status === "over") this.#connect();
  }

  /** Settles with the answer, or fails with an error of errors.ts. Waits for a connection as long as `timeoutMs` allows. */
  request<T>(request: Request<T>, timeoutMs: number): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.#status === "over") return reject(this.#closeError);
      this.#requests.add(request, this.#clock.now() + timeoutMs, resolve, reject);
      if (this.#status === "up") this.#scheduleFlush();
      this.#armTimer();
    });
  }

  /** Keeps the process alive for the session's sake, or not. */
  keepAlive(on: boolean): void {
    this.#isNeeded = on;
    this.#armTimer();
  }

  /** Ends the session, if it can be reached within so long (null: it is left to its own time), and everything else. */
  async close(timeoutMs: number | null): Promise<void> {
    if (this.#session !== null && timeoutMs !== null) {
      // a server that is not told ends it by itself
      await this.request(closeSession(), timeoutMs).catch(() => undefined);
    }
    this.#closeWith(createClosedError());
  }

  #closeWith(error: Error): void {
    if (this.#status === "over") return;
    this.#status = "over";
    this.#closeError = error;
    this.#transport?.close();
    this.#transport = null;
    this.#endSession(error);
    this.#armTimer();
    this.#timer.stop();
    this.#listener.onClosed(error);
  }

  #endSession(error: Error): void {
    this.#session = null;
    this.#isSessionReported = false;
    // a store that was restored, or is empty, is behind what the last session saw, and would refuse us for ever
    this.#lastZxid = 0n;
    this.#requests.rejectAll(error);
    this.watches.end();
  }

  #connect(): void {
    this.#status = "dialing";
    this.#transport = this.#options.connector(this.#servers.next(this.#clock.now(), this.sessionMs), {
      onConnected: () => this.#sendHello(),
      onFrames: (frames) => this.#onFrames(frames),
      onClosed: (error) => this.#onDisconnected(error),
    });
    this.#transport.keepAlive(this.#isKeptAlive);
    this.#armTimer();
  }

  #sendHello(): void {
    this.#status = "greeting";
    this.#helloSentAt = this.#clock.now();
    this.#transport?.write([this.#handshake.encodeConnect(this.#lastZxid, this.#options.sessionMs, this.#session)]);
  }

  #onFrames(frames: readonly Buffer[]): void {
    this.#session?.timer.recordReceived(this.#clock.now());
    try {
      for (const frame of frames) {
        if (this.#status === "greeting") this.#onHello(frame);
        else if (this.#status === "proving") this.#authenticate(frame);
        else if (this.#status === "up") this.#onReply(new JuteReader(frame));
      }
    } catch (error) {
      if (error instanceof AuthFailedError || error instanceof OutdatedServerError) return this.#closeWith(error);
      if (!(error instanceof JuteError)) throw error;
      this.#onDisconnected(error);
    }
    this.#armTimer();
  }

  #onHello(frame: Buffer): void {
    const { timeoutMs, sessionId: id, password } = this.#handshake.decodeConnect(frame);
    if (timeoutMs <= 0 || (this.#session !== null && this.#session.id !== id)) this.#expire();
    if (timeoutMs <= 0) return this.#onDisconnected(null);
    this.#session ??= { id, password, timer: new SessionTimer(timeoutMs, this.#helloSentAt) };
    this.#session.timer.onAttached(timeoutMs, this.#helloSentAt, this.#clock.now());
    const saslStart = this.#handshake.encodeSaslStart();
    if (saslStart === null) return this.#onConnected();
    this.#status = "proving";
    this.#transport?.write([saslStart]);
  }

  #authenticate(frame: Buffer): void {
    const answer = this.#handshake.answerChallenge(frame);
    if (answer === null) this.#onConnected();
    else this.#transport?.write([answer]);
  }

  #onConnected(): void {
    this.#status = "up";
    this.#servers.onConnected();
    this.#transport?.write([
      ...this.#handshake.encodeCredentials(),
      ...this.#handshake.encodeWatches(this.watches, this.#lastZxid),
    ]);
    this.#flush();
    const isNewSession = !this.#isSessionReported;
    this.#isSessionReported = true;
    this.#listener.onConnected(isNewSession);
  }

  #onReply(reader: JuteReader): void {
    const [xid, zxid, code] = [reader.int(), reader.long(), reader.int()];
    if (zxid > 0n) this.#lastZxid = zxid;
    switch (xid) {
      case XID.event: {
        const event = readEvent(reader);
        if (event !== null) this.watches.fire(event);
        return;
      }
      case XID.ping:
        return this.#session?.timer.recordPingAnswered();
      case XID.auth:
        if (code !== 0) throw new AuthFailedError();
        return;
      case XID.setWatches:
        if (code === UNIMPLEMENTED_CODE) throw new OutdatedServerError();
        // without its watches this connection is worth nothing
        if (code !== 0) this.#onDisconnected(toServerError(code, "set watches"));
        return;
    }
    const sentAt = this.#requests.settleOldest(xid, zxid, code, reader);
    // the server says that it has ended the session meanwhile; nothing is proved by that
    if (code === EXPIRED_CODE) this.#onDisconnected(new SessionExpiredError());
    else this.#session?.timer.recordAnswered(sentAt);
  }

  /** All that one turn of the event loop wants leaves in one write. */
  #scheduleFlush(): void {
    if (this.#isFlushScheduled) return;
    this.#isFlushScheduled = true;
    queueMicrotask(() => process.nextTick(() => this.#flush()));
  }

  #flush(): void {
    this.#isFlushScheduled = false;
    if (this.#status !== "up") return;
    const now = this.#clock.now();
    const frames = this.#requests.drain(now);
    if (frames.length === 0) return;
    this.#session?.timer.recordSent(now);
    this.#transport?.write(frames);
    this.#armTimer();
  }

  /** The connection has ended, or never stood, or is worth nothing. */
  #onDisconnected(cause: Error | null): void {
    if (this.#status === "over" || this.#status === "resting") return;
    const wasConnected = this.#status === "up";
    this.#transport?.close();
    this.#transport = null;
    this.#servers.onFailed(this.#clock.now(), cause);
    this.#status = "resting";
    this.#requests.rejectSent(cause);
    if (wasConnected) this.#listener.onSuspended();
    if (cause instanceof SessionExpiredError) this.#expire();
    this.#armTimer();
  }

  /** The session is over; the next connection makes another one. */
  #expire(): void {
    if (this.#session === null) return;
    const wasKnown = this.#isSessionReported;
    this.#endSession(new SessionExpiredError());
    if (wasKnown) this.#listener.onExpired();
  }

  #onTimer(): void {
    const now = this.#clock.now();
    if (this.#session !== null && now >= this.#session.timer.endsAt()) {
      this.#onDisconnected(new SessionExpiredError());
      this.#expire();
    }
    const isConnecting = this.#status === "dialing" || this.#status === "greeting" || this.#status === "proving";
    if (isConnecting && now >= this.#servers.dueAt) this.#onDisconnected(new Error("no answer in time"));
    if (this.#status === "up" && this.#session !== null) this.#checkLiveness(this.#session.timer, now);
    if (this.#status === "resting" && now >= this.#servers.dueAt) this.#connect();
    this.#requests.rejectOverdue(now);
    this.#armTimer();
  }

  #checkLiveness(timer: SessionTimer, now: number): void {
    if (now >= timer.deadAt()) return this.#onDisconnected(new Error("the server has fallen silent"));
    if (now < timer.pingDueAt()) return;
    timer.recordPing(now);
    this.#transport?.write([new JuteWriter().int(XID.ping).int(OP.ping).frame()]);
  }

  #armTimer(): void {
    if (this.#status === "idle") return;
    const isKeptAlive = this.#status !== "over" && (this.#isNeeded || this.#requests.size > 0);
    if (isKeptAlive !== this.#isKeptAlive) {
      this.#isKeptAlive = isKeptAlive;
      this.#transport?.keepAlive(isKeptAlive);
      this.#timer.keepAlive(isKeptAlive);
    }
    if (this.#status === "over") return;
    const timer = this.#session?.timer;
    let dueAt = Math.min(this.#requests.dueAt, timer?.endsAt() ?? Number.POSITIVE_INFINITY);
    if (this.#status !== "up") dueAt = Math.min(dueAt, this.#servers.dueAt);
    else if (timer !== undefined) dueAt = Math.min(dueAt, timer.pingDueAt(), timer.deadAt());
    this.#timer.set(dueAt === Number.POSITIVE_INFINITY ? null : dueAt);
  }
}

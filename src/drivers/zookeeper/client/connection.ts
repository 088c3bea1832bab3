/**
 * One session with an ensemble, across its connections.
 *
 *   idle            before open()
 *   connecting      a connection to one of the servers is being made
 *   handshaking     connected; the session is being opened or resumed
 *   authenticating  with SASL only: the server's challenges are answered
 *   connected       requests are sent at once
 *   backingOff      the attempt failed; the next server is tried soon
 *   closed          closed, or refused permanently; open() starts again
 *
 * Invariants
 * - A new connection sends credentials first, then watches, then requests: no request is sent unauthenticated.
 * - No request is answered on a connection before SetWatches2 was. A server that does not support it (before 3.6) would
 *   lose the watches at the first reconnect; it is refused permanently, on any connection.
 * - Replies come in the order of requests: a reply to any but the oldest request ends the connection.
 * - A request that was sent and not answered when its connection ends has an unknown outcome, and is never sent again.
 * - A session ends by this client's clock (session-timer.ts) before its server may end it, even if no server can be
 *   reached. Then its requests fail, its watches end, and another session is opened.
 * - Another session id after a reconnect means that the session has ended.
 */

import type { Transport, TransportEvents } from "../../../net/transport.ts";
import type { Clock, Timer } from "../../../util/clock.ts";
import {
  AuthFailedError,
  createClosedError,
  OutdatedServerError,
  SessionExpiredError,
  toServerError,
} from "./errors.ts";
import type { AuthInfo } from "./handshake.ts";
import { Handshake } from "./handshake.ts";
import { FrameReader, JuteError, JuteReader, JuteWriter } from "./jute.ts";
import { closeSession } from "./operations.ts";
import { OP, readEvent, XID } from "./records.ts";
import type { Request } from "./requests.ts";
import { PendingRequests } from "./requests.ts";
import type { SaslOptions } from "./sasl.ts";
import type { RetryPolicy, ServerAddress } from "./server-list.ts";
import { ServerList } from "./server-list.ts";
import type { Session } from "./session-timer.ts";
import { SessionTimer } from "./session-timer.ts";
import { Watches } from "./watches.ts";

const EXPIRED_CODE = -112;
const UNIMPLEMENTED_CODE = -6;
/** A list of 100,000 children has about 6 MB. */
const MAX_FRAME_BYTES = 16_777_216;

/** Begins to connect to one of the servers. Never calls the events synchronously. */
export type ServerConnector = (address: ServerAddress, events: TransportEvents) => Transport;

/** How to connect and authenticate. */
export interface ConnectionOptions {
  /** At least one. */
  readonly servers: readonly ServerAddress[];
  readonly connector: ServerConnector;
  readonly clock: Clock;
  readonly random: () => number;
  readonly retry: RetryPolicy;
  /** The requested session length; the servers limit it. */
  readonly sessionMs: number;
  readonly auth: readonly AuthInfo[];
  readonly sasl: SaslOptions | null;
}

/** Receives the events of a connection. */
export interface ConnectionListener {
  /** isNewSession: the session is another one than before, or the first. */
  onConnected(isNewSession: boolean): void;
  /** The connection is lost; the session may still live. */
  onSuspended(): void;
  /** The session has ended. */
  onExpired(): void;
  /** The connection was closed, or was refused permanently. */
  onClosed(error: Error): void;
}

export class Connection {
  readonly watches: Watches = new Watches();
  readonly #options: ConnectionOptions;
  readonly #listener: ConnectionListener;
  readonly #clock: Clock;
  readonly #timer: Timer;
  readonly #handshake: Handshake;
  readonly #requests = new PendingRequests();
  #status: "idle" | "connecting" | "handshaking" | "authenticating" | "connected" | "backingOff" | "closed" = "idle";
  #transport: Transport | null = null;
  #session: Session | null = null;
  /** The listener knows the current session. */
  #isSessionReported = false;
  #lastZxid = 0n;
  readonly #servers: ServerList;
  #helloSentAt = 0;
  #isFlushScheduled = false;
  /** Why the connection was closed. */
  #closeError: Error = createClosedError();
  #isNeeded = false;
  #isClosing = false;
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
    return this.#status === "closed";
  }

  get isConnected(): boolean {
    return this.#status === "connected";
  }

  /** Why the last connection ended, or could not be made. */
  get failure(): Error | null {
    return this.#servers.failure;
  }

  /** 0: there is no session. */
  get sessionId(): bigint {
    return this.#session?.id ?? 0n;
  }

  /** The length that the servers agreed to, or the length to request. */
  get sessionMs(): number {
    return this.#session?.timer.timeoutMs ?? this.#options.sessionMs;
  }

  /** How long the session certainly lasts, in milliseconds; 0: it may have ended. */
  remainingMs(): number {
    return this.#session === null ? 0 : Math.max(this.#session.timer.endsAt() - this.#clock.now(), 0);
  }

  open(): void {
    if (this.#status === "idle" || this.#status === "closed") this.#connect();
  }

  /** Settles with the answer, or an error of errors.ts. Waits for a connection, for `timeoutMs` at most. */
  request<T>(request: Request<T>, timeoutMs: number): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.#status === "closed") return reject(this.#closeError);
      this.#requests.add(request, this.#clock.now() + timeoutMs, resolve, reject);
      if (this.#status === "connected") this.#scheduleFlush();
      this.#armTimer();
    });
  }

  /** Sets whether the session keeps the process alive. Requests do not. */
  keepAlive(on: boolean): void {
    this.#isNeeded = on;
    this.#armTimer();
  }

  /**
   * Closes the connection. First ends the session, if a server answers within that time; null: leaves the session to
   * expire.
   */
  async close(timeoutMs: number | null): Promise<void> {
    if (this.#session !== null && timeoutMs !== null) {
      this.#isClosing = true;
      // without an answer the server ends the session when it expires
      await this.request(closeSession(), timeoutMs).catch(() => undefined);
    }
    this.#isClosing = false;
    this.#closeWith(createClosedError());
  }

  #closeWith(error: Error): void {
    if (this.#status === "closed") return;
    this.#status = "closed";
    this.#closeError = error;
    this.#closeTransport();
    this.#endSession(error);
    this.#armTimer();
    this.#timer.stop();
    this.#listener.onClosed(error);
  }

  #endSession(error: Error): void {
    this.#session = null;
    this.#isSessionReported = false;
    // a restored or empty store is behind the last session's transactions, and would refuse this client for ever
    this.#lastZxid = 0n;
    this.#requests.rejectAll(error);
    this.watches.end();
  }

  #connect(): void {
    this.#status = "connecting";
    // half a frame of an earlier connection must not be read as the beginning of this one
    const reader = new FrameReader(MAX_FRAME_BYTES);
    this.#transport = this.#options.connector(this.#servers.next(this.#clock.now(), this.sessionMs), {
      onConnected: () => this.#sendHello(),
      onData: (chunk) => this.#onData(reader, chunk),
      onClosed: (error) => this.#onDisconnected(error),
    });
    this.#transport.keepAlive(this.#isKeptAlive);
    this.#armTimer();
  }

  #sendHello(): void {
    this.#status = "handshaking";
    this.#helloSentAt = this.#clock.now();
    this.#write([this.#handshake.encodeConnect(this.#lastZxid, this.#options.sessionMs, this.#session)]);
  }

  #onData(reader: FrameReader, chunk: Buffer): void {
    this.#session?.timer.recordReceived(this.#clock.now());
    try {
      for (const frame of reader.push(chunk)) {
        if (this.#status === "handshaking") this.#onHello(frame);
        else if (this.#status === "authenticating") this.#authenticate(frame);
        else if (this.#status === "connected") this.#onReply(new JuteReader(frame));
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
    this.#status = "authenticating";
    this.#write([saslStart]);
  }

  #authenticate(frame: Buffer): void {
    const answer = this.#handshake.answerChallenge(frame);
    if (answer === null) this.#onConnected();
    else this.#write([answer]);
  }

  #onConnected(): void {
    this.#status = "connected";
    this.#servers.onConnected();
    this.#write([
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
        // the connection is unusable without its watches
        if (code !== 0) this.#onDisconnected(toServerError(code, "set watches"));
        return;
    }
    const sentAt = this.#requests.settleOldest(xid, zxid, code, reader);
    // the server reports that the session has ended: such a reply must not extend it
    if (code === EXPIRED_CODE) this.#onDisconnected(new SessionExpiredError());
    else this.#session?.timer.recordAnswered(sentAt);
  }

  /** Sends the requests of one turn of the event loop in one write. */
  #scheduleFlush(): void {
    if (this.#isFlushScheduled) return;
    this.#isFlushScheduled = true;
    queueMicrotask(() => process.nextTick(() => this.#flush()));
  }

  #flush(): void {
    this.#isFlushScheduled = false;
    if (this.#status !== "connected") return;
    const now = this.#clock.now();
    const frames = this.#requests.drain(now);
    if (frames.length === 0) return;
    this.#session?.timer.recordSent(now);
    this.#write(frames);
    this.#armTimer();
  }

  /** The connection has ended, could not be made, or is unusable. */
  #onDisconnected(cause: Error | null): void {
    if (this.#status === "closed" || this.#status === "backingOff") return;
    const wasConnected = this.#status === "connected";
    this.#closeTransport();
    this.#servers.onFailed(this.#clock.now(), cause);
    this.#status = "backingOff";
    this.#requests.rejectSent(cause);
    if (wasConnected) this.#listener.onSuspended();
    if (cause instanceof SessionExpiredError) this.#expire();
    this.#armTimer();
  }

  #write(frames: readonly Buffer[]): void {
    this.#transport?.write(frames.length === 1 ? (frames[0] as Buffer) : Buffer.concat(frames));
  }

  #closeTransport(): void {
    // data that a silent server does not take must not keep the process alive
    this.#transport?.keepAlive(false);
    this.#transport?.close();
    this.#transport = null;
  }

  /** The session has ended; the next connection opens another one. */
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
    const isConnecting =
      this.#status === "connecting" || this.#status === "handshaking" || this.#status === "authenticating";
    if (isConnecting && now >= this.#servers.dueAt) this.#onDisconnected(new Error("no answer in time"));
    if (this.#status === "connected" && this.#session !== null) this.#checkLiveness(this.#session.timer, now);
    if (this.#status === "backingOff" && now >= this.#servers.dueAt) this.#connect();
    this.#requests.rejectOverdue(now);
    this.#armTimer();
  }

  #checkLiveness(timer: SessionTimer, now: number): void {
    if (now >= timer.deadAt()) return this.#onDisconnected(new Error("the server stopped answering"));
    if (now < timer.pingDueAt()) return;
    timer.recordPing(now);
    this.#write([new JuteWriter().int(XID.ping).int(OP.ping).frame()]);
  }

  #armTimer(): void {
    if (this.#status === "idle") return;
    const isKeptAlive = this.#status !== "closed" && (this.#isNeeded || this.#isClosing);
    if (isKeptAlive !== this.#isKeptAlive) {
      this.#isKeptAlive = isKeptAlive;
      this.#transport?.keepAlive(isKeptAlive);
      this.#timer.keepAlive(isKeptAlive);
    }
    if (this.#status === "closed") return;
    const timer = this.#session?.timer;
    let dueAt = Math.min(this.#requests.dueAt, timer?.endsAt() ?? Number.POSITIVE_INFINITY);
    if (this.#status !== "connected") dueAt = Math.min(dueAt, this.#servers.dueAt);
    else if (timer !== undefined) dueAt = Math.min(dueAt, timer.pingDueAt(), timer.deadAt());
    this.#timer.set(dueAt === Number.POSITIVE_INFINITY ? null : dueAt);
  }
}

/**
 * One client's connection to a server, across reconnects: calls, their replies, and when to connect.
 *
 *   idle         no transport, and none is needed. After a loss that the server did not announce it still reconnects
 *                for RECONNECT_WINDOW_MS, but starts no server for that: a server that has crashed waits in its
 *                recovery for every client that may hold a claim.
 *   connecting   a transport is being prepared or connected; calls wait, for CALL_WAIT_MS at most
 *   connected    both sides have said hello
 *   backingOff   an attempt failed, and the next one is scheduled. Calls fail once CALL_WAIT_MS have passed since the
 *                connection was lost.
 *   closed       for ever
 *
 * Invariants
 * - A reply counts only if it came over the transport its call was sent on: when a transport ends, all its calls fail.
 * - One attempt at a time: events of an earlier attempt are ignored.
 * - A healthy transport on which silence ends nothing (a Unix socket) is never closed from here: the server would take
 *   that for the death of the client.
 */

import { ClosedError, StoreRefusedError } from "../../errors.ts";
import type { Connector, Transport } from "../../net/transport.ts";
import { createConnectError, isTransientConnectError } from "../../net/transport.ts";
import { readStartTime } from "../../os/process-info.ts";
import { decodeLine, encodePing } from "../../protocol/frames.ts";
import type { LastSeenState, ServerHello } from "../../protocol/handshake.ts";
import {
  decodeConnectionError,
  decodeServerHello,
  encodeClientHello,
  PACKAGE_VERSION,
  PROTOCOL_VERSION,
  ProtocolError,
} from "../../protocol/handshake.ts";
import { encodeLines, LineDecoder } from "../../protocol/lines.ts";
import { backoffMs } from "../../util/backoff.ts";
import type { Clock, Timer } from "../../util/clock.ts";
import type { SilenceLimits } from "./heartbeat.ts";
import { Heartbeat } from "./heartbeat.ts";
import { PendingCalls } from "./pending-calls.ts";

/** How long calls wait for a lost connection. */
const CALL_WAIT_MS = 1_000;
const MAX_BACKOFF_MS = 2_000;
const RECONNECT_WINDOW_MS = 30_000;
const CLOSED_MESSAGE = "the driver was closed";
/** The longest line from a server: the replies to all calls of one line, or a page of claims with many keys. */
const MAX_LINE_BYTES = 67_108_864;
/** This many frames are written before the turn ends: the server works on them while the client encodes the others. */
const FLUSH_THRESHOLD = 16;
/**
 * What the code of a refused hello means for another attempt: "useless", or "open": also open() makes one. A full
 * server will have room again. After any other code only a driver that is open tries again.
 */
const HELLO_RETRIES: ReadonlyMap<string, "useless" | "open"> = new Map([
  ["AUTH", "useless"],
  ["UNSUPPORTED", "useless"],
  ["VERSION", "useless"],
  ["LIMIT", "open"],
  ["DRAINING", "open"],
]);

export interface ConnectionOptions {
  readonly connector: Connector;
  /** Called, and awaited, before each attempt to connect; it may start the server. */
  readonly beforeConnect: (() => Promise<void>) | undefined;
  readonly connectTimeoutMs: number;
  /** open() rejects at the first failure, instead of trying until the timeout. */
  readonly opensOnce: boolean;
  /** A secret. */
  readonly sessionId: string;
  readonly label: string;
  /** Read for each connection, since it may have been rotated; a secret. */
  readonly credential: string | (() => string) | undefined;
  readonly clock: Clock;
  readonly random: () => number;
}

/** What the connection asks of its driver. */
export interface ConnectionListener {
  /** The state of the last server, for the next hello. */
  lastSeenState(): LastSeenState | null;
  /** Both sides have said hello. Calls made here are sent before all calls that waited for the connection. */
  onConnected(hello: ServerHello, previousRunId: string | null): void;
  /** The connection has ended; it reconnects by itself while it is needed. */
  onDisconnected?(): void;
  /** A frame that is not a reply to a call. */
  onPush(frame: readonly unknown[]): void;
  /** Is the connection needed for more than the pending calls? */
  isNeeded(): boolean;
  /** Must the client send heartbeats even when it has no calls? */
  needsHeartbeat(): boolean;
  /** The shortest lease that the connection carries; absent: it carries none. */
  shortestLeaseMs?(): number;
}

/** One attempt to connect, and what came of it. */
interface Attempt {
  /** Null: still being prepared. */
  transport: Transport | null;
  readonly decoder: LineDecoder;
}

type State =
  | { readonly status: "idle" | "backingOff"; readonly retryAt: number }
  | { readonly status: "connecting"; readonly attempt: Attempt; readonly deadline: number }
  | { readonly status: "connected"; readonly attempt: Attempt; readonly hello: ServerHello; isServerDraining: boolean }
  | { readonly status: "closed" };

export class Connection {
  readonly #options: ConnectionOptions;
  readonly #listener: ConnectionListener;
  readonly #clock: Clock;
  readonly #timer: Timer;
  #state: State = { status: "idle", retryAt: 0 };
  /** The run of the last server that said hello. */
  #runId: string | null = null;
  /** Consecutive attempts that failed, and why the last one did. */
  #failures = 0;
  #failure: Error | null = null;
  /** The time at which calls that wait for a connection fail. */
  #callWaitDeadline = 0;
  #reconnectDeadline = 0;
  readonly #calls = new PendingCalls();
  readonly #heartbeat = new Heartbeat();
  /** Frames that are not written yet: those of one turn of the event loop share a line. */
  #unsent: string[] = [];
  #isFlushScheduled = false;
  /** There are calls, or claims that are in use: it connects, and keeps trying to. */
  #isDemanded = false;
  /** Calls do not keep the process alive. */
  #isKeptAlive = false;
  #opening: { resolve(hello: ServerHello): void; reject(error: Error): void; readonly deadline: number } | null = null;

  constructor(options: ConnectionOptions, listener: ConnectionListener) {
    this.#options = options;
    this.#listener = listener;
    this.#clock = options.clock;
    this.#timer = options.clock.timer(() => this.#onTimer());
  }

  /** The server's hello; null while not connected. */
  get hello(): ServerHello | null {
    return this.#state.status === "connected" ? this.#state.hello : null;
  }

  /**
   * Settles when the server has said hello for the first time. Until the timeout it tries again after failures that may
   * pass.
   * @throws Error if the server cannot be reached or refuses the connection
   */
  open(): Promise<ServerHello> {
    return new Promise((resolve, reject) => {
      this.#opening = { resolve, reject, deadline: this.#clock.now() + this.#options.connectTimeoutMs };
      this.updateDemand();
    });
  }

  /** Sends a frame; settles with the result of its reply. */
  call<T>(encode: (callId: number) => string, decode: (result: unknown) => T): Promise<T> {
    return new Promise((resolve, reject) => {
      const refusal = this.#callRefusal();
      if (refusal !== null) return reject(refusal);
      this.#unsent.push(encode(this.#calls.add(decode, resolve, reject)));
      if (this.#state.status === "connected") this.#scheduleFlush();
      this.updateDemand();
    });
  }

  /**
   * Must be called when isNeeded() or needsHeartbeat() may have changed. Connects if the connection has become needed.
   */
  updateDemand(): void {
    const { status } = this.#state;
    const isKeptAlive = status !== "closed" && (this.#opening !== null || this.#listener.isNeeded());
    if (isKeptAlive !== this.#isKeptAlive) {
      this.#isKeptAlive = isKeptAlive;
      this.#attempt?.transport?.keepAlive(isKeptAlive);
      this.#timer.keepAlive(isKeptAlive);
    }
    const isDemanded = isKeptAlive || (status !== "closed" && this.#calls.size > 0);
    if (isDemanded === this.#isDemanded) return;
    this.#isDemanded = isDemanded;
    if (isDemanded && status === "idle") this.#connect();
    this.#armTimer();
  }

  close(): void {
    if (this.#state.status === "closed") return;
    this.#flush();
    this.#rejectAll(new ClosedError(CLOSED_MESSAGE));
    this.#opening?.reject(new ClosedError(CLOSED_MESSAGE));
    const transport = this.#attempt?.transport;
    this.#state = { status: "closed" };
    transport?.close();
    this.updateDemand();
    this.#timer.stop();
  }

  get #attempt(): Attempt | null {
    const state = this.#state;
    return state.status === "connecting" || state.status === "connected" ? state.attempt : null;
  }

  /** Why a call must fail at once; null: it is sent now, or waits for the connection. */
  #callRefusal(): Error | null {
    const { status } = this.#state;
    if (status === "closed") return new ClosedError(CLOSED_MESSAGE);
    const isDown = status === "backingOff" || (status === "connecting" && this.#failures > 0);
    if (!isDown || this.#clock.now() < this.#callWaitDeadline) return null;
    return toConnectionLostError(this.#failure, false, this.#options.connector.url);
  }

  #connect(): void {
    const now = this.#clock.now();
    if (this.#state.status === "idle") this.#callWaitDeadline = now + CALL_WAIT_MS;
    // a line that an earlier transport did not complete must not be continued by this one
    const attempt: Attempt = { transport: null, decoder: new LineDecoder(MAX_LINE_BYTES) };
    const deadline = Math.min(
      now + this.#options.connectTimeoutMs,
      this.#opening?.deadline ?? Number.POSITIVE_INFINITY,
    );
    this.#state = { status: "connecting", attempt, deadline };
    this.#armTimer();
    const { beforeConnect } = this.#options;
    // an attempt that nothing waits for must not start a server
    if (beforeConnect === undefined || !this.#isDemanded) this.#openTransport(attempt);
    else
      beforeConnect().then(
        () => this.#openTransport(attempt),
        (error: Error) => this.#onClosed(attempt, error),
      );
  }

  #openTransport(attempt: Attempt): void {
    if (attempt !== this.#attempt) return;
    const transport = this.#options.connector.connect({
      onData: (chunk) => this.#onData(attempt, chunk),
      onClosed: (error) => this.#onClosed(attempt, error),
    });
    attempt.transport = transport;
    if (this.#isKeptAlive) transport.keepAlive(true);
    transport.write(this.#encodeHello());
  }

  #encodeHello(): string {
    const { label, sessionId, credential } = this.#options;
    return encodeClientHello({
      protocol: PROTOCOL_VERSION,
      version: PACKAGE_VERSION,
      label,
      session: sessionId,
      keepSession: false,
      pid: process.pid,
      pidStart: readStartTime("self"),
      credential: typeof credential === "function" ? credential() : (credential ?? null),
      seen: this.#listener.lastSeenState(),
    });
  }

  #onData(attempt: Attempt, chunk: Buffer): void {
    if (attempt !== this.#attempt) return;
    try {
      const lines = attempt.decoder.push(chunk);
      if (lines.length === 0) return;
      this.#heartbeat.recordReceived(this.#clock.now());
      for (const line of lines) {
        if (this.#state.status === "connecting") this.#onHello(attempt, decodeServerHello(line));
        else if (this.#state.status === "connected") this.#onFrames(line, this.#state.hello.runId);
      }
    } catch (error) {
      if (this.#state.status === "connected" && !(error instanceof ProtocolError)) throw error;
      this.#onClosed(attempt, error as Error);
    }
    this.updateDemand();
  }

  #onHello(attempt: Attempt, hello: ServerHello): void {
    const previousRunId = this.#runId;
    const unsent = this.#takeUnsent();
    this.#state = { status: "connected", attempt, hello, isServerDraining: false };
    this.#runId = hello.runId;
    this.#failures = 0;
    this.#opening?.resolve(hello);
    this.#opening = null;
    this.#heartbeat.recordConnected();
    this.#listener.onConnected(hello, previousRunId);
    for (const frame of unsent) this.#unsent.push(frame);
    this.#flush();
    this.#armTimer();
  }

  #onFrames(line: string, runId: string): void {
    const refusal = decodeConnectionError(line);
    if (refusal !== null) throw refusal;
    const frames = decodeLine(line, runId);
    for (let index = 1; index < frames.length; index++) {
      const frame = frames[index] as readonly unknown[];
      if (!Array.isArray(frame)) throw new ProtocolError("PROTOCOL", "a frame must be an array");
      const verb = frame[0];
      if (verb === "ok" || verb === "error") this.#calls.settle(verb, frame);
      else if (verb !== "drain") this.#listener.onPush(frame);
      else if (this.#state.status === "connected") this.#state.isServerDraining = true;
    }
  }

  /** The transport of this attempt has ended, could not connect, or broke the protocol. */
  #onClosed(attempt: Attempt, closeError: Error | null): void {
    if (attempt !== this.#attempt) return;
    const now = this.#clock.now();
    const wasConnected = this.#state.status === "connected";
    const cause = closeError ?? (wasConnected ? null : this.#createSilentEndError());
    const error = toConnectionLostError(cause, wasConnected, this.#options.connector.url);
    const isFinal = error instanceof StoreRefusedError;
    this.#failure = cause;
    this.#failures++;
    if (this.#state.status === "connected") {
      this.#callWaitDeadline = now + CALL_WAIT_MS;
      this.#reconnectDeadline = this.#state.isServerDraining ? 0 : now + RECONNECT_WINDOW_MS;
    }
    attempt.transport?.close();
    // calls that were not sent yet may go over the next transport; those that were sent are lost
    if (wasConnected || isFinal || now >= this.#callWaitDeadline) this.#rejectAll(error);
    const isNeeded =
      this.#opening === null
        ? this.#calls.size > 0 || this.#listener.isNeeded()
        : this.#canRetryOpen(attempt, cause, now);
    if (!isNeeded) this.#rejectOpening(error);
    const retryAt = now + backoffMs(this.#failures, this.#options.random(), MAX_BACKOFF_MS);
    this.#state = { status: isNeeded ? "backingOff" : "idle", retryAt };
    if (!isNeeded && now >= this.#reconnectDeadline) this.#failures = 0;
    if (wasConnected) this.#listener.onDisconnected?.();
    this.updateDemand();
    this.#armTimer();
  }

  /** A relay whose server is down does this. */
  #createSilentEndError(): Error {
    return createConnectError("ECONNRESET", `${this.#options.connector.url} closed the connection before it answered`);
  }

  #canRetryOpen({ transport }: Attempt, cause: Error | null, now: number): boolean {
    const { beforeConnect, opensOnce } = this.#options;
    // before there is a transport beforeConnect() failed, which has its own retries
    if (transport === null || cause === null || this.#opening === null || now >= this.#opening.deadline) return false;
    const isTransient =
      cause instanceof ProtocolError ? HELLO_RETRIES.get(cause.code) === "open" : isTransientConnectError(cause);
    // a server that this client can start has died during the hello: the next attempt starts another one
    return isTransient && (!opensOnce || beforeConnect !== undefined);
  }

  #rejectOpening(error: Error): void {
    this.#opening?.reject(error);
    this.#opening = null;
  }

  #rejectAll(error: Error): void {
    this.#takeUnsent();
    this.#calls.rejectAll(error);
  }

  /** Flushes at the end of this turn, after its promises: their continuations may add frames. */
  #scheduleFlush(): void {
    if (this.#unsent.length >= FLUSH_THRESHOLD) return this.#flush();
    if (this.#isFlushScheduled) return;
    this.#isFlushScheduled = true;
    queueMicrotask(() =>
      process.nextTick(() => {
        this.#isFlushScheduled = false;
        this.#flush();
      }),
    );
  }

  #takeUnsent(): readonly string[] {
    const frames = this.#unsent;
    this.#unsent = [];
    return frames;
  }

  #flush(): void {
    const state = this.#state;
    if (state.status !== "connected") return;
    const frames = this.#takeUnsent();
    if (frames.length === 0) return;
    this.#heartbeat.recordSent(this.#clock.now());
    const { runId, limits } = state.hello;
    for (const line of encodeLines(runId, frames, limits.lineBytes)) state.attempt.transport?.write(line);
    // without a timer a server that is silent from now on would go unnoticed
    this.#armTimer();
  }

  #onTimer(): void {
    const now = this.#clock.now();
    const { connector, connectTimeoutMs } = this.#options;
    if (this.#state.status === "connecting" && now >= this.#state.deadline) {
      const message = `${connector.url} did not answer within ${connectTimeoutMs} ms`;
      // open() has failed before: that cause says more than the silence of an attempt that had only the rest of the
      // time
      const earlier = this.#opening === null ? null : this.#failure;
      this.#onClosed(this.#state.attempt, earlier ?? createConnectError("ETIMEDOUT", message));
    }
    if (this.#state.status === "backingOff" && this.#opening !== null && now >= this.#opening.deadline) {
      // rather the cause of the last failure than the silence of an attempt that has no time left
      this.#rejectOpening(toConnectionLostError(this.#failure, false, connector.url));
      this.updateDemand();
    }
    if (this.#state.status !== "connected" && this.#hasWaitingCalls && now >= this.#callWaitDeadline) {
      this.#rejectAll(toConnectionLostError(this.#failure, false, connector.url));
      this.updateDemand();
    }
    if (this.#state.status === "backingOff" && !this.#isDemanded) {
      this.#state = { status: "idle", retryAt: this.#state.retryAt };
    }
    const state = this.#state;
    const isReconnecting = state.status === "backingOff" || (state.status === "idle" && now < this.#reconnectDeadline);
    if (isReconnecting && now >= state.retryAt) this.#connect();
    if (state.status === "connected") this.#sendHeartbeat(state.attempt, now);
    this.#armTimer();
  }

  /** Over a network: pings the server, so that it keeps the session, and closes the connection if no reply comes. */
  #sendHeartbeat(attempt: Attempt, now: number): void {
    const limits = this.#silenceLimits();
    if (limits === null) return;
    const dueAt = this.#heartbeat.nextDueAt(limits, this.#listener.needsHeartbeat());
    if (dueAt === null || now < dueAt) return;
    if (this.#heartbeat.giveUp(now, limits)) {
      const silentMs = Math.round(limits.serverMs);
      return this.#onClosed(attempt, new Error(`the lock server has not answered for ${silentMs} ms`));
    }
    if (this.#heartbeat.isPingPending) return;
    this.#heartbeat.recordPing(now);
    this.#unsent.push(encodePing(this.#calls.nextId()));
    this.#flush();
  }

  /** Null: silence ends nothing, or the connection is not used. */
  #silenceLimits(): SilenceLimits | null {
    const { hello } = this;
    if (hello === null || hello.endsWithConnection) return null;
    const isUsed = this.#listener.needsHeartbeat() || this.#calls.size > 0;
    return isUsed
      ? this.#heartbeat.limits(hello.sessionMs, this.#listener.shortestLeaseMs?.() ?? hello.sessionMs)
      : null;
  }

  #armTimer(): void {
    const dueAt = this.#nextDueAt();
    // a spurious wake-up is cheaper than re-arming the timer for every call
    if (dueAt !== null || this.#state.status !== "connected") this.#timer.set(dueAt);
  }

  /** Are calls waiting for a connection after a failed attempt? */
  get #hasWaitingCalls(): boolean {
    return this.#calls.size > 0 && this.#failures > 0;
  }

  #nextDueAt(): number | null {
    const state = this.#state;
    switch (state.status) {
      case "connecting":
        return this.#hasWaitingCalls ? Math.min(state.deadline, this.#callWaitDeadline) : state.deadline;
      case "backingOff": {
        const retryAt = Math.min(state.retryAt, this.#opening?.deadline ?? Number.POSITIVE_INFINITY);
        return this.#hasWaitingCalls ? Math.min(retryAt, this.#callWaitDeadline) : retryAt;
      }
      case "idle":
        return this.#clock.now() < this.#reconnectDeadline ? state.retryAt : null;
      case "connected": {
        const limits = this.#silenceLimits();
        return limits === null ? null : this.#heartbeat.nextDueAt(limits, this.#listener.needsHeartbeat());
      }
      case "closed":
        return null;
    }
  }
}

/**
 * The error of a call whose connection was lost or never made: a StoreRefusedError if the server refused the hello
 * permanently. A client that was connected and is then refused may retry: its credential may have been rotated.
 */
function toConnectionLostError(cause: Error | null, wasConnected: boolean, serverUrl: string): Error {
  const isRefusal = cause instanceof ProtocolError;
  if (isRefusal && !wasConnected && HELLO_RETRIES.get(cause.code) === "useless") {
    return new StoreRefusedError(`${serverUrl} refused: ${cause.message}`, { cause });
  }
  if (cause instanceof StoreRefusedError) return cause;
  const summary = wasConnected ? "the connection to the lock server was lost" : "the lock server cannot be reached";
  // the transport's own messages already name the server
  const detail = cause === null ? "" : `: ${isRefusal ? `${serverUrl}: ` : ""}${cause.message}`;
  return new Error(`${summary}${detail}`, { cause });
}

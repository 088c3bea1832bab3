/**
 * One client's connection to a server, across reconnects: calls, their replies, and when to connect.
 *
 *   idle         no transport, and none is needed. After a loss that the server did not announce it still reconnects for
 *                RECONNECT_WINDOW_MS, but starts no server for that: a server that has crashed waits in its recovery for
 *                every client that may hold a claim.
 *   connecting   a transport is being prepared or connected; calls wait, for CALL_WAIT_MS at most
 *   connected    both sides have said hello
 *   backing-off  an attempt failed, and the next one is scheduled. Calls fail once CALL_WAIT_MS have passed since the
 *                connection was lost.
 *
 * Invariants
 * - A reply counts only if it came over the transport its call was sent on: when a transport ends, all its calls fail.
 * - A healthy transport on which silence ends nothing (a Unix socket) is never closed from here: the server would take
 *   that for the death of the client.
 */

import { ClosedError, FatalDriverError } from "../../errors.ts";
import { decodeLine, encodePing } from "../../protocol/frames.ts";
import { encodeLines } from "../../protocol/framing.ts";
import type { ServerHello } from "../../protocol/handshake.ts";
import { decodeConnectionError, decodeServerHello, ProtocolError } from "../../protocol/handshake.ts";
import { backoffMs } from "../../util/backoff.ts";
import type { Clock, Timer } from "../../util/clock.ts";
import { ConnectAttempts } from "./connect-attempts.ts";
import type { ConnectionListener, ConnectionOptions } from "./connection-options.ts";
import { Heartbeat } from "./heartbeat.ts";
import { PendingCalls, toConnectionLostError } from "./pending-calls.ts";
import { WriteBatcher } from "./write-batcher.ts";

/** How long calls wait for a lost connection. */
const CALL_WAIT_MS = 1_000;
const MAX_BACKOFF_MS = 2_000;
const RECONNECT_WINDOW_MS = 30_000;
const CLOSED_MESSAGE = "the driver was closed";

export class Connection {
  readonly #options: ConnectionOptions;
  readonly #listener: ConnectionListener;
  readonly #clock: Clock;
  readonly #timer: Timer;
  #status: "idle" | "connecting" | "connected" | "backing-off" | "closed" = "idle";
  #hello: ServerHello | null = null;
  /** The run of the last server that said hello. */
  #runId: string | null = null;
  #failures = 0;
  #lastError: Error | null = null;
  #connectDeadline = 0;
  #retryAt = 0;
  /** The time at which calls that wait for a connection fail. */
  #callWaitDeadline = 0;
  #reconnectDeadline = 0;
  /** The server has announced that it is stopping. */
  #isServerDraining = false;
  readonly #attempts: ConnectAttempts;
  readonly #calls = new PendingCalls();
  readonly #heartbeat = new Heartbeat();
  readonly #batcher = new WriteBatcher(() => this.#flush());
  #isKeptAlive = false;
  #opening: { resolve(): void; reject(error: Error): void } | null = null;
  #openDeadline = 0;

  constructor(options: ConnectionOptions, listener: ConnectionListener) {
    this.#options = options;
    this.#listener = listener;
    this.#clock = options.clock;
    this.#attempts = new ConnectAttempts(options.connector, options.beforeConnect);
    this.#timer = options.clock.timer(() => this.#onTimer());
  }

  /** The server's hello; null while not connected. */
  get hello(): ServerHello | null {
    return this.#hello;
  }

  /**
   * Settles when the server has said hello for the first time.
   * @throws Error if the server cannot be reached or refuses the connection
   */
  open(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#opening = { resolve, reject };
      this.#openDeadline = this.#clock.now() + this.#options.connectTimeoutMs;
      this.updateDemand();
    });
  }

  /** Sends a frame; settles with the result of its reply. */
  call<T>(encode: (callId: number) => string, decode: (result: unknown) => T): Promise<T> {
    return new Promise((resolve, reject) => {
      const refusal = this.#callRefusal();
      if (refusal !== null) return reject(refusal);
      this.#batcher.add(encode(this.#calls.add(decode, resolve, reject)));
      if (this.#status === "connected") this.#batcher.scheduleFlush();
      this.updateDemand();
    });
  }

  /**
   * Must be called when isNeeded() or needsHeartbeat() may have changed. Connects if the connection has become needed.
   */
  updateDemand(): void {
    const isKeptAlive =
      this.#status !== "closed" && (this.#opening !== null || this.#calls.size > 0 || this.#listener.isNeeded());
    if (isKeptAlive === this.#isKeptAlive) return;
    this.#isKeptAlive = isKeptAlive;
    this.#attempts.transport?.keepAlive(isKeptAlive);
    this.#timer.keepAlive(isKeptAlive);
    if (isKeptAlive && this.#status === "idle") this.#connect();
    this.#armTimer();
  }

  close(): void {
    if (this.#status === "closed") return;
    this.#flush();
    this.#rejectAll(new ClosedError(CLOSED_MESSAGE));
    this.#opening?.reject(new ClosedError(CLOSED_MESSAGE));
    this.#status = "closed";
    this.#attempts.end()?.close();
    this.updateDemand();
    this.#timer.stop();
  }

  /** Why a call must fail at once; null: it is sent now, or waits for the connection. */
  #callRefusal(): Error | null {
    if (this.#status === "closed") return new ClosedError(CLOSED_MESSAGE);
    const isDown = this.#status === "backing-off" || (this.#status === "connecting" && this.#failures > 0);
    if (!isDown || this.#clock.now() < this.#callWaitDeadline) return null;
    return toConnectionLostError(this.#lastError, false, this.#options.connector.url);
  }

  #connect(): void {
    const now = this.#clock.now();
    if (this.#status === "idle") this.#callWaitDeadline = now + CALL_WAIT_MS;
    this.#status = "connecting";
    this.#connectDeadline = now + this.#options.connectTimeoutMs;
    this.#armTimer();
    this.#attempts.start(this.#isKeptAlive, {
      onConnected: (transport) => {
        if (this.#isKeptAlive) transport.keepAlive(true);
        transport.write(this.#listener.encodeHello());
      },
      onLines: (lines) => this.#onLines(lines),
      onClosed: (error) => this.#onClosed(error),
    });
  }

  #onLines(lines: readonly string[]): void {
    this.#heartbeat.recordReceived();
    try {
      for (const line of lines) {
        if (this.#status === "connecting") this.#onHello(decodeServerHello(line));
        else if (this.#status === "connected") this.#onFrames(line);
      }
    } catch (error) {
      if (this.#status === "connected" && !(error instanceof ProtocolError)) throw error;
      this.#onClosed(error as Error);
    }
    this.updateDemand();
  }

  #onHello(hello: ServerHello): void {
    const [previousRunId, unsentFrames] = [this.#runId, this.#batcher.drain()];
    this.#status = "connected";
    this.#hello = hello;
    this.#runId = hello.start;
    this.#isServerDraining = false;
    this.#failures = 0;
    this.#opening?.resolve();
    this.#opening = null;
    // silence on an earlier transport says nothing about this one
    this.#heartbeat.recordReceived();
    this.#listener.onConnected(hello, previousRunId);
    for (const frame of unsentFrames) this.#batcher.add(frame);
    this.#flush();
    this.#armTimer();
  }

  #onFrames(line: string): void {
    const refusal = decodeConnectionError(line);
    if (refusal !== null) throw refusal;
    const frames = decodeLine(line, this.#runId as string);
    for (let index = 1; index < frames.length; index++) {
      const frame = frames[index] as readonly unknown[];
      if (!Array.isArray(frame)) throw new ProtocolError("PROTOCOL", "a frame must be an array");
      const verb = frame[0];
      if (verb === "ok" || verb === "error") this.#calls.settle(verb, frame);
      else if (verb === "drain") this.#isServerDraining = true;
      else this.#listener.onPush(frame);
    }
  }

  /** The transport has ended, could not connect, or broke the protocol. */
  #onClosed(cause: Error | null): void {
    const now = this.#clock.now();
    const wasConnected = this.#status === "connected";
    const error = toConnectionLostError(cause, wasConnected, this.#options.connector.url);
    const isFinal = error instanceof FatalDriverError;
    const canRetryOpen = this.#canRetryOpen(isFinal, now);
    this.#attempts.end()?.close();
    this.#lastError = error;
    this.#failures++;
    if (wasConnected)
      [this.#callWaitDeadline, this.#reconnectDeadline] = [
        now + CALL_WAIT_MS,
        this.#isServerDraining ? 0 : now + RECONNECT_WINDOW_MS,
      ];
    // calls that were not sent yet may go over the next transport; those that were sent are lost
    if (wasConnected || isFinal || now >= this.#callWaitDeadline) this.#rejectAll(error);
    this.#hello = null;
    if (!canRetryOpen) this.#opening?.reject(error);
    const isNeeded = canRetryOpen || (this.#opening === null && (this.#calls.size > 0 || this.#listener.isNeeded()));
    if (!canRetryOpen) this.#opening = null;
    this.#status = isNeeded ? "backing-off" : "idle";
    this.#retryAt = now + backoffMs(this.#failures, this.#options.random(), MAX_BACKOFF_MS);
    if (!isNeeded && now >= this.#reconnectDeadline) this.#failures = 0;
    this.updateDemand();
    this.#armTimer();
  }

  /** A server that this client can start has died during the hello: the next attempt starts another one. */
  #canRetryOpen(isFinal: boolean, now: number): boolean {
    const wasReached = this.#attempts.canStartServer && this.#attempts.transport !== null;
    return this.#opening !== null && wasReached && !isFinal && now < this.#openDeadline;
  }

  #rejectAll(error: Error): void {
    this.#batcher.drain();
    this.#calls.rejectAll(error);
  }

  #flush(): void {
    if (this.#status !== "connected") return;
    const frames = this.#batcher.drain();
    if (frames.length === 0) return;
    this.#heartbeat.recordSent(this.#clock.now());
    const { start: runId, limits } = this.#hello as ServerHello;
    for (const line of encodeLines(runId, frames, limits.lineBytes)) this.#attempts.transport?.write(line);
    // without a timer a server that is silent from now on would go unnoticed
    this.#armTimer();
  }

  #onTimer(): void {
    const now = this.#clock.now();
    if (this.#status === "connecting" && now >= this.#connectDeadline) {
      this.#onClosed(
        new Error(`${this.#options.connector.url} did not answer within ${this.#options.connectTimeoutMs} ms`),
      );
    }
    if (this.#status !== "connected" && this.#hasWaitingCalls && now >= this.#callWaitDeadline) {
      this.#rejectAll(toConnectionLostError(this.#lastError, false, this.#options.connector.url));
      this.updateDemand();
    }
    if (this.#status === "backing-off" && !this.#isKeptAlive) this.#status = "idle";
    const isBackingOff = this.#status === "backing-off" || (this.#status === "idle" && now < this.#reconnectDeadline);
    if (isBackingOff && now >= this.#retryAt) this.#connect();
    if (this.#status === "connected") this.#sendHeartbeat(now);
    this.#armTimer();
  }

  /** Over a network: pings the server, so that it keeps the session, and closes the connection if no reply comes. */
  #sendHeartbeat(now: number): void {
    const maxSilenceMs = this.#maxSilenceMs();
    if (
      maxSilenceMs === null ||
      now < (this.#heartbeat.nextDueAt(maxSilenceMs, this.#listener.needsHeartbeat()) ?? now + 1)
    )
      return;
    if (this.#heartbeat.isDead(now, maxSilenceMs)) {
      return this.#onClosed(new Error(`the lock server has not answered for ${Math.round(maxSilenceMs)} ms`));
    }
    this.#heartbeat.recordPing(now);
    this.#batcher.add(encodePing(this.#calls.nextId()));
    this.#flush();
  }

  /** The longest allowed silence in either direction; null: no limit. */
  #maxSilenceMs(): number | null {
    if (this.#hello === null || this.#hello.endsWithConnection) return null;
    return this.#listener.needsHeartbeat() || this.#calls.size > 0 ? this.#hello.sessionMs / 3 : null;
  }

  #armTimer(): void {
    const dueAt = this.#nextDueAt();
    // a spurious wake-up is cheaper than re-arming the timer for every call
    if (dueAt !== null || this.#status !== "connected") this.#timer.set(dueAt);
  }

  /** Are calls waiting for a connection after a failed attempt? */
  get #hasWaitingCalls(): boolean {
    return this.#calls.size > 0 && this.#failures > 0;
  }

  #nextDueAt(): number | null {
    switch (this.#status) {
      case "connecting":
        return this.#hasWaitingCalls ? Math.min(this.#connectDeadline, this.#callWaitDeadline) : this.#connectDeadline;
      case "backing-off":
        return this.#hasWaitingCalls ? Math.min(this.#retryAt, this.#callWaitDeadline) : this.#retryAt;
      case "idle":
        return this.#clock.now() < this.#reconnectDeadline ? this.#retryAt : null;
      case "connected": {
        const maxSilenceMs = this.#maxSilenceMs();
        return maxSilenceMs === null ? null : this.#heartbeat.nextDueAt(maxSilenceMs, this.#listener.needsHeartbeat());
      }
      default:
        return null;
    }
  }
}

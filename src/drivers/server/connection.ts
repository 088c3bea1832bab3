/**
 * One client's connection to a server, over its reconnects: calls and their replies, and when to dial.
 *
 *   idle     no wire and nobody needs one. After a loss that was not announced it dials all the same for RECONNECT_WINDOW_MS, if
 *            somebody else has the server run: a server that has crashed waits for all who may have held something.
 *   dialing  a wire, or the preparation of one, under way; calls are held back for CALL_WAIT_MS at most
 *   up       both sides have said hello
 *   resting  dialing failed; the next attempt has its time. Calls fail once CALL_WAIT_MS have passed since it was up.
 *
 * Invariants
 * - A reply counts only if it came over the wire its call was sent on: when a wire ends, all its calls have failed.
 * - A healthy wire on which silence ends nothing (a Unix socket) is never ended from here: the server would take it for
 *   our death.
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

/** How long calls wait for a connection that was lost. */
const CALL_WAIT_MS = 1_000;
const MAX_BACKOFF_MS = 2_000;
const RECONNECT_WINDOW_MS = 30_000;
const CLOSED_MESSAGE = "the driver was closed";

export class Connection {
  readonly #options: ConnectionOptions;
  readonly #listener: ConnectionListener;
  readonly #clock: Clock;
  readonly #timer: Timer;
  #status: "idle" | "dialing" | "up" | "resting" | "closed" = "idle";
  #hello: ServerHello | null = null;
  /** The start of the last server we met. */
  #runId: string | null = null;
  #failures = 0;
  #lastError: Error | null = null;
  #connectDeadline = 0;
  #retryAt = 0;
  /** Calls held back fail then. */
  #callWaitDeadline = 0;
  #reconnectDeadline = 0;
  /** The server has said that it goes. */
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

  /** Settles when the server has said hello for the first time. @throws Error if it cannot be reached, or refuses */
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
      if (this.#status === "up") this.#batcher.scheduleFlush();
      this.updateDemand();
    });
  }

  /** To be called when isNeeded() or needsHeartbeat() may have changed. Dials if there is a need now and was none. */
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

  /** Why a call cannot be sent; null: it can, now or soon. */
  #callRefusal(): Error | null {
    if (this.#status === "closed") return new ClosedError(CLOSED_MESSAGE);
    const isDown = this.#status === "resting" || (this.#status === "dialing" && this.#failures > 0);
    if (!isDown || this.#clock.now() < this.#callWaitDeadline) return null;
    return toConnectionLostError(this.#lastError, false, this.#options.connector.url);
  }

  #connect(): void {
    const now = this.#clock.now();
    if (this.#status === "idle") this.#callWaitDeadline = now + CALL_WAIT_MS;
    this.#status = "dialing";
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
        if (this.#status === "dialing") this.#onHello(decodeServerHello(line));
        else if (this.#status === "up") this.#onFrames(line);
      }
    } catch (error) {
      if (this.#status === "up" && !(error instanceof ProtocolError)) throw error;
      this.#onClosed(error as Error);
    }
    this.updateDemand();
  }

  #onHello(hello: ServerHello): void {
    const [previousRunId, heldFrames] = [this.#runId, this.#batcher.drain()];
    this.#status = "up";
    this.#hello = hello;
    this.#runId = hello.start;
    this.#isServerDraining = false;
    this.#failures = 0;
    this.#opening?.resolve();
    this.#opening = null;
    // what of an earlier wire was heard or not says nothing of this one
    this.#heartbeat.recordReceived();
    this.#listener.onConnected(hello, previousRunId);
    for (const frame of heldFrames) this.#batcher.add(frame);
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

  /** The wire has ended, or never stood, or is worth nothing. */
  #onClosed(cause: Error | null): void {
    const now = this.#clock.now();
    const wasConnected = this.#status === "up";
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
    // calls held back may still be sent over the next wire, those that were sent are lost
    if (wasConnected || isFinal || now >= this.#callWaitDeadline) this.#rejectAll(error);
    this.#hello = null;
    if (!canRetryOpen) this.#opening?.reject(error);
    const isNeeded = canRetryOpen || (this.#opening === null && (this.#calls.size > 0 || this.#listener.isNeeded()));
    if (!canRetryOpen) this.#opening = null;
    this.#status = isNeeded ? "resting" : "idle";
    this.#retryAt = now + backoffMs(this.#failures, this.#options.random(), MAX_BACKOFF_MS);
    if (!isNeeded && now >= this.#reconnectDeadline) this.#failures = 0;
    this.updateDemand();
    this.#armTimer();
  }

  /** A server that we may start ourselves has died while we said hello to it: the next attempt starts the next one. */
  #canRetryOpen(isFinal: boolean, now: number): boolean {
    const wasReached = this.#attempts.canStartServer && this.#attempts.transport !== null;
    return this.#opening !== null && wasReached && !isFinal && now < this.#openDeadline;
  }

  #rejectAll(error: Error): void {
    this.#batcher.drain();
    this.#calls.rejectAll(error);
  }

  #flush(): void {
    if (this.#status !== "up") return;
    const frames = this.#batcher.drain();
    if (frames.length === 0) return;
    this.#heartbeat.recordSent(this.#clock.now());
    const { start: runId, limits } = this.#hello as ServerHello;
    for (const line of encodeLines(runId, frames, limits.lineBytes)) this.#attempts.transport?.write(line);
    // a server that stays silent now must be noticed
    this.#armTimer();
  }

  #onTimer(): void {
    const now = this.#clock.now();
    if (this.#status === "dialing" && now >= this.#connectDeadline) {
      this.#onClosed(
        new Error(`${this.#options.connector.url} did not answer within ${this.#options.connectTimeoutMs} ms`),
      );
    }
    if (this.#status !== "up" && this.#hasWaitingCalls && now >= this.#callWaitDeadline) {
      this.#rejectAll(toConnectionLostError(this.#lastError, false, this.#options.connector.url));
      this.updateDemand();
    }
    if (this.#status === "resting" && !this.#isKeptAlive) this.#status = "idle";
    const isBackingOff = this.#status === "resting" || (this.#status === "idle" && now < this.#reconnectDeadline);
    if (isBackingOff && now >= this.#retryAt) this.#connect();
    if (this.#status === "up") this.#sendHeartbeat(now);
    this.#armTimer();
  }

  /** Over a network: says something now and then where the server must hear from us, and finds out whether it hears. */
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

  /** How long may be nothing said, or heard; null: for ever. */
  #maxSilenceMs(): number | null {
    if (this.#hello === null || this.#hello.silenceKeeps) return null;
    return this.#listener.needsHeartbeat() || this.#calls.size > 0 ? this.#hello.sessionMs / 3 : null;
  }

  #armTimer(): void {
    const dueAt = this.#nextDueAt();
    // to ring for nothing costs less than to be set and cleared for every call
    if (dueAt !== null || this.#status !== "up") this.#timer.set(dueAt);
  }

  /** Do calls wait for a connection, behind an attempt that failed? */
  get #hasWaitingCalls(): boolean {
    return this.#calls.size > 0 && this.#failures > 0;
  }

  #nextDueAt(): number | null {
    switch (this.#status) {
      case "dialing":
        return this.#hasWaitingCalls ? Math.min(this.#connectDeadline, this.#callWaitDeadline) : this.#connectDeadline;
      case "resting":
        return this.#hasWaitingCalls ? Math.min(this.#retryAt, this.#callWaitDeadline) : this.#retryAt;
      case "idle":
        return this.#clock.now() < this.#reconnectDeadline ? this.#retryAt : null;
      case "up": {
        const maxSilenceMs = this.#maxSilenceMs();
        return maxSilenceMs === null ? null : this.#heartbeat.nextDueAt(maxSilenceMs, this.#listener.needsHeartbeat());
      }
      default:
        return null;
    }
  }
}

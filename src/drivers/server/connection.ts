/**
 * One client's connection to a server, over its reconnects: calls and their replies, and when to dial.
 *
 *   idle     no wire and nobody needs one. After a loss that was not announced it dials all the same for RETURN_MS, if
 *            somebody else has the server run: a server that has crashed waits for all who may have held something.
 *   dialing  a wire, or the preparation of one, under way; calls are held back for HOLD_MS at most
 *   up       both sides have said hello
 *   resting  dialing failed; the next attempt has its time. Calls fail once HOLD_MS have passed since it was up.
 *
 * Invariants
 * - A reply counts only if it came over the wire its call was sent on: when a wire ends, all its calls have failed.
 * - A healthy wire on which silence ends nothing (a Unix socket) is never ended from here: the server would take it for
 *   our death.
 */

import type { Clock, Timer } from "../../clock.ts";
import { backoffMs } from "../../core/backoff.ts";
import { ClosedError, FatalDriverError } from "../../errors.ts";
import { decodeLine, encodePing } from "../../protocol/frames.ts";
import type { ServerHello } from "../../protocol/hello.ts";
import { decodeRefusal, decodeWelcome, ProtocolError } from "../../protocol/hello.ts";
import { encodeLines } from "../../protocol/lines.ts";
import { Calls, lossOf } from "./calls.ts";
import { Dialer } from "./dialer.ts";
import type { ConnectionOptions, Hooks } from "./hooks.ts";
import { Outbox } from "./outbox.ts";
import { Pulse } from "./pulse.ts";

/** How long calls wait for a connection that was lost. */
const HOLD_MS = 1_000;
const LONGEST_REST_MS = 2_000;
const RETURN_MS = 30_000;
const CLOSED = "the driver was closed";

export class Connection {
  readonly #options: ConnectionOptions;
  readonly #hooks: Hooks;
  readonly #clock: Clock;
  readonly #timer: Timer;
  #is: "idle" | "dialing" | "up" | "resting" | "closed" = "idle";
  #hello: ServerHello | null = null;
  /** The start of the last server we met. */
  #start: string | null = null;
  #failures = 0;
  #lastError: Error | null = null;
  #dialUntil = 0;
  #retryAt = 0;
  /** Calls held back fail then. */
  #holdUntil = 0;
  #returnUntil = 0;
  /** The server has said that it goes. */
  #drained = false;
  readonly #dialer: Dialer;
  readonly #calls = new Calls();
  readonly #pulse = new Pulse();
  readonly #out = new Outbox(() => this.#flush());
  #alive = false;
  #opening: { resolve(): void; reject(error: Error): void } | null = null;
  #openUntil = 0;

  constructor(options: ConnectionOptions, hooks: Hooks) {
    this.#options = options;
    this.#hooks = hooks;
    this.#clock = options.clock;
    this.#dialer = new Dialer(options.dial, options.prepare);
    this.#timer = options.clock.timer(() => this.#tick());
  }

  /** The server's hello; null while not connected. */
  get hello(): ServerHello | null {
    return this.#hello;
  }

  /** Settles when the server has said hello for the first time. @throws Error if it cannot be reached, or refuses */
  open(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#opening = { resolve, reject };
      this.#openUntil = this.#clock.now() + this.#options.connectTimeoutMs;
      this.watch();
    });
  }

  /** Sends a frame; settles with the result of its reply. */
  call<T>(encode: (n: number) => string, read: (raw: unknown) => T): Promise<T> {
    return new Promise((resolve, reject) => {
      const refusal = this.#refusal();
      if (refusal !== null) return reject(refusal);
      this.#out.push(encode(this.#calls.add(read, resolve, reject)));
      if (this.#is === "up") this.#out.flushSoon();
      this.watch();
    });
  }

  /** To be called when isNeeded() or mustSpeak() may have changed. Dials if there is a need now and was none. */
  watch(): void {
    const alive = this.#is !== "closed" && (this.#opening !== null || this.#calls.size > 0 || this.#hooks.isNeeded());
    if (alive === this.#alive) return;
    this.#alive = alive;
    this.#dialer.wire?.keepAlive(alive);
    this.#timer.keepAlive(alive);
    if (alive && this.#is === "idle") this.#dial();
    this.#arm();
  }

  close(): void {
    if (this.#is === "closed") return;
    this.#flush();
    this.#failAll(new ClosedError(CLOSED));
    this.#opening?.reject(new ClosedError(CLOSED));
    this.#is = "closed";
    this.#dialer.end()?.close();
    this.watch();
    this.#timer.stop();
  }

  /** Why a call cannot be sent; null: it can, now or soon. */
  #refusal(): Error | null {
    if (this.#is === "closed") return new ClosedError(CLOSED);
    const isDown = this.#is === "resting" || (this.#is === "dialing" && this.#failures > 0);
    if (!isDown || this.#clock.now() < this.#holdUntil) return null;
    return lossOf(this.#lastError, false, this.#options.dial.to);
  }

  #dial(): void {
    const now = this.#clock.now();
    if (this.#is === "idle") this.#holdUntil = now + HOLD_MS;
    this.#is = "dialing";
    this.#dialUntil = now + this.#options.connectTimeoutMs;
    this.#arm();
    this.#dialer.begin(this.#alive, {
      connected: (wire) => {
        if (this.#alive) wire.keepAlive(true);
        wire.write(this.#hooks.hello());
      },
      lines: (lines) => this.#lines(lines),
      closed: (error) => this.#lost(error),
    });
  }

  #lines(lines: readonly string[]): void {
    this.#pulse.heard();
    try {
      for (const line of lines) {
        if (this.#is === "dialing") this.#welcome(decodeWelcome(line));
        else if (this.#is === "up") this.#frames(line);
      }
    } catch (error) {
      if (this.#is === "up" && !(error instanceof ProtocolError)) throw error;
      this.#lost(error as Error);
    }
    this.watch();
  }

  #welcome(hello: ServerHello): void {
    const [previous, heldBack] = [this.#start, this.#out.take()];
    this.#is = "up";
    this.#hello = hello;
    this.#start = hello.start;
    this.#drained = false;
    this.#failures = 0;
    this.#opening?.resolve();
    this.#opening = null;
    // what of an earlier wire was heard or not says nothing of this one
    this.#pulse.heard();
    this.#hooks.up(hello, previous);
    for (const frame of heldBack) this.#out.push(frame);
    this.#flush();
    this.#arm();
  }

  #frames(line: string): void {
    const refusal = decodeRefusal(line);
    if (refusal !== null) throw refusal;
    const frames = decodeLine(line, this.#start as string);
    for (let at = 1; at < frames.length; at++) {
      const frame = frames[at] as readonly unknown[];
      if (!Array.isArray(frame)) throw new ProtocolError("PROTOCOL", "a frame must be an array");
      const verb = frame[0];
      if (verb === "ok" || verb === "error") this.#calls.reply(verb, frame);
      else if (verb === "drain") this.#drained = true;
      else this.#hooks.pushed(frame);
    }
  }

  /** The wire has ended, or never stood, or is worth nothing. */
  #lost(cause: Error | null): void {
    const now = this.#clock.now();
    const wasUp = this.#is === "up";
    const error = lossOf(cause, wasUp, this.#options.dial.to);
    const isFinal = error instanceof FatalDriverError;
    const opensAgain = this.#opensAgain(isFinal, now);
    this.#dialer.end()?.close();
    this.#lastError = error;
    this.#failures++;
    if (wasUp) [this.#holdUntil, this.#returnUntil] = [now + HOLD_MS, this.#drained ? 0 : now + RETURN_MS];
    // calls held back may still be sent over the next wire, those that were sent are lost
    if (wasUp || isFinal || now >= this.#holdUntil) this.#failAll(error);
    this.#hello = null;
    if (!opensAgain) this.#opening?.reject(error);
    const isNeeded = opensAgain || (this.#opening === null && (this.#calls.size > 0 || this.#hooks.isNeeded()));
    if (!opensAgain) this.#opening = null;
    this.#is = isNeeded ? "resting" : "idle";
    this.#retryAt = now + backoffMs(this.#failures, this.#options.random(), LONGEST_REST_MS);
    if (!isNeeded && now >= this.#returnUntil) this.#failures = 0;
    this.watch();
    this.#arm();
  }

  /** A server that we may start ourselves has died while we said hello to it: the next attempt starts the next one. */
  #opensAgain(isFinal: boolean, now: number): boolean {
    const wasReached = this.#dialer.prepares && this.#dialer.wire !== null;
    return this.#opening !== null && wasReached && !isFinal && now < this.#openUntil;
  }

  #failAll(error: Error): void {
    this.#out.take();
    this.#calls.failAll(error);
  }

  #flush(): void {
    if (this.#is !== "up") return;
    const frames = this.#out.take();
    if (frames.length === 0) return;
    this.#pulse.spoke(this.#clock.now());
    const { start, limits } = this.#hello as ServerHello;
    for (const line of encodeLines(start, frames, limits.lineBytes)) this.#dialer.wire?.write(line);
    // a server that stays silent now must be noticed
    this.#arm();
  }

  #tick(): void {
    const now = this.#clock.now();
    if (this.#is === "dialing" && now >= this.#dialUntil) {
      this.#lost(new Error(`${this.#options.dial.to} did not answer within ${this.#options.connectTimeoutMs} ms`));
    }
    if (this.#is !== "up" && this.#isHolding && now >= this.#holdUntil) {
      this.#failAll(lossOf(this.#lastError, false, this.#options.dial.to));
      this.watch();
    }
    if (this.#is === "resting" && !this.#alive) this.#is = "idle";
    const rests = this.#is === "resting" || (this.#is === "idle" && now < this.#returnUntil);
    if (rests && now >= this.#retryAt) this.#dial();
    if (this.#is === "up") this.#speak(now);
    this.#arm();
  }

  /** Over a network: says something now and then where the server must hear from us, and finds out whether it hears. */
  #speak(now: number): void {
    const quietMs = this.#quietMs();
    if (quietMs === null || now < (this.#pulse.dueAt(quietMs, this.#hooks.mustSpeak()) ?? now + 1)) return;
    if (this.#pulse.isDead(now, quietMs)) {
      return this.#lost(new Error(`the lock server has not answered for ${Math.round(quietMs)} ms`));
    }
    this.#pulse.pinged(now);
    this.#out.push(encodePing(this.#calls.next()));
    this.#flush();
  }

  /** How long may be nothing said, or heard; null: for ever. */
  #quietMs(): number | null {
    if (this.#hello === null || this.#hello.silenceKeeps) return null;
    return this.#hooks.mustSpeak() || this.#calls.size > 0 ? this.#hello.sessionMs / 3 : null;
  }

  #arm(): void {
    const due = this.#nextDue();
    // to ring for nothing costs less than to be set and cleared for every call
    if (due !== null || this.#is !== "up") this.#timer.set(due);
  }

  /** Do calls wait for a connection, behind an attempt that failed? */
  get #isHolding(): boolean {
    return this.#calls.size > 0 && this.#failures > 0;
  }

  #nextDue(): number | null {
    switch (this.#is) {
      case "dialing":
        return this.#isHolding ? Math.min(this.#dialUntil, this.#holdUntil) : this.#dialUntil;
      case "resting":
        return this.#isHolding ? Math.min(this.#retryAt, this.#holdUntil) : this.#retryAt;
      case "idle":
        return this.#clock.now() < this.#returnUntil ? this.#retryAt : null;
      case "up": {
        const quietMs = this.#quietMs();
        return quietMs === null ? null : this.#pulse.dueAt(quietMs, this.#hooks.mustSpeak());
      }
      default:
        return null;
    }
  }
}

/**
 * One client's connection to a server, over its reconnects: calls and their replies, and when to dial.
 *
 *   idle     no wire and nobody needs one
 *   dialing  a wire, or the preparation of one, under way; calls are held back for HOLD_MS at most
 *   up       both sides have said hello
 *   resting  dialing failed; the next attempt has its time. Calls fail once HOLD_MS have passed since it was up.
 *   closed
 *
 * Invariants
 * - A reply counts only if it came over the wire its call was sent on: when a wire ends, all its calls have failed.
 * - A healthy wire on which silence ends nothing (a Unix socket) is never ended from here: the server would take it for
 *   our death.
 */

import type { Clock, Timer } from "../../clock.ts";
import { backoffMs } from "../../core/backoff.ts";
import { SlotMap } from "../../core/slot-map.ts";
import { ClosedError, FatalDriverError } from "../../errors.ts";
import { decodeLine, encodePing } from "../../protocol/frames.ts";
import type { ServerHello } from "../../protocol/hello.ts";
import { decodeRefusal, decodeWelcome, ProtocolError } from "../../protocol/hello.ts";
import type { Dial, Wire } from "./wire.ts";

/** How long calls wait for a connection that was lost. */
const HOLD_MS = 1_000;
const LONGEST_REST_MS = 2_000;
/** Refusals that asking again does not change. */
const FATAL: ReadonlySet<string> = new Set(["FATAL", "FLOOR", "LIMIT", "UNSUPPORTED", "VERSION"]);

/** What the connection needs of its driver. */
export interface Hooks {
  /** Our first line. */
  hello(): string;
  /** Both sides have said hello. What is sent from here goes before all calls that were held back. */
  up(hello: ServerHello, previousStart: string | null): void;
  /** A frame that answers no call. */
  pushed(frame: readonly unknown[]): void;
  /** Does anybody need the connection, beside the calls under way? */
  isNeeded(): boolean;
  /** Must the server hear from us although there is nothing to say? */
  mustSpeak(): boolean;
}

export interface ConnectionOptions {
  readonly dial: Dial;
  /** Called, and awaited, before each dial; it may start the server. */
  readonly prepare: (() => Promise<void>) | undefined;
  readonly clock: Clock;
  readonly random: () => number;
  readonly connectTimeoutMs: number;
}

interface Call {
  readonly settle: (raw: unknown) => void;
  readonly fail: (error: Error) => void;
}

export class Connection {
  readonly #options: ConnectionOptions;
  readonly #hooks: Hooks;
  readonly #clock: Clock;
  readonly #timer: Timer;
  #is: "idle" | "dialing" | "up" | "resting" | "closed" = "idle";
  #wire: Wire | null = null;
  #hello: ServerHello | null = null;
  /** The start of the last server we met. */
  #start: string | null = null;
  #attempt = 0;
  #failures = 0;
  #lastError: Error | null = null;
  #dialUntil = 0;
  #retryAt = 0;
  /** Calls held back fail then. */
  #holdUntil = 0;
  readonly #calls = new SlotMap<number, Call>();
  #n = 0;
  #out: string[] = [];
  #flushing = false;
  #heardAt = 0;
  #spokeAt = 0;
  /** When a ping was sent that has not been answered; null: none. */
  #pingedAt: number | null = null;
  #alive = false;
  #opening: { resolve(): void; reject(error: Error): void } | null = null;
  #openUntil = 0;

  constructor(options: ConnectionOptions, hooks: Hooks) {
    this.#options = options;
    this.#hooks = hooks;
    this.#clock = options.clock;
    this.#timer = options.clock.timer(() => this.#tick());
  }

  /** The server's hello; null while not connected. */
  get hello(): ServerHello | null {
    return this.#hello;
  }

  /** The number for the next call. */
  next(): number {
    return ++this.#n;
  }

  /** Settles when the server has said hello for the first time. @throws Error if it cannot be reached, or refuses */
  open(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#opening = { resolve, reject };
      this.#openUntil = this.#clock.now() + this.#options.connectTimeoutMs;
      this.#dial();
      this.watch();
    });
  }

  /** Sends a frame with the number n; settles with the result of its reply. */
  call<T>(n: number, frame: string, read: (raw: unknown) => T): Promise<T> {
    return new Promise((resolve, reject) => {
      const refusal = this.#refusal();
      if (refusal !== null) return reject(refusal);
      this.#calls.set(n, { settle: (raw) => resolve(read(raw)), fail: reject });
      this.#out.push(frame);
      if (this.#is === "up") this.#flushSoon();
      else if (this.#is === "idle") this.#dial();
      this.watch();
      // from the first call under way on, a silent server must be noticed
      if (this.#is === "up" && this.#calls.size === 1) this.#arm();
    });
  }

  /** To be called when isNeeded() or mustSpeak() may have changed. */
  watch(): void {
    const alive = this.#is !== "closed" && (this.#opening !== null || this.#calls.size > 0 || this.#hooks.isNeeded());
    if (alive === this.#alive) return;
    this.#alive = alive;
    this.#wire?.keepAlive(alive);
    this.#timer.keepAlive(alive);
    if (alive && this.#is === "idle") this.#dial();
    this.#arm();
  }

  close(): void {
    if (this.#is === "closed") return;
    this.#flush();
    const wire = this.#wire;
    const error = new ClosedError("the driver was closed");
    this.#drop(error);
    this.#opening?.reject(error);
    this.#is = "closed";
    wire?.close();
    this.#timer.set(null);
    this.watch();
  }

  /** Why a call cannot be sent; null: it can, now or soon. */
  #refusal(): Error | null {
    if (this.#is === "closed") return new ClosedError("the driver was closed");
    const isDown = this.#is === "resting" || (this.#is === "dialing" && this.#failures > 0);
    if (!isDown || this.#clock.now() < this.#holdUntil) return null;
    return new Error("the lock server cannot be reached", { cause: this.#lastError });
  }

  #dial(): void {
    const { prepare, connectTimeoutMs } = this.#options;
    const now = this.#clock.now();
    const attempt = ++this.#attempt;
    if (this.#is === "idle") this.#holdUntil = now + HOLD_MS;
    this.#is = "dialing";
    this.#dialUntil = now + connectTimeoutMs;
    this.#arm();
    if (prepare === undefined) return this.#connect(attempt);
    prepare().then(
      () => this.#connect(attempt),
      (error: Error) => this.#lost(attempt, error),
    );
  }

  #connect(attempt: number): void {
    if (attempt !== this.#attempt || this.#is !== "dialing") return;
    const wire = this.#options.dial({
      lines: (lines) => {
        if (attempt === this.#attempt) this.#lines(lines);
      },
      closed: (error) => this.#lost(attempt, error),
    });
    this.#wire = wire;
    if (this.#alive) wire.keepAlive(true);
    wire.write(this.#hooks.hello());
  }

  #lines(lines: readonly string[]): void {
    this.#heardAt = this.#clock.now();
    this.#pingedAt = null;
    try {
      for (const line of lines) {
        if (this.#is === "dialing") this.#welcome(decodeWelcome(line));
        else if (this.#is === "up") this.#frames(line);
      }
    } catch (error) {
      if (this.#is === "up" && !(error instanceof ProtocolError)) throw error;
      const wire = this.#wire;
      this.#lost(this.#attempt, error as Error);
      wire?.close();
    }
    this.watch();
  }

  #welcome(hello: ServerHello): void {
    const previous = this.#start;
    const heldBack = this.#out;
    this.#is = "up";
    this.#hello = hello;
    this.#start = hello.start;
    this.#failures = 0;
    this.#out = [];
    this.#opening?.resolve();
    this.#opening = null;
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
      if (verb === "ok" || verb === "error") this.#reply(verb, frame);
      else this.#hooks.pushed(frame);
    }
  }

  #reply(verb: "ok" | "error", frame: readonly unknown[]): void {
    const call = this.#calls.get(frame[1] as number);
    if (call === undefined) return;
    if (verb === "ok") call.settle(frame[2]);
    // one whose reply is malformed is still among the calls, and fails with the connection
    this.#calls.delete(frame[1] as number);
    if (verb === "error") call.fail(errorOf(String(frame[2]), String(frame[3])));
  }

  /** The wire of that attempt has ended, or never stood. */
  #lost(attempt: number, cause: Error | null): void {
    if (attempt !== this.#attempt || this.#is === "closed" || this.#is === "idle" || this.#is === "resting") return;
    const now = this.#clock.now();
    const wasUp = this.#is === "up";
    const isFinal = cause instanceof ProtocolError && FATAL.has(cause.code);
    const error = isFinal
      ? new FatalDriverError(cause.message, { cause })
      : new Error(wasUp ? "the connection to the lock server was lost" : "the lock server cannot be reached", {
          cause,
        });
    this.#lastError = error;
    this.#attempt++;
    this.#failures++;
    if (wasUp) this.#holdUntil = now + HOLD_MS;
    // calls held back may still be sent over the next wire, those that were sent are lost
    if (wasUp || isFinal || now >= this.#holdUntil) this.#drop(error);
    const opensAgain = this.#opensAgain(isFinal, now);
    this.#wire = null;
    this.#hello = null;
    if (!opensAgain) this.#opening?.reject(error);
    const isNeeded = opensAgain || (this.#opening === null && (this.#calls.size > 0 || this.#hooks.isNeeded()));
    if (!opensAgain) this.#opening = null;
    this.#is = isNeeded ? "resting" : "idle";
    this.#retryAt = now + backoffMs(this.#failures, this.#options.random(), LONGEST_REST_MS);
    if (!isNeeded) this.#failures = 0;
    this.watch();
    this.#arm();
  }

  /** A server that we may start ourselves has died while we said hello to it: the next attempt starts the next one. */
  #opensAgain(isFinal: boolean, now: number): boolean {
    const wasReached = this.#options.prepare !== undefined && this.#wire !== null;
    return this.#opening !== null && wasReached && !isFinal && now < this.#openUntil;
  }

  /** Fails all calls. */
  #drop(error: Error): void {
    this.#out = [];
    const calls = this.#calls.values();
    this.#calls.clear();
    for (const call of calls) call.fail(error);
  }

  /** Once all that this turn of the event loop wants to say has been said: first its promises, then the flush. */
  #flushSoon(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    queueMicrotask(() => process.nextTick(() => this.#flush()));
  }

  #flush(): void {
    this.#flushing = false;
    if (this.#is !== "up" || this.#out.length === 0) return;
    const frames = this.#out;
    this.#out = [];
    this.#spokeAt = this.#clock.now();
    const head = `["${this.#start}"`;
    const room = (this.#hello as ServerHello).limits.lineBytes - head.length - 2;
    let text = "";
    let bytes = 0;
    for (const frame of frames) {
      const size = sizeOf(frame) + 1;
      if (bytes + size > room && text !== "") {
        this.#wire?.write(`${head}${text}]\n`);
        text = "";
        bytes = 0;
      }
      text += `,${frame}`;
      bytes += size;
    }
    this.#wire?.write(`${head}${text}]\n`);
  }

  #tick(): void {
    const now = this.#clock.now();
    if (this.#is === "dialing" && now >= this.#dialUntil) {
      const wire = this.#wire;
      this.#lost(this.#attempt, new Error(`no answer within ${this.#options.connectTimeoutMs} ms`));
      wire?.close();
    }
    if (this.#is !== "up" && this.#calls.size > 0 && now >= this.#holdUntil && this.#failures > 0) {
      this.#drop(new Error("the lock server cannot be reached", { cause: this.#lastError }));
      this.watch();
    }
    if (this.#is === "resting" && now >= this.#retryAt) {
      if (this.#opening !== null || this.#hooks.isNeeded() || this.#calls.size > 0) this.#dial();
      else this.#is = "idle";
    }
    if (this.#is === "up") this.#speak(now);
    this.#arm();
  }

  /** Over a network: says something now and then where the server must hear from us, and finds out whether it hears. */
  #speak(now: number): void {
    const quiet = this.#quietMs();
    if (quiet === null) return;
    if (this.#pingedAt !== null && now >= this.#pingedAt + quiet) {
      const wire = this.#wire;
      this.#lost(this.#attempt, new Error(`the lock server has been silent for ${Math.round(now - this.#heardAt)} ms`));
      wire?.close();
      return;
    }
    if (now < this.#speaksAt(quiet)) return;
    this.#pingedAt ??= now;
    this.#out.push(encodePing(this.next()));
    this.#flush();
  }

  /** How long may be nothing said, or heard; null: for ever. */
  #quietMs(): number | null {
    const hello = this.#hello;
    if (hello === null || hello.silenceKeeps) return null;
    return this.#hooks.mustSpeak() || this.#calls.size > 0 ? hello.sessionMs / 3 : null;
  }

  #speaksAt(quiet: number): number {
    return Math.min(this.#spokeAt, this.#heardAt) + quiet;
  }

  #arm(): void {
    this.#timer.set(this.#nextDue());
  }

  #nextDue(): number | null {
    switch (this.#is) {
      case "dialing":
        return this.#calls.size > 0 && this.#failures > 0
          ? Math.min(this.#dialUntil, this.#holdUntil)
          : this.#dialUntil;
      case "resting":
        return this.#calls.size > 0 ? Math.min(this.#retryAt, this.#holdUntil) : this.#retryAt;
      case "up": {
        const quiet = this.#quietMs();
        if (quiet === null) return null;
        return this.#pingedAt === null ? this.#speaksAt(quiet) : this.#pingedAt + quiet;
      }
      default:
        return null;
    }
  }
}

/** Bytes of UTF-8; a code unit has at most three. */
function sizeOf(frame: string): number {
  return frame.length < 1_024 ? frame.length * 3 : Buffer.byteLength(frame);
}

function errorOf(code: string, message: string): Error {
  if (FATAL.has(code)) return new FatalDriverError(message);
  return Object.assign(new Error(message), { code });
}

/**
 * Receives pushes: LISTEN on a connection of its own, opened when the first claim of this process waits, or by
 * stayOpen(). Timers only space the attempts to connect and bound the probes; claims are unknown here.
 *
 * Invariants
 * - It receives only if a notification that was sent the way of the calls has arrived here: a pooler accepts LISTEN and
 *   delivers nothing. While a standby is promoted, too, the calls may lead to one server and this connection to the
 *   other, so one that is lost says nothing yet.
 * - A push counts as an answer only while it receives; before, it is a hint.
 * - After stayOpen() it opens a new connection whenever one ends: held claims wait for pushes, too.
 * - When it begins or ceases to receive, pushes may be lost: it says so, and the claims are rechecked.
 * - A dead connection is always detected: a half-open one raises no event, so after a silence the next renewal takes a
 *   probe along, and the first answer to a new waiting claim sends one.
 */

import { backoffMs } from "../../../util/backoff.ts";
import type { Clock } from "../../../util/clock.ts";
import { randomId } from "../../../util/ids.ts";
import { sleep, withTimeout } from "../../../util/timeout.ts";
import { ATTEMPT_TIMEOUT_MS, MAX_BACKOFF_MS, PROBE_AFTER_MS, PushProbe } from "../../push-probe.ts";
import type { DedicatedConnection } from "../clients/types.ts";
import { LAYOUT_VERSION, quoteIdentifier } from "../schema.ts";

/** So many probes in a row that were sent and did not arrive, each on a connection of its own, show a pooler. */
const LOSSES_OF_POOLER = 2;
/** The pause after that, in milliseconds: the pooler will not change soon. */
const UNREACHABLE_PAUSE_MS = 60_000;

export interface ListenerEvents {
  /** `isAnswer`: it counts as an answer, not only as a hint. */
  onPush(message: string, isAnswer: boolean): void;
  /** The connection ended. */
  onEnd(): void;
  /** Pushes may have been lost. */
  onMissed(): void;
  /** Notifications do not arrive. Called once. */
  onUnreachable(): void;
}

/** What it needs of the driver. */
export interface ListenerContext {
  readonly clock: Clock;
  readonly connect: () => Promise<DedicatedConnection>;
  /**
   * Sends a notification the way of the calls; rejects where a call would be refused, so that it leads to the primary
   * as they do.
   */
  readonly notify: (channel: string, payload: string) => Promise<unknown>;
}

type ListenerState =
  /** No claim has waited yet, or the connection broke. */
  | { readonly kind: "idle" }
  /** Connecting or verifying, until it receives. */
  | { readonly kind: "opening" }
  | { readonly kind: "receiving"; readonly connection: DedicatedConnection }
  | { readonly kind: "closed" };

/** unknown: it could not be sent, or the connection ended. */
type ProbeResult = "arrived" | "lost" | "unknown";

export class Listener {
  /**
   * The layout, as all names have it, and 130 random bits: every role of the database may send notifications to every
   * channel that it can name. walk.sql knows it by its prefix.
   */
  readonly channel: string = `hf_${LAYOUT_VERSION}_${randomId()}`;
  readonly #context: ListenerContext;
  readonly #events: ListenerEvents;
  #state: ListenerState = { kind: "idle" };
  /** Probes in a row that were sent when a connection was opened, and did not arrive. */
  #lossCount = 0;
  #staysOpen = false;
  #failureCount = 0;
  #lastHeardAt = 0;
  #isProbing = false;
  readonly #probe = new PushProbe();

  constructor(context: ListenerContext, events: ListenerEvents) {
    this.#context = context;
    this.#events = events;
  }

  /** Whether pushes arrive now. */
  get isReceiving(): boolean {
    return this.#state.kind === "receiving";
  }

  /** Whether notifications did not arrive although the connection was open. */
  get isUnreachable(): boolean {
    return this.#lossCount >= LOSSES_OF_POOLER;
  }

  /**
   * Opens the connection, and from now on a new one whenever it ends. Whether pushes arrive, after the first attempt:
   * if not, it is as if this had not been called.
   */
  async stayOpen(): Promise<boolean> {
    this.#state = { kind: "opening" };
    // there is no time for more attempts
    this.#lossCount = LOSSES_OF_POOLER - 1;
    const connection = await this.#connectAndVerify();
    if (!this.#isOpening) connection?.release(true);
    else if (connection === null) this.#state = { kind: "idle" };
    else this.#receive(connection);
    this.#staysOpen = this.isReceiving;
    return this.isReceiving;
  }

  /** Called when a claim was answered "waiting". */
  onWaiting(): void {
    if (this.#state.kind === "idle") void this.#open();
    else if (this.#state.kind === "receiving") this.#probeIfSilent(this.#state.connection);
  }

  /**
   * Makes a call. If the connection has been silent, the call takes a probe along, which costs no statement of its own.
   */
  async callWithProbe<T>(call: (probe: string | null) => Promise<T>): Promise<T> {
    const state = this.#state;
    if (state.kind !== "receiving" || !this.#isProbeDue) return call(null);
    this.#isProbing = true;
    const { message, arrival } = this.#probe.expect();
    try {
      const reply = await call(message);
      void this.#closeIfLost(state.connection, this.#awaitProbe(arrival));
      return reply;
    } catch (error) {
      this.#isProbing = false;
      throw error;
    }
  }

  /** The server is not the primary any more: nothing is pushed there. */
  leave(): void {
    if (this.#state.kind === "receiving") this.#state.connection.release(true);
  }

  close(): void {
    const state = this.#state;
    this.#state = { kind: "closed" };
    if (state.kind === "receiving") state.connection.release(true);
  }

  /** Tries until it receives. */
  async #open(): Promise<void> {
    this.#state = { kind: "opening" };
    const { clock } = this.#context;
    for (; this.#isOpening; ) {
      if (this.#failureCount > 0) await sleep(clock, this.#pauseMs());
      if (!this.#isOpening) return;
      const connection = await this.#connectAndVerify();
      if (connection === null) {
        this.#failureCount++;
        continue;
      }
      if (!this.#isOpening) return connection.release(true);
      this.#receive(connection);
      this.#events.onMissed();
      return;
    }
  }

  #receive(connection: DedicatedConnection): void {
    this.#failureCount = 0;
    this.#lossCount = 0;
    this.#state = { kind: "receiving", connection };
    connection.onEnd(() => this.#onEnd(connection));
  }

  /** close() ends it at any time. */
  get #isOpening(): boolean {
    return this.#state.kind === "opening";
  }

  #pauseMs(): number {
    return this.isUnreachable ? UNREACHABLE_PAUSE_MS : backoffMs(this.#failureCount, Math.random(), MAX_BACKOFF_MS);
  }

  /** A connection over which a notification has arrived; null: it failed. */
  async #connectAndVerify(): Promise<DedicatedConnection | null> {
    const { clock, connect } = this.#context;
    const opening = connect();
    const connection = await withTimeout<DedicatedConnection | null>(clock, ATTEMPT_TIMEOUT_MS, opening, () => {
      opening.then(
        (late) => late.release(true),
        () => undefined,
      );
      return null;
    }).catch(() => null);
    if (connection === null) return null;
    const ended = new Promise<ProbeResult>((resolve) => connection.onEnd(() => resolve("unknown")));
    const result = await Promise.race([this.#listen(connection), ended]);
    if (result === "arrived") return connection;
    // a pooler may keep listening for a client that has gone: each notification would cost the server
    if (result === "lost") await connection.query("unlisten *").catch(() => undefined);
    connection.release(true);
    if (result === "lost" && ++this.#lossCount === LOSSES_OF_POOLER) this.#events.onUnreachable();
    return null;
  }

  async #listen(connection: DedicatedConnection): Promise<ProbeResult> {
    connection.onNotification?.((channel, payload) => {
      if (channel === this.channel) this.#onNotification(connection, payload);
    });
    try {
      // unquoted, the name would be folded to lower case
      const listening = connection.query(`listen ${quoteIdentifier(this.channel)}`);
      // a pooler without a session for it is silent
      await withTimeout(this.#context.clock, ATTEMPT_TIMEOUT_MS, listening, () =>
        Promise.reject(new Error("no answer")),
      );
    } catch {
      return "unknown";
    }
    return this.#sendProbe();
  }

  /** Sends a notification the way of the calls, and waits until it arrives here. */
  async #sendProbe(): Promise<ProbeResult> {
    const { message, arrival } = this.#probe.expect();
    try {
      await this.#context.notify(this.channel, message);
    } catch {
      return "unknown";
    }
    return this.#awaitProbe(arrival);
  }

  /** The probe has been sent. */
  #awaitProbe(arrival: Promise<void>): Promise<ProbeResult> {
    const arrived = arrival.then((): ProbeResult => "arrived");
    return withTimeout(this.#context.clock, ATTEMPT_TIMEOUT_MS, arrived, () => "lost" as const);
  }

  get #isProbeDue(): boolean {
    return !this.#isProbing && this.#context.clock.now() - this.#lastHeardAt >= PROBE_AFTER_MS;
  }

  #probeIfSilent(connection: DedicatedConnection): void {
    if (!this.#isProbeDue) return;
    this.#isProbing = true;
    void this.#closeIfLost(connection, this.#sendProbe());
  }

  async #closeIfLost(connection: DedicatedConnection, probe: Promise<ProbeResult>): Promise<void> {
    const result = await probe;
    this.#isProbing = false;
    if (result === "lost") connection.release(true);
  }

  #onNotification(connection: DedicatedConnection, payload: string): void {
    this.#lastHeardAt = this.#context.clock.now();
    if (this.#probe.onMessage(payload)) return;
    const isAnswer = this.#state.kind === "receiving" && this.#state.connection === connection;
    this.#events.onPush(payload, isAnswer);
  }

  /** The claims that wait are rechecked, and the first that still waits opens the connection again. */
  #onEnd(connection: DedicatedConnection): void {
    if (this.#state.kind !== "receiving" || this.#state.connection !== connection) return;
    this.#state = { kind: "idle" };
    this.#failureCount++;
    this.#events.onEnd();
    this.#events.onMissed();
    if (this.#staysOpen) void this.#open();
  }
}

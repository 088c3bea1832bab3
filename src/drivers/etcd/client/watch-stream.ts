/**
 * All watches of a client, over one stream.
 *
 * Invariants
 * - A watch reports all changes after the revision `since`: that at which the member has created it, on each new stream again, or of the last
 *   change that it has reported. What changed before must be read. (A watch that begins in the past is served by a loop of the server
 *   that runs every 100 ms.)
 * - A stream is believed only as long as the member answers it: confirm() asks it for an answer.
 */

import { backoffMs } from "../../../util/backoff.ts";
import type { Clock, Timer } from "../../../util/clock.ts";
import { runAfterReading } from "../../../util/run-after-reading.ts";
import { toCallError } from "./errors.ts";
import type { GatewayStream, StreamEvents } from "./gateway.ts";
import type { KeyValue } from "./messages.ts";

/** What is watched: a key or a range. */
export interface WatchTarget {
  readonly key: string;
  readonly range_end?: string;
  /** Changes that are not reported. */
  readonly without?: "NOPUT";
}

/** A change of a key. Of a deleted one the name and mod_revision are known. */
export interface WatchEvent {
  readonly isDelete: boolean;
  readonly kv: KeyValue;
}

export interface WatchListener {
  onEvent(event: WatchEvent): void;
  /** It reports what changes from now on. */
  onCreated(): void;
}

export interface Watch {
  /** It has reported every change after this revision; null: it reports nothing at present. */
  readonly since: bigint | null;
  cancel(): void;
}

interface WatchResult {
  readonly result?: {
    readonly header?: { readonly revision?: string };
    readonly watch_id?: string;
    readonly created?: boolean;
    readonly canceled?: boolean;
    readonly cancel_reason?: string;
    readonly events?: readonly { readonly type?: string; readonly kv: KeyValue }[];
  };
}

/** One watch of the stream, for all that watch the same. */
interface SharedWatch {
  readonly id: string;
  readonly target: WatchTarget;
  readonly listeners: Set<WatchListener>;
  since: bigint | null;
}

interface WatchStreamOptions {
  readonly open: (events: StreamEvents) => Promise<GatewayStream>;
  readonly clock: Clock;
  readonly random: () => number;
  readonly timeoutMs: number;
  /** The stream broke. */
  readonly onBreak: () => void;
  /** It is open again. */
  readonly onReopened: () => void;
}

const MAX_BACKOFF_MS = 1_000;

export class WatchStream {
  readonly #options: WatchStreamOptions;
  readonly #byId = new Map<string, SharedWatch>();
  readonly #byTarget = new Map<string, SharedWatch>();
  readonly #timer: Timer;
  #stream: GatewayStream | null = null;
  #isOpening = false;
  #isClosed = false;
  /** It broke, and is not open again. */
  #isBroken = false;
  #failures = 0;
  #lastId = 0;
  /** Settle with the next message. */
  #confirmations: (() => void)[] = [];

  constructor(options: WatchStreamOptions) {
    this.#options = options;
    this.#timer = options.clock.timer(() => this.#open());
  }

  watch(target: WatchTarget, listener: WatchListener): Watch {
    const name = `${target.key} ${target.range_end ?? ""} ${target.without ?? ""}`;
    const shared = this.#byTarget.get(name) ?? this.#add(name, target);
    shared.listeners.add(listener);
    return {
      get since() {
        return shared.since;
      },
      cancel: () => {
        if (!shared.listeners.delete(listener) || shared.listeners.size > 0) return;
        this.#byId.delete(shared.id);
        this.#byTarget.delete(name);
        this.#stream?.write({ cancel_request: { watch_id: shared.id } });
      },
    };
  }

  /** Asks the member for an answer over the stream. Without one in time the stream is opened again. */
  async confirm(withinMs: number): Promise<boolean> {
    const stream = this.#stream;
    if (stream === null || this.#byId.size === 0) return false;
    const { clock, timeoutMs } = this.#options;
    const isConfirmed = await new Promise<boolean>((resolve) => {
      // a busy process reads the answer late
      const timer = clock.timer(() => runAfterReading(() => resolve(false)));
      timer.set(clock.now() + Math.min(timeoutMs, withinMs));
      this.#confirmations.push(() => {
        timer.stop();
        resolve(true);
      });
      stream.write({ progress_request: {} });
    });
    if (!isConfirmed) stream.close();
    return isConfirmed && this.#stream === stream;
  }

  /** The calls go to another member now, and so must the stream. */
  reopen(): void {
    this.#stream?.close();
  }

  close(): void {
    this.#isClosed = true;
    this.#timer.stop();
    this.#byId.clear();
    this.#stream?.close();
  }

  #add(name: string, target: WatchTarget): SharedWatch {
    const shared: SharedWatch = { id: String(++this.#lastId), target, listeners: new Set(), since: null };
    this.#byId.set(shared.id, shared);
    this.#byTarget.set(name, shared);
    if (this.#stream !== null) sendCreate(this.#stream, shared);
    else this.#open();
    return shared;
  }

  #open(): void {
    if (this.#isClosed || this.#isOpening || this.#stream !== null || this.#byId.size === 0) return;
    this.#isOpening = true;
    let own: GatewayStream | null = null;
    const events: StreamEvents = {
      onMessage: (message) => this.#onMessage(message as WatchResult),
      onEnd: () => {
        if (own === null || own === this.#stream) this.#onEnd();
      },
    };
    this.#options
      .open(events)
      .then((stream) => {
        own = stream;
        this.#isOpening = false;
        this.#stream = stream;
        if (this.#isClosed) stream.close();
        for (const shared of this.#byId.values()) sendCreate(stream, shared);
      })
      .catch(() => {
        this.#isOpening = false;
        this.#onEnd();
      });
  }

  #onEnd(): void {
    this.#stream = null;
    this.#settleConfirmations();
    for (const shared of this.#byId.values()) shared.since = null;
    if (this.#isClosed) return;
    if (!this.#isBroken) {
      this.#isBroken = true;
      this.#options.onBreak();
    }
    this.#failures++;
    const { clock, random } = this.#options;
    this.#timer.set(clock.now() + backoffMs(this.#failures, random(), MAX_BACKOFF_MS));
  }

  #onMessage({ result }: WatchResult): void {
    this.#settleConfirmations();
    const shared = this.#byId.get(result?.watch_id ?? "");
    // one was refused, without a valid token for instance, and the answer does not say which; or the server has ended one, which had fallen
    // behind what it still knows
    if (result?.canceled === true && (result.cancel_reason !== undefined || shared !== undefined))
      return this.#stream?.close(toCallError(200, JSON.stringify({ message: result.cancel_reason, code: 2 })));
    this.#failures = 0;
    if (this.#isBroken) {
      this.#isBroken = false;
      this.#options.onReopened();
    }
    if (shared === undefined) return;
    if (result?.created === true) {
      shared.since = BigInt(result.header?.revision ?? 0);
      for (const listener of [...shared.listeners]) listener.onCreated();
    }
    for (const { type, kv } of result?.events ?? []) {
      shared.since = BigInt(kv.mod_revision);
      for (const listener of [...shared.listeners]) listener.onEvent({ isDelete: type === "DELETE", kv });
    }
  }

  #settleConfirmations(): void {
    const settled = this.#confirmations;
    this.#confirmations = [];
    for (const settle of settled) settle();
  }
}

function sendCreate(stream: GatewayStream, { id, target }: SharedWatch): void {
  const { without, ...range } = target;
  stream.write({ create_request: { ...range, ...(without !== undefined && { filters: [without] }), watch_id: id } });
}

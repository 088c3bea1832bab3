/**
 * All watches of a driver, over one stream.
 *
 * Invariants
 * - No event is missed while the servers keep the history: each watch begins at a revision, and on a new stream behind the last
 *   event that it has reported. If the history is compacted, onMissed() says so.
 * - A stream is believed only as long as the member answers it: confirm() asks it for an answer.
 */

import { backoffMs } from "../../util/backoff.ts";
import type { Clock, Timer } from "../../util/clock.ts";
import type { GatewayStream, StreamEvents } from "./gateway.ts";
import type { KeyValue } from "./messages.ts";

/** What is watched. */
export interface WatchTarget {
  readonly key: string;
  readonly range_end?: string;
  /** Changes that are not reported. */
  readonly without?: "NOPUT" | "NODELETE";
}

/** A change of a key. */
export interface WatchEvent {
  readonly isDelete: boolean;
  /** Of a deleted key: its name and mod_revision. */
  readonly kv: KeyValue;
}

export interface WatchListener {
  onEvent(event: WatchEvent): void;
  /** Changes were missed, and nothing more is reported. */
  onMissed(): void;
}

/** A watch: it is gone after cancel() or onMissed(). */
export interface Watch {
  /** The member reports what changes. */
  readonly isActive: boolean;
  cancel(): void;
}

interface WatchResult {
  readonly result?: {
    readonly watch_id?: string;
    readonly created?: boolean;
    readonly canceled?: boolean;
    readonly events?: readonly { readonly type?: string; readonly kv: KeyValue }[];
  };
}

class ActiveWatch implements Watch {
  readonly id: string;
  readonly target: WatchTarget;
  readonly listener: WatchListener;
  /** Where it begins on the next stream. */
  nextRevision: bigint;
  isActive = false;
  readonly #onCancel: (watch: ActiveWatch) => void;

  constructor(
    id: string,
    target: WatchTarget,
    nextRevision: bigint,
    listener: WatchListener,
    onCancel: (watch: ActiveWatch) => void,
  ) {
    this.id = id;
    this.target = target;
    this.nextRevision = nextRevision;
    this.listener = listener;
    this.#onCancel = onCancel;
  }

  cancel(): void {
    this.#onCancel(this);
  }
}

interface WatchStreamOptions {
  readonly open: (events: StreamEvents) => Promise<GatewayStream>;
  readonly clock: Clock;
  readonly random: () => number;
  readonly timeoutMs: number;
  /** The stream broke, and is open again. */
  readonly onBreak: () => void;
  readonly onReopened: () => void;
}

const MAX_BACKOFF_MS = 1_000;

export class WatchStream {
  readonly #options: WatchStreamOptions;
  readonly #watches = new Map<string, ActiveWatch>();
  readonly #timer: Timer;
  #stream: GatewayStream | null = null;
  #isOpening = false;
  #isClosed = false;
  /** It broke, and is not open again. */
  #isBroken = false;
  #failures = 0;
  #lastId = 0;
  #onMessage: (() => void)[] = [];

  constructor(options: WatchStreamOptions) {
    this.#options = options;
    this.#timer = options.clock.timer(() => this.#open());
  }

  /** Reports the changes from this revision on. */
  watch(target: WatchTarget, fromRevision: bigint, listener: WatchListener): Watch {
    const watch = new ActiveWatch(String(++this.#lastId), target, fromRevision, listener, (one) => this.#cancel(one));
    this.#watches.set(watch.id, watch);
    if (this.#stream !== null) this.#sendCreate(this.#stream, watch);
    else this.#open();
    return watch;
  }

  /** Asks the member for an answer over the stream. Without one in time the stream is opened again. */
  async confirm(): Promise<boolean> {
    const stream = this.#stream;
    if (stream === null) return false;
    const { clock, timeoutMs } = this.#options;
    const isConfirmed = await new Promise<boolean>((resolve) => {
      const timer = clock.timer(() => resolve(false));
      timer.set(clock.now() + timeoutMs);
      this.#onMessage.push(() => {
        timer.stop();
        resolve(true);
      });
      stream.write({ progress_request: {} });
    });
    if (!isConfirmed && this.#stream === stream) stream.close();
    return isConfirmed && this.#stream === stream;
  }

  /** The calls go to another member now, and so must the stream. */
  reopen(): void {
    this.#stream?.close();
  }

  close(): void {
    this.#isClosed = true;
    this.#timer.stop();
    this.#watches.clear();
    this.#stream?.close();
  }

  #open(): void {
    if (this.#isClosed || this.#isOpening || this.#stream !== null || this.#watches.size === 0) return;
    this.#isOpening = true;
    let own: GatewayStream | null = null;
    const events: StreamEvents = {
      onMessage: (message) => this.#onStreamMessage(message as WatchResult),
      onEnd: () => {
        if (own === null || own === this.#stream) this.#onEnd();
      },
    };
    this.#options.open(events).then(
      (stream) => {
        own = stream;
        this.#isOpening = false;
        if (this.#isClosed) return stream.close();
        this.#stream = stream;
        for (const watch of this.#watches.values()) this.#sendCreate(stream, watch);
        // with no watch left the member would answer nothing
        if (this.#watches.size === 0) stream.close();
      },
      () => {
        this.#isOpening = false;
        this.#onEnd();
      },
    );
  }

  #onEnd(): void {
    this.#stream = null;
    this.#settleConfirmations();
    for (const watch of this.#watches.values()) watch.isActive = false;
    if (this.#isClosed) return;
    if (!this.#isBroken) {
      this.#isBroken = true;
      this.#options.onBreak();
    }
    this.#failures++;
    const { clock, random } = this.#options;
    this.#timer.set(clock.now() + backoffMs(this.#failures, random(), MAX_BACKOFF_MS));
  }

  #sendCreate(stream: GatewayStream, { id, target, nextRevision }: ActiveWatch): void {
    const { without, ...range } = target;
    const filters = without === undefined ? {} : { filters: [without] };
    stream.write({ create_request: { ...range, ...filters, watch_id: id, start_revision: String(nextRevision) } });
  }

  #onStreamMessage({ result }: WatchResult): void {
    this.#failures = 0;
    this.#settleConfirmations();
    if (this.#isBroken) {
      this.#isBroken = false;
      this.#options.onReopened();
    }
    const watch = this.#watches.get(result?.watch_id ?? "0");
    if (result === undefined || watch === undefined) return;
    if (result.canceled === true) {
      // its history is compacted, or it may not be read
      this.#watches.delete(watch.id);
      watch.isActive = false;
      watch.listener.onMissed();
      return;
    }
    if (result.created === true) watch.isActive = true;
    for (const { type, kv } of result.events ?? []) {
      watch.nextRevision = BigInt(kv.mod_revision) + 1n;
      if (this.#watches.has(watch.id)) watch.listener.onEvent({ isDelete: type === "DELETE", kv });
    }
  }

  #cancel(watch: ActiveWatch): void {
    if (!this.#watches.delete(watch.id)) return;
    watch.isActive = false;
    this.#stream?.write({ cancel_request: { watch_id: watch.id } });
  }

  #settleConfirmations(): void {
    const settled = this.#onMessage;
    this.#onMessage = [];
    for (const settle of settled) settle();
  }
}

/**
 * The only publisher of what happens to locks: to listeners of one client, and to node:diagnostics_channel under
 * "holdfast:<event>" for tracing and metrics. Free when nobody listens.
 */

import { channel } from "node:diagnostics_channel";
import { safeListener } from "../errors.ts";
import type { LostReason } from "../spi/driver.ts";

/** What every event about a lock carries. Never an id, which is a secret. */
export interface LockEvent {
  /** The keys as the caller named them. */
  readonly keys: readonly string[];
}

/** The events of a client and what each carries. Times in milliseconds. */
export interface LockEvents {
  /** A lock was granted. */
  readonly acquired: LockEvent & { readonly token: bigint; readonly waitedMs: number; readonly label: string };
  /** A request has to wait: at the store or behind others of this client. */
  readonly waiting: LockEvent & { readonly label: string };
  /** A lock was passed on to the next local request without asking the store. */
  readonly handedOff: LockEvent & { readonly token: bigint };
  /** A lock was given back. */
  readonly released: LockEvent & { readonly token: bigint; readonly heldMs: number };
  /** A renewal failed or is late; the lease still stands. */
  readonly jeopardy: LockEvent & { readonly token: bigint; readonly remainingMs: number; readonly error: unknown };
  /** A renewal succeeded after jeopardy. */
  readonly restored: LockEvent & { readonly token: bigint; readonly remainingMs: number };
  /** A lock is no longer ours. */
  readonly lost: LockEvent & { readonly token: bigint; readonly reason: LostReason };
  /** A clock moved: the store's wall clock stepped, or this machine slept. */
  readonly clockStep: { readonly byMs: number; readonly source: "store" | "client" };
  /** The store cannot be reached; said once until storeUp. */
  readonly storeDown: { readonly error: unknown };
  /** The store answers again. */
  readonly storeUp: { readonly downMs: number };
}

type Listener = (detail: never) => void;

const EVENT_NAMES = [
  "acquired",
  "waiting",
  "handedOff",
  "released",
  "jeopardy",
  "restored",
  "lost",
  "clockStep",
  "storeDown",
  "storeUp",
] as const satisfies readonly (keyof LockEvents)[];

const CHANNELS = Object.fromEntries(EVENT_NAMES.map((name) => [name, channel(`holdfast:${name}`)])) as Record<
  keyof LockEvents,
  ReturnType<typeof channel>
>;

export class Events {
  readonly #listeners = new Map<keyof LockEvents, Set<Listener>>();

  /** Is it worth making this event's detail? */
  hasListeners(event: keyof LockEvents): boolean {
    return CHANNELS[event].hasSubscribers || this.#listeners.has(event);
  }

  emit<E extends keyof LockEvents>(event: E, detail: LockEvents[E]): void {
    if (CHANNELS[event].hasSubscribers) CHANNELS[event].publish(detail);
    // a copy: one that takes itself back and listens anew would be met again in the same event, for ever
    for (const listener of [...(this.#listeners.get(event) ?? [])]) listener(detail as never);
  }

  /** @throws TypeError for an unknown event or a listener that is no function */
  on<E extends keyof LockEvents>(event: E, listener: (detail: LockEvents[E]) => void): Disposable {
    if (!EVENT_NAMES.includes(event)) throw new TypeError(`event must be one of ${EVENT_NAMES.join(", ")}`);
    if (typeof listener !== "function") throw new TypeError("listener must be a function");
    // wrapped, so that the same function given twice is two listeners
    const safe: Listener = safeListener(listener);
    const listeners = (this.#listeners.get(event) ?? new Set()).add(safe);
    this.#listeners.set(event, listeners);
    return {
      [Symbol.dispose]: () => {
        listeners.delete(safe);
        if (listeners.size === 0) this.#listeners.delete(event);
      },
    };
  }
}

/**
 * Publishes all events about locks: to the listeners of one client, and to node:diagnostics_channel under
 * "holdfast:<event>" for tracing and metrics. Costs nothing without listeners.
 */

import { channel } from "node:diagnostics_channel";
import type { LostReason } from "../errors.ts";
import { safeListener } from "../errors.ts";
import type { LockMode } from "../spi/claim-info.ts";

/**
 * How a request ended without a lock. busy: tryAcquire() found it taken; timeout: LockTimeoutError; cancelled: by its
 * signal, or the client was closed; error: any other error.
 */
export type FailedOutcome = "busy" | "timeout" | "cancelled" | "error";

/** The fields of every event about a lock. The claim's id is a secret and never among them. */
export interface LockEvent {
  /** The keys, without the client's prefix. */
  readonly keys: readonly string[];
  /** What stands for the keys in metrics: the option `keyTemplate`, or the templates of wrap() and @locked(). */
  readonly keyTemplate: string | undefined;
  readonly mode: LockMode;
  /** The name of the driver. */
  readonly store: string;
  /** The number of the request in this process: the same in all events of a request and of the lock that it got. */
  readonly request: number;
}

/** The events of a client with their details. Times are in milliseconds. */
export interface LockEvents {
  /** acquire() or tryAcquire() was called; emitted in its async context. Ends with `acquired` or `failed`. */
  readonly requested: LockEvent & { readonly label: string };
  /** A request ended without a lock. The error is what it rejected with; null if tryAcquire() found the lock busy. */
  readonly failed: LockEvent & { readonly waitedMs: number; readonly outcome: FailedOutcome; readonly error: unknown };
  /** A lock was granted. */
  readonly acquired: LockEvent & { readonly token: bigint; readonly waitedMs: number; readonly label: string };
  /** A request has to wait: at the store, or behind other requests of this client. */
  readonly waiting: LockEvent & { readonly label: string };
  /** A lock was handed off to the next local waiter, without a call to the store. */
  readonly handedOff: LockEvent & { readonly token: bigint };
  /** A detached lock was taken over. */
  readonly attached: LockEvent & { readonly token: bigint };
  /** A lock was detached. */
  readonly detached: LockEvent & { readonly token: bigint; readonly heldMs: number };
  /** A call that renews claims, held or waiting, has ended. `error` is undefined if the store answered. */
  readonly renewed: {
    readonly store: string;
    readonly claims: number;
    readonly tookMs: number;
    readonly error: unknown;
  };
  /** A lock was released. */
  readonly released: LockEvent & { readonly token: bigint; readonly heldMs: number };
  /** A renewal failed or is late; the lease has not ended yet. */
  readonly jeopardy: LockEvent & { readonly token: bigint; readonly remainingMs: number; readonly error: unknown };
  /** A renewal succeeded after jeopardy. */
  readonly restored: LockEvent & { readonly token: bigint; readonly remainingMs: number };
  /** A lock was lost. */
  readonly lost: LockEvent & { readonly token: bigint; readonly reason: LostReason; readonly heldMs: number };
  /** A clock jumped: the store's wall clock stepped, or this machine was suspended. */
  readonly clockStep: { readonly byMs: number; readonly source: "store" | "client" };
  /** The store cannot be reached; emitted once until storeUp. */
  readonly storeDown: { readonly error: unknown };
  /** The store answers again. */
  readonly storeUp: { readonly downMs: number };
}

type Listener = (detail: never) => void;

const EVENT_NAMES = [
  "requested",
  "failed",
  "attached",
  "detached",
  "renewed",
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

  /** Does the event have listeners? If not, its detail need not be created. */
  hasListeners(event: keyof LockEvents): boolean {
    return CHANNELS[event].hasSubscribers || this.#listeners.has(event);
  }

  emit<E extends keyof LockEvents>(event: E, detail: LockEvents[E]): void {
    if (CHANNELS[event].hasSubscribers) CHANNELS[event].publish(detail);
    // a copy: a listener that removes and adds itself would otherwise be called again for this event, for ever
    for (const listener of [...(this.#listeners.get(event) ?? [])]) listener(detail as never);
  }

  /** @throws TypeError for an unknown event or a listener that is not a function */
  on<E extends keyof LockEvents>(event: E, listener: (detail: LockEvents[E]) => void): Disposable {
    if (!EVENT_NAMES.includes(event)) throw new TypeError(`event must be one of ${EVENT_NAMES.join(", ")}`);
    if (typeof listener !== "function") throw new TypeError("listener must be a function");
    // the wrapper makes two listeners of a function that is added twice
    const safe: Listener = safeListener(listener);
    const listeners = (this.#listeners.get(event) ?? new Set()).add(safe);
    this.#listeners.set(event, listeners);
    return {
      [Symbol.dispose]: () => {
        listeners.delete(safe);
        // disposed a second time, it must leave alone what was added since
        if (listeners.size === 0 && this.#listeners.get(event) === listeners) this.#listeners.delete(event);
      },
    };
  }
}

/** The calls of one process to its store, each with a deadline. */

import type { Clock } from "../../util/clock.ts";
import { rejectOnThrow } from "../../util/timeout.ts";
import { CallTimeouts } from "../call-timeouts.ts";
import type { DocumentStore, StoredDocument, WriteResult } from "./store.ts";

export class StoreCalls {
  readonly #store: DocumentStore;
  readonly #timeouts: CallTimeouts;

  constructor(store: DocumentStore, clock: Clock, timeoutMs: number) {
    this.#store = store;
    this.#timeouts = new CallTimeouts(clock, timeoutMs, store.name);
  }

  /** Begins the messages. */
  get storeName(): string {
    return this.#store.name;
  }

  open(): Promise<void> {
    return this.#call((signal) => this.#store.open?.(signal) ?? Promise.resolve(), "connection");
  }

  read(name: string, stop?: AbortSignal): Promise<StoredDocument | null> {
    return this.#call((signal) => this.#store.read(name, stop ? AbortSignal.any([signal, stop]) : signal), "read");
  }

  /** An error means that the write may have happened, and may still happen. */
  write(name: string, bytes: Uint8Array, version: string | null): Promise<WriteResult> {
    return this.#call((signal) => this.#store.write(name, bytes, version, signal), "write");
  }

  /** Ends all calls that are under way. */
  end(): void {
    this.#timeouts.expireAll();
  }

  #call<T>(start: (signal: AbortSignal) => Promise<T>, what: string): Promise<T> {
    const controller = new AbortController();
    const work = rejectOnThrow(() => start(controller.signal));
    return this.#timeouts.bound(work, `answer to a ${what}`).catch((error: unknown) => {
      controller.abort(); // not after an answer: some clients would close its connection
      throw error;
    });
  }
}

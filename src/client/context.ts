/**
 * Re-entrancy by async context (design A.4): who holds what in this flow. Entered only by using() and lock.run(), since
 * on Node 20 and 22 the first entry makes every later await of the process dearer; a bare acquire() never enters.
 */

import { AsyncLocalStorage } from "node:async_hooks";
import type { Hold } from "../spi/driver.ts";
import type { Tenure } from "./tenure.ts";

/** What a flow holds: the innermost first. Made by a hold, so that parallel requests cannot share a lock. */
interface Frame {
  readonly tenures: readonly Tenure[];
  readonly outer: Frame | null;
}

/** One key as a flow holds it. */
export interface HeldHere {
  readonly hold: Hold;
  readonly tenure: Tenure;
}

export class Context {
  #storage: AsyncLocalStorage<Frame> | null = null;

  run<T>(tenures: readonly Tenure[], fn: () => T): T {
    this.#storage ??= new AsyncLocalStorage<Frame>();
    const outer = this.#storage.getStore() ?? null;
    for (const tenure of tenures) tenure.contexts++;
    const leave = (): void => {
      for (const tenure of tenures) tenure.contexts--;
    };
    let left = true;
    try {
      const result = this.#storage.run({ tenures, outer }, fn);
      if (!isPromise(result)) return result;
      left = false;
      // the flow is inside until its body has settled
      result.then(leave, leave);
      return result;
    } finally {
      if (left) leave();
    }
  }

  /** The client is closed. A storage once entered makes every await of the process dearer until it is disabled (Node 20, 22). */
  close(): void {
    this.#storage?.disable();
    this.#storage = null;
  }

  /** Nothing is held in this flow, as far as one cheap look can tell. */
  get isEmpty(): boolean {
    return this.#storage === null || this.#storage.getStore() === undefined;
  }

  /** How this flow holds the key; outside of it, or after the release, not at all. */
  held(key: string): readonly HeldHere[] {
    const found: HeldHere[] = [];
    for (let frame = this.#storage?.getStore() ?? null; frame !== null; frame = frame.outer) {
      for (const tenure of frame.tenures) {
        const hold = tenure.isOpen ? tenure.target.holds.find((one) => one.key === key) : undefined;
        if (hold !== undefined && !found.some((one) => one.tenure === tenure)) found.push({ hold, tenure });
      }
    }
    return found;
  }
}

function isPromise(value: unknown): value is Promise<unknown> {
  return typeof value === "object" && value !== null && typeof (value as { then?: unknown }).then === "function";
}

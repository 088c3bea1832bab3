/**
 * Re-entrancy by async context (design A.4): who holds what in this flow. Entered only by using() and lock.run(), since
 * on Node 20 and 22 the first entry makes every later await of the process dearer; a bare acquire() never enters.
 */

import { AsyncLocalStorage } from "node:async_hooks";
import type { LockSpec } from "../spi/driver.ts";
import type { LocalHold } from "./local-hold.ts";

/** What a flow holds: the innermost first. Made by a hold, so that parallel requests cannot share a lock. */
interface FlowFrame {
  readonly localHolds: readonly LocalHold[];
  readonly outer: FlowFrame | null;
}

/** One key as a flow holds it. */
export interface FlowHold {
  readonly spec: LockSpec;
  readonly localHold: LocalHold;
}

export class FlowHolds {
  #storage: AsyncLocalStorage<FlowFrame> | null = null;

  run<T>(localHolds: readonly LocalHold[], fn: () => T): T {
    this.#storage ??= new AsyncLocalStorage<FlowFrame>();
    const outer = this.#storage.getStore() ?? null;
    for (const localHold of localHolds) localHold.openFlows++;
    const leave = (): void => {
      for (const localHold of localHolds) localHold.openFlows--;
    };
    let hasLeft = true;
    try {
      const result = this.#storage.run({ localHolds, outer }, fn);
      if (!isPromise(result)) return result;
      hasLeft = false;
      // the flow is inside until its body has settled
      result.then(leave, leave);
      return result;
    } finally {
      if (hasLeft) leave();
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
  find(key: string): readonly FlowHold[] {
    const flowHolds: FlowHold[] = [];
    for (let frame = this.#storage?.getStore() ?? null; frame !== null; frame = frame.outer) {
      for (const localHold of frame.localHolds) {
        const spec = localHold.isOpen ? localHold.target.holds.find((item) => item.key === key) : undefined;
        if (spec !== undefined && !flowHolds.some((item) => item.localHold === localHold))
          flowHolds.push({ spec, localHold });
      }
    }
    return flowHolds;
  }
}

function isPromise(value: unknown): value is Promise<unknown> {
  return typeof value === "object" && value !== null && typeof (value as { then?: unknown }).then === "function";
}

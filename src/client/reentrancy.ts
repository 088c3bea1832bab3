/**
 * Re-entrancy by async context (decision 0007): the locks held in an async flow. Only using() and lock.run() enter a
 * context, since on Node 20 and 22 the first entry makes every later await of the process slower. acquire() alone never
 * enters one.
 */

import { AsyncLocalStorage } from "node:async_hooks";
import type { LockSpec } from "../spi/driver.ts";
import { ALL_PERMITS } from "../spi/driver.ts";
import { adoptThenable } from "../util/thenable.ts";
import { currentBoundary } from "./flow-boundary.ts";
import type { LocalHold } from "./local-hold.ts";

/**
 * The locks of a flow, innermost frame first. Created when a lock is held, so that parallel requests cannot share it.
 */
export interface FlowFrame {
  readonly localHolds: readonly LocalHold[];
  readonly outer: FlowFrame | null;
  /** The call of withoutCurrentLock() in which the frame was entered. Inside a later one the frame does not count. */
  readonly boundary: object | undefined;
}

/** One key held by a flow, and the local hold that has it. */
export interface FlowHold {
  readonly spec: LockSpec;
  readonly localHold: LocalHold;
}

/**
 * How a request relates to what its flow holds on the same key. A flow hold: it covers the request (reading or writing
 * inside writing, reading inside reading). separate: the request needs a claim of its own, for semaphore permits that
 * fit beside the held ones. deadlock: it would wait for its own flow.
 */
export function resolveNesting<H extends { readonly spec: LockSpec }>(
  flowHolds: readonly H[],
  wanted: LockSpec,
  reentrant: boolean,
): H | "separate" | "deadlock" {
  let usedPermits = wanted.permits;
  for (const flowHold of flowHolds) {
    const { spec } = flowHold;
    if (reentrant && isReadWrite(spec) && isReadWrite(wanted) && spec.permits >= wanted.permits) return flowHold;
    usedPermits += spec.permits;
  }
  return isReadWrite(wanted) || usedPermits > wanted.limit ? "deadlock" : "separate";
}

function isReadWrite(spec: LockSpec): boolean {
  return spec.limit === ALL_PERMITS;
}

export class FlowHolds {
  #storage: AsyncLocalStorage<FlowFrame> | null = null;

  run<T>(localHolds: readonly LocalHold[], fn: () => T | PromiseLike<T>): T | Promise<T> {
    const frame = this.enter(localHolds);
    let result: T | Promise<T>;
    try {
      result = this.runIn(frame, fn);
    } catch (error) {
      this.leave(frame);
      throw error;
    }
    // an async fn is inside the context until it settles
    if (result instanceof Promise) return result.finally(() => this.leave(frame));
    this.leave(frame);
    return result;
  }

  /** Begins a context with these locks inside the present one; leave() must follow. */
  enter(localHolds: readonly LocalHold[]): FlowFrame {
    for (const localHold of localHolds) localHold.openFlows++;
    return { localHolds, outer: this.#frame, boundary: currentBoundary() };
  }

  /** Calls fn in the context; a thenable that it returns executes there, too. */
  runIn<T>(frame: FlowFrame, fn: () => T | PromiseLike<T>): T | Promise<T> {
    this.#storage ??= new AsyncLocalStorage<FlowFrame>();
    return this.#storage.run(frame, () => adoptThenable(fn()));
  }

  leave({ localHolds }: FlowFrame): void {
    for (const localHold of localHolds) localHold.openFlows--;
  }

  /** Disables the storage: on Node 20 and 22 every await of the process is slower until then. */
  close(): void {
    this.#storage?.disable();
    this.#storage = null;
  }

  /** A cheap check that this flow holds nothing; may be false although it holds nothing. */
  get isEmpty(): boolean {
    return this.#frame === null;
  }

  /** The holds of this flow on the key; none outside of a flow or after the release. */
  find(key: string): readonly FlowHold[] {
    const flowHolds: FlowHold[] = [];
    for (const localHold of this.#listOpen()) {
      const spec = localHold.target.locks.find((item) => item.key === key);
      if (spec !== undefined) flowHolds.push({ spec, localHold });
    }
    return flowHolds;
  }

  /** The keys that this flow holds, without the client's prefix. */
  listKeys(): readonly string[] {
    return [...new Set([...this.#listOpen()].flatMap(({ target }) => target.keys))];
  }

  #listOpen(): ReadonlySet<LocalHold> {
    const open = new Set<LocalHold>();
    for (let frame = this.#frame; frame !== null; frame = frame.outer)
      for (const localHold of frame.localHolds) if (localHold.isOpen) open.add(localHold);
    return open;
  }

  /** The innermost frame of this flow; null inside withoutCurrentLock(). */
  get #frame(): FlowFrame | null {
    const frame = this.#storage?.getStore() ?? null;
    return frame !== null && frame.boundary === currentBoundary() ? frame : null;
  }
}

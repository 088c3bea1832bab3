/** What a client process does within windows of time, and on the word of the bench. */

import { findImplementation } from "../implementations/implementations.ts";
import type { LockImplementation } from "./closed-loop.ts";
import type { WindowLoad, WindowResult, WindowSample } from "./sampling-window.ts";
import { SamplingWindow } from "./sampling-window.ts";

/** Of the calls `keep` and `queue`. */
export interface HoldRequest {
  readonly count: number;
  /** The number of the first key: an ended process leaves its claims behind. Default 0. */
  readonly from?: number;
  /** For implementations that can prolong a lock. */
  readonly ttl: number;
  /** How many are asked for at once. Default 1,000. */
  readonly batch?: number;
}

export interface QueueRequest extends HoldRequest {
  /** Undefined: each waits for another one of the keys that `keep` takes. */
  readonly key?: string;
}

type Handlers = Readonly<Record<string, (argument: never) => unknown>>;

/** @param name of the implementation, @param address of its server, @param open gives the one this process has */
export function createWindowHandlers(name: string, address: string, open: () => Promise<LockImplementation>): Handlers {
  let window: SamplingWindow | null = null;
  let held: unknown;
  const current = (): SamplingWindow => {
    if (window === null) throw new Error("no window has begun");
    return window;
  };
  return {
    ready: async (): Promise<void> => void (await open()),
    begin: async (load: WindowLoad): Promise<void> => {
      window = new SamplingWindow(await open(), load);
    },
    mark: (): void => current().mark(),
    look: (): WindowSample => current().look(),
    finish: (withinMs: number): Promise<WindowResult> => current().finish(withinMs),
    /**
     * `take` acquires a key and returns the time of the grant; `give` releases it and returns the time. Both are of the
     * machine's monotonic clock.
     */
    take: async (key: string): Promise<number> => {
      held = await (await open()).acquire(key);
      return nowMicros();
    },
    give: async (): Promise<number> => {
      const startedAt = nowMicros();
      await (await open()).release(held);
      return startedAt;
    },
    /** The microseconds from the call of acquire to the grant; `give` releases it. */
    wait: async (key: string): Promise<number> => {
      const implementation = await open();
      const startedAt = nowMicros();
      held = await implementation.acquire(key);
      return nowMicros() - startedAt;
    },
    /** The microseconds of a whole pair. */
    turn: async (key: string): Promise<number> => {
      const implementation = await open();
      const startedAt = nowMicros();
      await implementation.release(await implementation.acquire(key));
      return nowMicros() - startedAt;
    },
    /** Holds so many keys until the process ends. */
    keep: async ({ count, from = 0, ttl, batch = 1_000 }: HoldRequest): Promise<void> => {
      const holdKey = await findImplementation(name).holdLocks?.(address, ttl);
      if (holdKey === undefined) throw new Error(`"${name}" prolongs nothing by itself`);
      for (let index = 0; index < count; index += batch) {
        await Promise.all(
          Array.from({ length: Math.min(batch, count - index) }, (_, n) => holdKey(keptKey(from + index + n))),
        );
      }
    },
    /** Waits so many times for a key that somebody else keeps; with a lease of its own where that can be said. */
    queue: async ({ count, from = 0, ttl, key }: QueueRequest): Promise<void> => {
      const holdKey = await findImplementation(name).holdLocks?.(address, ttl);
      const implementation = holdKey === undefined ? await open() : null;
      for (let n = 0; n < count; n++) {
        const wanted = key ?? keptKey(from + n);
        (holdKey?.(wanted) ?? implementation?.acquire(wanted))?.catch(() => undefined);
      }
    },
  };
}

function keptKey(index: number): string {
  return `kept:${index}`;
}

function nowMicros(): number {
  return Number(process.hrtime.bigint()) / 1_000;
}

/** What a client process does within windows of time, and on the word of the bench. */

import { REDIS_ENTRANTS } from "../contestants/redis.ts";
import type { Finish, Load, Look } from "./window.ts";
import { Window } from "./window.ts";
import type { Contestant } from "./workload.ts";

interface Keeping {
  readonly count: number;
  readonly ttl: number;
}

interface Queueing extends Keeping {
  readonly key: string;
}

type Handlers = Readonly<Record<string, (argument: never) => unknown>>;

/** @param name of the contestant, @param address of its server, @param open gives the one this process has */
export function windowCalls(name: string, address: string, open: () => Promise<Contestant>): Handlers {
  let window: Window | null = null;
  let held: unknown;
  const current = (): Window => {
    if (window === null) throw new Error("no window has begun");
    return window;
  };
  return {
    ready: async (): Promise<void> => void (await open()),
    begin: async (load: Load): Promise<void> => {
      window = new Window(await open(), load);
    },
    mark: (): void => current().mark(),
    look: (): Look => current().look(),
    finish: (withinMs: number): Promise<Finish> => current().finish(withinMs),
    /** Takes a key and says when it was granted; `give` says when it was given back. On the machine's monotonic clock. */
    take: async (key: string): Promise<number> => {
      held = await (await open()).acquire(key);
      return micros();
    },
    give: async (): Promise<number> => {
      const at = micros();
      await (await open()).release(held);
      return at;
    },
    /** Holds so many keys until the process ends. */
    keep: async ({ count, ttl }: Keeping): Promise<void> => {
      const keep = await REDIS_ENTRANTS[name]?.keeper?.(address, ttl);
      if (keep === undefined) throw new Error(`"${name}" prolongs nothing by itself`);
      for (let at = 0; at < count; at += 1_000) {
        await Promise.all(Array.from({ length: Math.min(1_000, count - at) }, (_, n) => keep(`kept:${at + n}`)));
      }
    },
    /** Waits so many times for a key that somebody else keeps; with a lease of its own where that can be said. */
    queue: async ({ count, ttl, key }: Queueing): Promise<void> => {
      const keep = await REDIS_ENTRANTS[name]?.keeper?.(address, ttl);
      const contestant = keep === undefined ? await open() : null;
      for (let n = 0; n < count; n++) (keep?.(key) ?? contestant?.acquire(key))?.catch(() => undefined);
    },
  };
}

function micros(): number {
  return Number(process.hrtime.bigint()) / 1_000;
}

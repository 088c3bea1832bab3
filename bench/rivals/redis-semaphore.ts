/**
 * redis-semaphore on one Redis: Mutex, and Semaphore and MultiSemaphore for permits. `isAcquired` is what it says of itself, `onLockLost`
 * its notice of a loss.
 *
 * In its favour: refreshed at a third of the lease (its default: at four fifths), asked for again after its default, 10 ms. Commands have
 * no time-out: a refresh that fails is an unhandled rejection, which ends the process.
 */

import type { Hold, OpenSubject } from "../../src/torture/subject.ts";
import { thirdPartyVersion } from "../harness/third-party.ts";
import { createIoredis, LossNotice, requireKind } from "./adapter.ts";

interface Lock {
  readonly isAcquired: boolean;
  tryAcquire(): Promise<boolean>;
  release(): Promise<void>;
}

interface SemaphoreModule {
  readonly Mutex: new (client: unknown, key: string, options: object) => Lock;
  readonly MultiSemaphore: new (client: unknown, key: string, limit: number, permits: number, options: object) => Lock;
}

export const openSubject: OpenSubject = async (options) => {
  const { prefix, ttlMs } = options;
  const client = createIoredis(options);
  const { Mutex, MultiSemaphore } = thirdPartyVersion<SemaphoreModule>("redis-semaphore");
  return {
    async acquire({ kind, keys, permits, limit, waitMs }): Promise<Hold | null> {
      requireKind(kind, "mutex", "permits");
      const notice = new LossNotice();
      const settings = {
        lockTimeout: ttlMs,
        refreshInterval: Math.round(ttlMs / 3),
        onLockLost: (error: Error) => notice.tell(error.message),
        // a wait of nothing makes no attempt
        ...(waitMs === 0 ? { acquireAttemptsLimit: 1 } : { acquireTimeout: waitMs }),
      };
      const key = `${prefix}${keys[0]}`;
      const lock =
        kind === "mutex"
          ? new Mutex(client, key, settings)
          : new MultiSemaphore(client, key, limit as number, permits, settings);
      if (!(await lock.tryAcquire())) return null;
      return {
        tokens: null,
        leftMs: () => (lock.isAcquired ? null : 0),
        onLost: notice.onLost,
        // it does not say whether the lock was held
        release: () => lock.release().then(() => null),
      };
    },
    close: async () => client.disconnect(),
  };
};

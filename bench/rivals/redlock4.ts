/**
 * redlock 4 on one Redis. A lock has its own `expiration`, which is what it says of itself; an `extend` that fails is its notice of a loss.
 *
 * In its favour: extended at half of the lease; commands fail after a quarter of it (ioredis `commandTimeout`), otherwise nothing tells
 * the loss of the connection; single attempts, repeated after 50 ms: the time that its own attempts take counts against the lease.
 */

import type { Hold, OpenSubject } from "../../src/torture/subject.ts";
import { thirdPartyVersion } from "../harness/third-party.ts";
import { createIoredis, extendRegularly, LossNotice, requireKind, retry } from "./adapter.ts";

const RETRY_MS = 50;

interface Lock {
  readonly expiration: number;
  extend(ttl: number): PromiseLike<Lock>;
  unlock(): PromiseLike<void>;
}

type RedlockClass = (new (
  clients: readonly unknown[],
  options: object,
) => { lock(keys: readonly string[], ttl: number): PromiseLike<Lock> }) & { readonly LockError: new () => Error };

export const openSubject: OpenSubject = async (options) => {
  const { prefix, ttlMs } = options;
  const client = createIoredis(options, ttlMs / 4);
  const Redlock = thirdPartyVersion<RedlockClass>("redlock");
  const redlock = new Redlock([client], { retryCount: 0 });
  const toHold = (lock: Lock): Hold => {
    const notice = new LossNotice();
    const stop = extendRegularly(ttlMs / 2, notice, async () => lock.extend(ttlMs));
    return {
      tokens: null,
      leftMs: () => (notice.isTold ? 0 : lock.expiration - Date.now()),
      onLost: notice.onLost,
      async release() {
        stop();
        await lock.unlock();
        return true;
      },
    };
  };
  return {
    acquire({ kind, keys, waitMs }) {
      requireKind(kind, "mutex", "several");
      const names = keys.map((key) => `${prefix}${key}`);
      return retry(waitMs, RETRY_MS, async () => {
        try {
          return toHold(await redlock.lock(names, ttlMs));
        } catch (error) {
          if (error instanceof Redlock.LockError) return null;
          throw error;
        }
      });
    },
    close: async () => client.disconnect(),
  };
};

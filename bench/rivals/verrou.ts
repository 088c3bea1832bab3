/**
 * @verrou/core on Redis. `getRemainingTime` is what a lock says of itself; an `extend` that fails is its notice of a loss.
 *
 * In its favour: extended at half of the lease; commands fail after a quarter of it (ioredis `commandTimeout`); asked for again after
 * 50 ms (its default: 250 ms); one attempt of `acquire` in place of `acquireImmediately`, which counts the lease from the reply.
 */

import type { Hold, OpenSubject } from "../../src/torture/subject.ts";
import { loadThirdParty } from "../harness/third-party.ts";
import { createIoredis, extendRegularly, LossNotice, requireKind } from "./adapter.ts";

const RETRY_MS = 50;

interface Lock {
  acquire(options: object): Promise<boolean>;
  extend(): Promise<void>;
  getRemainingTime(): number;
  release(): Promise<void>;
}

interface VerrouModule {
  readonly LockFactory: new (store: unknown) => { createLock(key: string, ttl: number): Lock };
}

interface RedisStoreModule {
  redisStore(options: object): { factory(): unknown };
}

export const openSubject: OpenSubject = async (options) => {
  const { prefix, ttlMs } = options;
  const connection = createIoredis(options, ttlMs / 4);
  const { LockFactory } = await loadThirdParty<VerrouModule>("@verrou/core");
  const { redisStore } = await loadThirdParty<RedisStoreModule>("@verrou/core/drivers/redis");
  const factory = new LockFactory(redisStore({ connection }).factory());
  return {
    async acquire({ kind, keys, waitMs }): Promise<Hold | null> {
      requireKind(kind, "mutex");
      const lock = factory.createLock(`${prefix}${keys[0]}`, ttlMs);
      const retry = waitMs === 0 ? { attempts: 1 } : { timeout: waitMs, delay: RETRY_MS };
      if (!(await lock.acquire({ retry }))) return null;
      const notice = new LossNotice();
      const stop = extendRegularly(ttlMs / 2, notice, () => lock.extend());
      return {
        tokens: null,
        leftMs: () => (notice.isTold ? 0 : lock.getRemainingTime()),
        onLost: notice.onLost,
        async release() {
          stop();
          await lock.release();
          return true;
        },
      };
    },
    close: async () => connection.disconnect(),
  };
};

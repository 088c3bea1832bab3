/**
 * simple-redis-mutex, with its fencing tokens. It says nothing of a lock that it has granted; `refreshTimeout` that fails is its notice of
 * a loss, but it does not say when it found the lock gone.
 *
 * In its favour: refreshed at a third of the lease; commands that could not be sent fail after a quarter of it (node-redis `commandOptions`; for
 * those that were sent it knows no limit); `tryLock`, repeated after 50 ms: its `lock`, which needs no repetition, leaves a failed command
 * as an unhandled rejection, which ends the process.
 */

import { createClient } from "redis";
import type { OpenSubject } from "../../src/torture/subject.ts";
import { loadThirdParty } from "../harness/third-party.ts";
import { extendRegularly, LossNotice, requireKind, retry } from "./adapter.ts";

const RETRY_MS = 50;

interface Release {
  (): Promise<void>;
  readonly fencingToken: number;
  refreshTimeout(): Promise<void>;
}

interface MutexModule {
  tryLock(client: unknown, key: string, options: object): Promise<[hasLock: boolean, release: Release]>;
}

export const openSubject: OpenSubject = async ({ url, prefix, ttlMs }) => {
  const client = createClient({ url: url as string, commandOptions: { timeout: ttlMs / 4 } });
  client.on("error", () => undefined);
  await client.connect();
  const { tryLock } = await loadThirdParty<MutexModule>("simple-redis-mutex");
  // its first calls would each open a subscriber
  await (await tryLock(client, `${prefix}first`, { timeout: ttlMs }))[1]();
  return {
    acquire({ kind, keys, waitMs }) {
      requireKind(kind, "mutex");
      const [key = ""] = keys;
      return retry(waitMs, RETRY_MS, async () => {
        const [hasLock, release] = await tryLock(client, `${prefix}${key}`, { timeout: ttlMs });
        if (!hasLock) return null;
        const notice = new LossNotice();
        const stop = extendRegularly(ttlMs / 3, notice, () => release.refreshTimeout());
        return {
          tokens: { [key]: String(release.fencingToken) },
          leftMs: () => (notice.isTold ? 0 : null),
          onLost: notice.onLost,
          async release() {
            stop();
            await release();
            return null;
          },
        };
      });
    },
    close: async () => client.destroy(),
  };
};

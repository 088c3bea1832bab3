/**
 * redlock-universal on one Redis (`createLock`): `using`, which extends the lock by itself and aborts a signal when it could not, its
 * notice of a loss.
 *
 * In its favour: commands fail after a quarter of the lease (its adapter's `timeout`), otherwise after 5 s; single attempts, repeated
 * after 50 ms.
 */

import type { OpenSubject } from "../../src/torture/subject.ts";
import { loadThirdParty } from "../harness/third-party.ts";
import { createIoredis, enterScope, requireKind, retry } from "./adapter.ts";

const RETRY_MS = 50;

interface UniversalModule {
  createLock(options: object): { using(routine: (signal: AbortSignal) => Promise<void>): Promise<void> };
  readonly IoredisAdapter: new (client: unknown, options: object) => unknown;
  readonly LockAcquisitionError: new () => Error;
}

export const openSubject: OpenSubject = async (options) => {
  const { prefix, ttlMs } = options;
  const client = createIoredis(options);
  const { createLock, IoredisAdapter, LockAcquisitionError } =
    await loadThirdParty<UniversalModule>("redlock-universal");
  const adapter = new IoredisAdapter(client, { timeout: ttlMs / 4 });
  return {
    acquire({ kind, keys, waitMs }) {
      requireKind(kind, "mutex");
      const lock = createLock({ adapter, key: `${prefix}${keys[0]}`, ttl: ttlMs, retryAttempts: 0 });
      return retry(waitMs, RETRY_MS, () =>
        enterScope(
          (routine) => lock.using(routine),
          (error) => error instanceof LockAcquisitionError,
        ),
      );
    },
    close: async () => client.disconnect(),
  };
};

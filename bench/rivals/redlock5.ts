/**
 * redlock 5 (beta) on one Redis: `using`, which extends the lock by itself and aborts a signal when it could not, its notice of a loss.
 *
 * In its favour: extended at half of the lease; commands fail after a quarter of it (ioredis `commandTimeout`), otherwise the signal is
 * never aborted while the connection is silent; single attempts, repeated after 50 ms: the time that its own attempts take counts against
 * the lease.
 */

import type { OpenSubject } from "../../src/torture/subject.ts";
import { thirdPartyVersion } from "../harness/third-party.ts";
import { createIoredis, enterScope, requireKind, retry } from "./adapter.ts";

const RETRY_MS = 50;

interface Redlock {
  using(keys: readonly string[], ttl: number, routine: (signal: AbortSignal) => Promise<void>): Promise<void>;
}

interface Redlock5Module {
  readonly default: new (clients: readonly unknown[], settings: object) => Redlock;
  readonly ExecutionError: new () => Error;
}

export const openSubject: OpenSubject = async (options) => {
  const { prefix, ttlMs } = options;
  const client = createIoredis(options, ttlMs / 4);
  const { default: Redlock, ExecutionError } = thirdPartyVersion<Redlock5Module>("redlock5");
  const redlock = new Redlock([client], { retryCount: 0, automaticExtensionThreshold: ttlMs / 2 });
  return {
    acquire({ kind, keys, waitMs }) {
      requireKind(kind, "mutex", "several");
      const names = keys.map((key) => `${prefix}${key}`);
      return retry(waitMs, RETRY_MS, () =>
        enterScope(
          (routine) => redlock.using(names, ttlMs, routine),
          (error) => error instanceof ExecutionError,
        ),
      );
    },
    close: async () => client.disconnect(),
  };
};

/**
 * live-mutex over its Unix socket. Its timeouts are raised: under contention the defaults give up or end live locks.
 */

import { parsePort } from "../harness/address.ts";
import type { LockImplementation } from "../harness/closed-loop.ts";
import { thirdPartyVersion } from "../harness/third-party.ts";

interface HeldLock {
  readonly key: string;
  readonly id: string;
}

interface LiveMutexClient {
  ensure(): Promise<unknown>;
  acquire(key: string): Promise<{ readonly id: string }>;
  release(key: string, options: { readonly id: string }): Promise<unknown>;
  close(): void;
  readonly emitter: { on(event: "warning", listener: () => void): void };
}

interface LiveMutex {
  readonly Client: new (options: object) => LiveMutexClient;
}

export async function openLiveMutex(socket: string): Promise<LockImplementation<HeldLock>> {
  const { Client } = thirdPartyVersion<LiveMutex>("live-mutex");
  const port = parsePort(socket);
  const endpoint = port === null ? { udsPath: socket } : { host: "127.0.0.1", port, noDelay: true };
  const client = new Client({ ...endpoint, ttl: 60_000, lockRequestTimeout: 60_000, unlockRequestTimeout: 60_000 });
  client.emitter.on("warning", () => undefined);
  await client.ensure();
  return {
    async acquire(key) {
      const { id } = await client.acquire(key);
      return { key, id };
    },
    release: ({ key, id }) => client.release(key, { id }),
    close: async () => client.close(),
  };
}

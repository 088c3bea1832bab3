/** etcd3, whose lock takes a free key or fails: a caller that waits asks again. */

import { setTimeout as delay } from "node:timers/promises";
import { parsePort } from "../harness/address.ts";
import type { LockImplementation } from "../harness/closed-loop.ts";
import { loadThirdParty } from "../harness/third-party.ts";

const TTL_S = 30;
/** The package gives no advice; a longer one makes hand-offs slower, a shorter one the server busier. */
const RETRY_MS = 10;

interface EtcdLock {
  ttl(seconds: number): EtcdLock;
  acquire(): Promise<EtcdLock>;
  release(): Promise<void>;
}

interface Etcd3Module {
  readonly Etcd3: new (options: { readonly hosts: string }) => { lock(key: string): EtcdLock; close(): void };
  readonly EtcdLockFailedError: new () => Error;
}

export async function openEtcd3(address: string): Promise<LockImplementation<EtcdLock>> {
  const { default: module } = await loadThirdParty<{ default: Etcd3Module }>("etcd3");
  const client = new module.Etcd3({ hosts: `http://127.0.0.1:${parsePort(address)}` });
  return {
    async acquire(key) {
      for (;;) {
        const lock = client.lock(key).ttl(TTL_S);
        try {
          return await lock.acquire();
        } catch (error) {
          if (!(error instanceof module.EtcdLockFailedError)) throw error;
          await delay(RETRY_MS);
        }
      }
    },
    release: (lock) => lock.release(),
    close: async () => client.close(),
  };
}

/** async-mutex: one mutex, whatever the key. */

import type { LockImplementation } from "../harness/closed-loop.ts";
import { thirdPartyVersion } from "../harness/third-party.ts";

type Release = () => void;

interface AsyncMutex {
  readonly Mutex: new () => { acquire(): Promise<Release> };
}

export async function openAsyncMutex(): Promise<LockImplementation<Release>> {
  const mutex = new (thirdPartyVersion<AsyncMutex>("async-mutex").Mutex)();
  return {
    acquire: () => mutex.acquire(),
    release(release) {
      release();
      return undefined;
    },
    close: async () => undefined,
  };
}

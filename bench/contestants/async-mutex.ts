/** async-mutex: one mutex, whatever the key. */

import { rival } from "../harness/rivals.ts";
import type { Contestant } from "../harness/workload.ts";

type Release = () => void;

interface AsyncMutex {
  readonly Mutex: new () => { acquire(): Promise<Release> };
}

export async function openAsyncMutex(): Promise<Contestant<Release>> {
  const mutex = new (rival<AsyncMutex>("async-mutex").Mutex)();
  return {
    acquire: () => mutex.acquire(),
    release(release) {
      release();
      return undefined;
    },
    close: async () => undefined,
  };
}

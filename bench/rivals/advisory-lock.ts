/**
 * advisory-lock on PostgreSQL: a lock of a session, with a connection of its own for each. It says nothing of a lock that it has granted;
 * when a connection breaks, its "error" event has no listener, which ends the process.
 *
 * In its favour: `lock`, which waits in the server. A lock that is granted after its request has timed out is released at once.
 */

import type { Hold, OpenSubject } from "../../src/torture/subject.ts";
import { loadThirdParty } from "../harness/third-party.ts";
import { requireKind } from "./adapter.ts";

type Unlock = () => Promise<void>;

interface AdvisoryLockModule {
  readonly default: {
    default(url: string): (name: string) => { lock(): Promise<Unlock>; tryLock(): Promise<Unlock | undefined> };
  };
}

export const openSubject: OpenSubject = async ({ url, prefix }) => {
  const { default: module } = await loadThirdParty<AdvisoryLockModule>("advisory-lock");
  const createMutex = module.default(url as string);
  const toHold = (unlock: Unlock): Hold => ({
    tokens: null,
    leftMs: () => null,
    onLost: () => undefined,
    release: () => unlock().then(() => null),
  });
  return {
    async acquire({ kind, keys, waitMs }) {
      requireKind(kind, "mutex");
      const mutex = createMutex(`${prefix}${keys[0]}`);
      if (waitMs === 0) {
        const unlock = await mutex.tryLock();
        return unlock === undefined ? null : toHold(unlock);
      }
      return new Promise((resolve, reject) => {
        let isOver = false;
        const timer = setTimeout(() => {
          isOver = true;
          resolve(null);
        }, waitMs);
        const onGranted = (unlock: Unlock): unknown => (isOver ? unlock() : resolve(toHold(unlock)));
        mutex
          .lock()
          .then(onGranted)
          .catch(reject)
          .finally(() => clearTimeout(timer));
      });
    },
    close: async () => undefined,
  };
};

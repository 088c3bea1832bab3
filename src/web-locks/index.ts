/** holdfast/web-locks: the Web Locks API over any store. */

export type {
  WebLock,
  WebLockInfo,
  WebLockManager,
  WebLockMode,
  WebLockOptions,
  WebLockSnapshot,
} from "./types.ts";
export { webLocks } from "./web-locks.ts";

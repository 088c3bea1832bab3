/** The interfaces of the Web Locks API, as `navigator.locks` of browsers and of Node 24 has them. */

/** exclusive: one holder. shared: many holders, but no exclusive one. */
export type WebLockMode = "exclusive" | "shared";

/** The options of request(). */
export interface WebLockOptions {
  /** Default "exclusive". */
  readonly mode?: WebLockMode | undefined;
  /** true: if the lock is not free, the callback is called with null at once. Default false. */
  readonly ifAvailable?: boolean | undefined;
  /** true: takes the lock from its holders, and overtakes the requests of this process. Default false. */
  readonly steal?: boolean | undefined;
  /** Cancels the wait: request() rejects with signal.reason. Has no effect once the lock is held. */
  readonly signal?: AbortSignal | undefined;
}

/** A lock while its callback runs. Beyond the standard it has what a distributed lock needs: `signal` and `token`. */
export interface WebLock {
  readonly name: string;
  readonly mode: WebLockMode;
  /** Aborted with an AbortError if the lock was stolen or lost before the callback has settled. */
  readonly signal: AbortSignal;
  /** The fencing token, as `Lock.token`. @throws UnsupportedError on a store without fencing */
  readonly token: bigint;
}

/** A lock or a request in a snapshot. */
export interface WebLockInfo {
  name: string;
  mode: WebLockMode;
  /** The label of the client. */
  clientId: string;
}

/** What query() returns: each list in order of arrival for each name. */
export interface WebLockSnapshot {
  held: WebLockInfo[];
  pending: WebLockInfo[];
}

/** The Web Locks API. */
export interface WebLockManager {
  /**
   * Calls back when the lock is held, and releases it when the callback has settled. Settles as the callback does, after the
   * release.
   * @throws TypeError for a wrong argument; DOMException NotSupportedError for a name that begins with "-", for options that
   * exclude each other, or if the store cannot do it; DOMException AbortError if the lock was stolen or lost; the signal's
   * reason; and as Lockable.acquire()
   */
  request<T>(name: string, callback: (lock: WebLock | null) => T | PromiseLike<T>): Promise<T>;
  request<T>(name: string, options: WebLockOptions, callback: (lock: WebLock | null) => T | PromiseLike<T>): Promise<T>;
  /** The locks that are held, and the requests that wait, at the store: at most 1,000 of all clients. @throws StoreError */
  query(): Promise<WebLockSnapshot>;
}

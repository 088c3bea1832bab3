/** The lock of an HTTP request, as its handler reaches it. */

import type { Lock } from "../index.ts";

/** What a handler gets of requestLock(). */
export interface RequestLock {
  readonly lock: Lock;
  /** Aborted when the lock is lost or the client has closed the connection before it had the complete response. */
  readonly signal: AbortSignal;
}

/** Equal in all copies of the package. */
const REQUEST_LOCK = Symbol.for("holdfast.requestLock");

/** Not enumerable: a logged request does not show it. */
export function setRequestLock(request: object, requestLock: RequestLock): void {
  Object.defineProperty(request, REQUEST_LOCK, { value: requestLock, configurable: true });
}

/**
 * Returns the lock of a request; of nested middleware, the innermost.
 * @param request the request of Express or Fastify, or the context of Hono
 * @throws TypeError if the request has no lock
 */
export function requestLock(request: object): RequestLock {
  const found = (Object(request) as { readonly [REQUEST_LOCK]?: RequestLock })[REQUEST_LOCK];
  if (found === undefined) throw new TypeError("request must have passed through middleware of holdfast/middleware");
  return found;
}

/** Requests of servers over node:http, whose middleware does not learn when a handler ends: its response tells. */

import type { RequestOutcome, RunRequest } from "./request-runner.ts";

/** What is needed of a ServerResponse of node:http or node:http2. */
export interface NodeResponseLike {
  readonly writableEnded: boolean;
  readonly destroyed: boolean;
  end(): unknown;
  destroy(): unknown;
  once(event: "close", listener: () => void): unknown;
}

/**
 * Runs a request until the handler has ended the response. A client that closes the connection does not end the handler: a
 * request that came next would run beside it. So the lock is kept until the handler calls end() or destroy().
 * @param proceed calls what comes after the middleware
 */
export function runNodeRequest<Request extends object>(
  run: RunRequest<Request>,
  request: Request,
  response: NodeResponseLike,
  proceed: () => void,
): Promise<RequestOutcome> {
  const client = new AbortController();
  const onClose = (): void => {
    if (!response.writableEnded) client.abort();
  };
  if (response.destroyed) onClose();
  response.once("close", onClose);
  const whenEnded = watchEnd(response);
  return run(request, (request as { readonly params?: unknown }).params, client.signal, async (requestLock) => {
    // other middleware may have answered while this request was waiting
    if (response.writableEnded) return;
    proceed();
    if (requestLock !== null) await whenEnded;
  });
}

/** "finish" would not do: it does not come after the client has gone, and comes late if the client reads slowly. */
function watchEnd(response: NodeResponseLike): Promise<void> {
  return new Promise((resolve) => {
    for (const name of ["end", "destroy"] as const) {
      const original = response[name] as (...args: unknown[]) => unknown;
      response[name] = (...args: unknown[]) => {
        resolve();
        return original.apply(response, args);
      };
    }
  });
}

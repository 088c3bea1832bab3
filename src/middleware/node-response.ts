/** Requests of servers over node:http, whose middleware does not learn when a handler ends: its response tells, or its connection. */

import { AsyncLocalStorage } from "node:async_hooks";
import { watchConnection } from "./connection-end.ts";
import type { RequestOutcome, RunRequest } from "./request-runner.ts";

/** What is needed of a ServerResponse of node:http or node:http2. */
export interface NodeResponseLike {
  readonly writableEnded: boolean;
  readonly destroyed: boolean;
  /** Of node:http. */
  readonly socket?: object | null;
  /** Of node:http2. */
  readonly stream?: object | undefined;
  /** The request. */
  readonly req?: object | undefined;
  end(): unknown;
  destroy(): unknown;
  once(event: "close", listener: () => void): unknown;
}

/** On a response, what clientSignalOf() returns. Equal in all copies of the package. */
const CLIENT_SIGNAL = Symbol.for("holdfast.clientSignal");

/** The response whose handler is running. Until a handler runs, it costs nothing. */
const handledResponse = new AsyncLocalStorage<NodeResponseLike>();

/**
 * Runs a request until the handler has ended the response or its connection. A client that closes the connection does not end the
 * handler, nor does a server that closes all connections: a request that came next would run beside it. So the lock is kept until the
 * handler calls end() or destroy() of the response, or of the connection.
 * @param proceed calls what comes after the middleware
 */
export function runNodeRequest<Request extends object>(
  run: RunRequest<Request>,
  request: Request,
  response: NodeResponseLike,
  proceed: () => void,
): Promise<RequestOutcome> {
  const clientSignal = clientSignalOf(response);
  const whenEnded = watchEnd(response);
  return run(request, (request as { readonly params?: unknown }).params, clientSignal, async (requestLock) => {
    // other middleware may have answered while this request was waiting
    if (response.writableEnded) return;
    if (requestLock === null) {
      proceed();
      return;
    }
    const isHandler = (): boolean => handledResponse.getStore() === response;
    // request.destroy() does not reach a socket that has gone already
    const watched = [response.stream ?? response.socket, response.req].map((it) => watchConnection(it, isHandler));
    handledResponse.run(response, proceed);
    await Promise.race([whenEnded, ...watched.map((it) => it.whenEnded)]).finally(() => {
      for (const it of watched) it.stop();
    });
  });
}

/** Aborted when the client has gone. All middleware of a request share it: Node.js warns of more than ten listeners on a response. */
function clientSignalOf(response: NodeResponseLike & { readonly [CLIENT_SIGNAL]?: AbortSignal }): AbortSignal {
  const known = response[CLIENT_SIGNAL];
  if (known !== undefined) return known;
  const controller = new AbortController();
  const onClose = (): void => {
    if (!response.writableEnded) controller.abort();
  };
  if (response.destroyed) onClose();
  response.once("close", onClose);
  Object.defineProperty(response, CLIENT_SIGNAL, { value: controller.signal });
  return controller.signal;
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

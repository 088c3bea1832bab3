/** Middleware of Express, and of other frameworks with the same signature. */

import type { IncomingHttpHeaders } from "node:http";
import type { Locks } from "../index.ts";
import type { NodeResponseLike } from "./node-response.ts";
import { runNodeRequest } from "./node-response.ts";
import type { Refusal } from "./refusal.ts";
import { formatRefusal } from "./refusal.ts";
import type { RequestLockOptions } from "./request-runner.ts";
import { createRequestRunner } from "./request-runner.ts";

/** What is known of a request of Express; functions may declare their parameter as Express's Request. */
interface ExpressRequestLike {
  readonly params: Readonly<Record<string, unknown>>;
  readonly headers: IncomingHttpHeaders;
  readonly method: string;
  readonly url: string;
}

/** What is needed of a response of Express. */
interface ExpressResponseLike extends NodeResponseLike {
  statusCode: number;
  setHeader(name: string, value: string): unknown;
  end(body?: string): unknown;
}

type Next = (error?: unknown) => void;

/** The options of createExpressMiddleware(). `key` gets the request, `onRefused` the refusal, the request, the response and next. */
export type ExpressLockOptions = RequestLockOptions<
  ExpressRequestLike,
  readonly [request: ExpressRequestLike, response: ExpressResponseLike, next: Next],
  unknown
>;

/**
 * Returns middleware of Express 4 or 5: one request per key at a time. The lock is held until the handler has ended the
 * response or its connection; if the client closes the connection earlier, the signal of requestLock() is aborted, and the lock is
 * kept until the handler calls end() or destroy(), at most `maxHold`.
 * @throws TypeError naming the argument or option
 */
export function createExpressMiddleware(
  locks: Locks,
  options: ExpressLockOptions,
): (request: ExpressRequestLike, response: ExpressResponseLike, next: Next) => void {
  const run = createRequestRunner("createExpressMiddleware", locks, options);
  const { onRefused = answerRefusal } = options;
  return (request, response, next) => {
    runNodeRequest(run, request, response, next)
      .then((outcome) => {
        // other middleware may have answered during the wait
        if (typeof outcome === "string" || response.writableEnded) return undefined;
        return onRefused(outcome, request, response, next);
      })
      .catch(next);
  };
}

function answerRefusal(refusal: Refusal, _request: object, response: ExpressResponseLike): void {
  const { status, headers, body } = formatRefusal(refusal);
  response.statusCode = status;
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
  response.end(body);
}

/** The hook of Fastify. */

import type { IncomingHttpHeaders } from "node:http";
import type { Locks } from "../index.ts";
import type { NodeResponseLike } from "./node-response.ts";
import { runNodeRequest } from "./node-response.ts";
import type { Refusal } from "./refusal.ts";
import { formatRefusal } from "./refusal.ts";
import type { RequestLockOptions } from "./request-runner.ts";
import { createRequestRunner } from "./request-runner.ts";

/** What is known of a request of Fastify; functions may declare their parameter as Fastify's FastifyRequest. */
interface FastifyRequestLike {
  // biome-ignore lint/suspicious/noExplicitAny: it depends on the route, and a function may declare it
  readonly params: any;
  readonly headers: IncomingHttpHeaders;
  readonly method: string;
  readonly url: string;
}

/** What is needed of a reply of Fastify. */
interface FastifyReplyLike {
  readonly raw: NodeResponseLike;
  code(status: number): unknown;
  headers(headers: Readonly<Record<string, string>>): unknown;
  send(body: string): unknown;
}

/** The options of createFastifyHook(). `key` gets the request, `onRefused` the refusal, the request and the reply. */
export type FastifyLockOptions = RequestLockOptions<
  FastifyRequestLike,
  readonly [request: FastifyRequestLike, reply: FastifyReplyLike],
  unknown
>;

/**
 * Returns a `preHandler` hook of Fastify 4 or 5: one request per key at a time. The lock is held until the response or its connection has been ended;
 * if the client closes the connection earlier, the signal of requestLock() is aborted, and the lock is kept until the handler
 * sends its reply, at most `maxHold`.
 * @throws TypeError naming the argument or option
 */
export function createFastifyHook(
  locks: Locks,
  options: FastifyLockOptions,
): (request: FastifyRequestLike, reply: FastifyReplyLike, done: (error?: Error) => void) => void {
  const run = createRequestRunner("createFastifyHook", locks, options);
  const { onRefused = answerRefusal } = options;
  return (request, reply, done) => {
    runNodeRequest(run, request, reply.raw, done)
      .then((outcome) => (typeof outcome === "string" ? undefined : onRefused(outcome, request, reply)))
      .catch(done);
  };
}

function answerRefusal(refusal: Refusal, _request: object, reply: FastifyReplyLike): void {
  const { status, headers, body } = formatRefusal(refusal);
  reply.code(status);
  reply.headers(headers);
  reply.send(body);
}

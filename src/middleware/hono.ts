/** Middleware of Hono. */

import type { Locks } from "../index.ts";
import { formatRefusal } from "./refusal.ts";
import type { RequestLockOptions } from "./request-runner.ts";
import { createRequestRunner } from "./request-runner.ts";

/** What is known of a context of Hono; functions may declare their parameter as Hono's Context. */
interface HonoContextLike {
  readonly req: {
    readonly raw: Request;
    param(): Readonly<Record<string, string>>;
    param(name: string): string | undefined;
    header(name: string): string | undefined;
  };
}

/** The options of createHonoMiddleware(). `key` gets the context, `onRefused` the refusal and the context. */
export type HonoLockOptions = RequestLockOptions<
  HonoContextLike,
  readonly [context: HonoContextLike],
  Response | Promise<Response>
>;

/** No client receives it; it shows in logs that the client had closed the connection. */
const CLIENT_CLOSED_REQUEST = 499;

/**
 * Returns middleware of Hono: one request per key at a time. The lock is held until the handler has returned its response; a
 * body that is streamed afterwards has no lock. If the client closes the connection, the signal of requestLock() is aborted,
 * and the lock is kept until the handler has ended, at most `maxHold`.
 * @throws TypeError naming the argument or option
 */
export function createHonoMiddleware(
  locks: Locks,
  options: HonoLockOptions,
): (context: HonoContextLike, next: () => Promise<void>) => Promise<Response | undefined> {
  const run = createRequestRunner("createHonoMiddleware", locks, options);
  return async (context, next) => {
    const { req } = context;
    let handled: Promise<void> | undefined;
    const outcome = await run(context, req.param(), req.raw.signal, () => {
      handled = next();
      return handled;
    });
    await handled;
    if (outcome === "handled") return undefined;
    if (outcome === "abandoned") return new Response(null, { status: CLIENT_CLOSED_REQUEST });
    if (options.onRefused !== undefined) return options.onRefused(outcome, context);
    const { status, headers, body } = formatRefusal(outcome);
    return new Response(body, { status, headers });
  };
}

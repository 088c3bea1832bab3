/** Runs the handlers of requests under a lock: what the middleware of all frameworks has in common. */

import { once } from "node:events";
import { validateAcquireOptions } from "../client/options.ts";
import type { AcquireOptions, Duration, Locks } from "../index.ts";
import { currentLock } from "../index.ts";
import { describeValue } from "../util/duration.ts";
import { functionRule, locksRule, requireObject, requireValid } from "../util/validate.ts";
import { parseKeyTemplate } from "../wrapping/key-template.ts";
import type { Refusal } from "./refusal.ts";
import { toRefusal } from "./refusal.ts";
import type { RequestLock } from "./request-lock.ts";
import { setRequestLock } from "./request-lock.ts";

/** A function whose parameters users may declare more precisely than middleware does: the types of frameworks are not known here. */
type UserFunction<Args extends readonly unknown[], Result> = { call(...args: Args): Result }["call"];

/** The options of middleware. `Args` and `Answer` belong to `onRefused`, and differ between frameworks. */
export interface RequestLockOptions<Request, Args extends readonly unknown[], Answer>
  extends Omit<AcquireOptions, "signal"> {
  /** The key: a template over the parameters of the route, such as "order:#{params.id}", or a function. null: no lock. */
  readonly key: string | UserFunction<readonly [request: Request], string | null>;
  /** The longest wait, then the request is refused. Default 0: at once, whatever the client's default. */
  readonly wait?: Duration | undefined;
  /** The longest time that a request keeps the lock; then it is lost. Default 5 min, whatever the client's default. */
  readonly maxHold?: Duration | undefined;
  /**
   * How long the lock stays with this process after a request, for its next one. Other processes find it locked then, and refuse
   * requests that do not wait. Default 0, whatever the client's default.
   */
  readonly cache?: Duration | undefined;
  /** The status for requests that were refused because another one has the lock. Default 409. */
  readonly busyStatus?: 409 | 423 | undefined;
  /** Answers a refused request. Default: a problem document with the status and Retry-After. */
  readonly onRefused?: UserFunction<readonly [refusal: Refusal, ...args: Args], Answer> | undefined;
}

/** "abandoned": the client had closed the connection before the lock was granted. */
export type RequestOutcome = "handled" | "abandoned" | Refusal;

/**
 * @param params the parameters of the route
 * @param clientSignal aborted when the client has closed the connection
 * @param handle runs the handler and settles when it has ended; gets null if the request needs no lock. If the lock is lost
 *   meanwhile, the outcome does not wait for it
 * @throws what handle throws; TypeError if there is no key; StoreRefusedError, UnsupportedError, DeadlockError
 */
export type RunRequest<Request> = (
  request: Request,
  params: unknown,
  clientSignal: AbortSignal,
  handle: (requestLock: RequestLock | null) => Promise<void>,
) => Promise<RequestOutcome>;

/** One request that asks for its lock. */
interface Attempt {
  readonly request: object;
  readonly key: string;
  readonly clientSignal: AbortSignal;
  readonly handle: (requestLock: RequestLock) => Promise<void>;
  hasBegun: boolean;
}

/** @param caller how messages name what got the options. @throws TypeError naming the argument or option */
export function createRequestRunner<Request extends object, Args extends readonly unknown[], Answer>(
  caller: string,
  locks: Locks,
  options: RequestLockOptions<Request, Args, Answer>,
): RunRequest<Request> {
  requireValid(locks, "locks", locksRule);
  requireObject(options, caller);
  const { key, busyStatus = 409, onRefused, wait = 0, maxHold = "5m", cache = 0, ...others } = options;
  const acquireOptions = { ...(typeof key === "string" && { keyTemplate: key }), ...others, wait, maxHold, cache };
  // each request has its own
  if (Object.hasOwn(options, "signal")) throw new TypeError(`${caller} has no option "signal"`);
  validateAcquireOptions(caller, acquireOptions);
  requireValid(busyStatus, "busyStatus", (value) => (value === 409 || value === 423 ? null : "409 or 423"));
  if (onRefused !== undefined) requireValid(onRefused, "onRefused", functionRule);
  const getKey = parseKey(key, caller);
  const runLocked = locks.wrap(
    (attempt: Attempt) => attempt.key,
    { ...acquireOptions, signal: (attempt) => attempt.clientSignal },
    async (attempt: Attempt) => {
      attempt.hasBegun = true;
      const lock = currentLock();
      const requestLock = { lock, signal: AbortSignal.any([lock.signal, attempt.clientSignal]) };
      setRequestLock(attempt.request, requestLock);
      // a lost lock is released at once: a handler that never ends would keep it at the store until its lease ends
      await Promise.race([attempt.handle(requestLock), once(lock.signal, "abort")]);
    },
  );
  return async (request, params, clientSignal, handle) => {
    const key = getKey(request, params);
    if (key === null) {
      await handle(null);
      return "handled";
    }
    const attempt: Attempt = { request, key, clientSignal, handle, hasBegun: false };
    try {
      await runLocked(attempt);
      return "handled";
    } catch (error) {
      if (!attempt.hasBegun) return clientSignal.aborted ? "abandoned" : toRefusal(error, busyStatus);
      // the handler was told by its signal, and has answered
      if (isLockLost(error)) return "handled";
      throw error;
    }
  };
}

function parseKey<Request>(
  key: RequestLockOptions<Request, [], unknown>["key"],
  caller: string,
): (request: Request, params: unknown) => string | null {
  if (typeof key === "function") {
    return (request) => {
      const value = key(request);
      if (value === null || typeof value === "string") return value;
      throw new TypeError(`key of ${caller} must return text, or null for no lock, not ${describeValue(value)}`);
    };
  }
  requireValid(key, "key", (value) => (typeof value === "string" ? null : "a string or a function"));
  const parameters = { names: ["params"], mayHaveMore: false };
  const remedy = "write #{params.id} for the parameter :id of the route, or pass a function";
  const resolveKey = parseKeyTemplate(key, { subject: caller, parameters, remedy });
  return (_request, params) => resolveKey([params]);
}

function isLockLost(error: unknown): boolean {
  return error instanceof Error && (error as { readonly code?: unknown }).code === "LOCK_LOST";
}

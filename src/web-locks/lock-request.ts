/** The arguments of request(), checked in the order that the standard gives. */

import { describeValue } from "../util/duration.ts";
import { validateKey } from "../util/keys.ts";
import { functionRule, requireValid } from "../util/validate.ts";
import type { WebLock, WebLockMode } from "./types.ts";

type LockCallback = (lock: WebLock | null) => unknown;

export interface LockRequest {
  readonly name: string;
  readonly mode: WebLockMode;
  readonly ifAvailable: boolean;
  readonly steal: boolean;
  readonly signal: AbortSignal | undefined;
  readonly callback: LockCallback;
}

/** @throws TypeError, DOMException, and the reason of a signal that is aborted */
export function parseRequest(name: unknown, rest: readonly unknown[]): LockRequest {
  if (typeof name !== "string") throw new TypeError(`name must be a string, not ${describeValue(name)}`);
  const [options, callback] = rest.length < 2 ? [undefined, rest[0]] : rest;
  requireValid(callback, "callback", functionRule);
  const { mode = "exclusive", ifAvailable, steal, signal } = toMembers(options);
  requireValid(mode, "mode", (value) =>
    value === "exclusive" || value === "shared" ? null : '"exclusive" or "shared"',
  );
  requireValid(signal, "signal", (value) =>
    value === undefined || value instanceof AbortSignal ? null : "an AbortSignal",
  );
  // as in the standard, any value is true or false
  const request = {
    name,
    mode: mode as WebLockMode,
    ifAvailable: Boolean(ifAvailable),
    steal: Boolean(steal),
    signal: signal as AbortSignal | undefined,
    callback: callback as LockCallback,
  };
  refuseUnsupported(request);
  validateKey(name, "name");
  request.signal?.throwIfAborted();
  return request;
}

/** Members that the standard does not know are ignored, as by `navigator.locks`. */
function toMembers(options: unknown): Readonly<Record<string, unknown>> {
  if (options === undefined || options === null) return {};
  if (typeof options !== "object" && typeof options !== "function") {
    throw new TypeError(`options must be an object, not ${describeValue(options)}`);
  }
  return options as Readonly<Record<string, unknown>>;
}

function refuseUnsupported({ name, mode, ifAvailable, steal, signal }: LockRequest): void {
  if (name.startsWith("-")) throw notSupported('name must not begin with "-"');
  if (steal && ifAvailable) throw notSupported("steal and ifAvailable exclude each other");
  if (steal && mode !== "exclusive") throw notSupported('steal needs mode "exclusive"');
  if (signal !== undefined && steal) throw notSupported("signal and steal exclude each other");
  if (signal !== undefined && ifAvailable) throw notSupported("signal and ifAvailable exclude each other");
}

/** The error for what the standard does not allow, or the store cannot do. */
export function notSupported(message: string, cause?: unknown): DOMException {
  return new DOMException(message, { name: "NotSupportedError", ...(cause !== undefined && { cause }) });
}

/** Refusals of single calls. */

import type { ErrorCode } from "./error-codes.ts";

/** Refuses one call; the connection stays open. */
export class RequestError extends Error {
  readonly code: ErrorCode;
  constructor(code: ErrorCode, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "RequestError";
    this.code = code;
  }
}

/** No more changes: the table is about to be saved, or the store to be closed. */
export function drainingError(): RequestError {
  return new RequestError("DRAINING", "the server is stopping");
}

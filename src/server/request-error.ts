/** Refusals of single calls. */

import { systemErrorCode } from "../util/system-error.ts";
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

/** What a client learns of an error that is no refusal. The error itself is logged. */
export const INTERNAL_FAILURE: { readonly code: ErrorCode; readonly message: string } = {
  code: "INTERNAL",
  message: "the server failed; see its log",
};

/** No more changes: the table is about to be saved, or the store to be closed. */
export function drainingError(): RequestError {
  return new RequestError("DRAINING", "the server is stopping");
}

/** A write to the state directory has failed, and with it what must not be answered without the write. */
export function diskError(cause: unknown): RequestError {
  const code = systemErrorCode(cause) ?? "an error";
  return new RequestError(
    "DISK",
    `the server cannot write its state (${code}); locks that must be persisted are refused`,
    cause,
  );
}

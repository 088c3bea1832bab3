/** Errors of databases, as the dialects of database servers explain them. */

import { StoreRefusedError } from "../../errors.ts";

/** An error of the server or of the client library, without its statement and details: they may contain claim ids. */
export class DatabaseError extends Error {
  /** The server's code, or one of Node. The CLI shows it. */
  readonly code?: string;
  readonly isFatal: boolean;

  constructor(message: string, code: string | undefined, isFatal: boolean) {
    super(message);
    this.name = "Error";
    this.isFatal = isFatal;
    if (code !== undefined) this.code = code;
  }
}

/** The error of open(): fatal if a retry is useless. @param error as a dialect has explained it */
export function toOpenError(error: unknown): unknown {
  return error instanceof DatabaseError && error.isFatal
    ? new StoreRefusedError(error.message, { cause: error })
    : error;
}

/**
 * The messages of failed attempts to several addresses, which Node reports as one error without a message; "": it is
 * none.
 */
export function describeAttempts(error: Error): string {
  const { errors = [] } = error as { readonly errors?: readonly Error[] };
  return errors.map(({ message }) => message).join(", ");
}

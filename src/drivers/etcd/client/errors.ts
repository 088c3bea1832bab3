/** Failures of etcd's JSON gateway. */

import { StoreRefusedError } from "../../../errors.ts";

/** Status codes of gRPC. */
const INVALID_ARGUMENT = 3;
/** As that of a lease that has ended. */
export const NOT_FOUND = 5;
const PERMISSION_DENIED = 7;
export const RESOURCE_EXHAUSTED = 8;
export const UNAVAILABLE = 14;
export const UNAUTHENTICATED = 16;

/** An answer of the servers that is a failure. */
export class EtcdError extends Error {
  /** gRPC's status code. */
  readonly code: number;
  constructor(message: string, code: number) {
    super(`etcd: ${message}`);
    this.name = "EtcdError";
    this.code = code;
  }
}

/** Is it a failure with this status code of gRPC? */
export function hasCode(error: unknown, code: number): boolean {
  return error instanceof EtcdError && error.code === code;
}

/** The error of an answer: its HTTP status, and its body. */
export function toCallError(status: number, body: string): Error {
  const { message, code } = parseFailure(body);
  if (code === null) {
    const text = `etcd: the server answers ${status} without a message: is it etcd 3.4 or newer, with its JSON gateway enabled?`;
    return status === 404 ? new StoreRefusedError(text) : new Error(text);
  }
  // an old token, and a change of users or roles since it was issued
  if (/invalid auth token|revision in header is old/.test(message)) return new EtcdError(message, UNAUTHENTICATED);
  if (/user name is empty/.test(message))
    return new StoreRefusedError("etcd: the servers require a user and a password, also of clients with a certificate");
  if (code === PERMISSION_DENIED)
    return new StoreRefusedError(
      'etcd: the user has no right to these keys: it needs the permission "readwrite" for them',
    );
  if (code === INVALID_ARGUMENT && /authentication failed/.test(message))
    return new StoreRefusedError("etcd: the user or the password is wrong");
  if (code === RESOURCE_EXHAUSTED && /space exceeded/.test(message))
    return new EtcdError(
      "the database has reached its quota (alarm NOSPACE): keys can only be deleted until it is compacted, defragmented and disarmed",
      code,
    );
  return new EtcdError(message, code);
}

/** Both of a call ({ error, code }) and in a stream ({ error: { message, grpc_code } }). */
function parseFailure(body: string): { readonly message: string; readonly code: number | null } {
  try {
    const { error, code, message } = JSON.parse(body) as {
      readonly error?: string | { readonly message?: string; readonly grpc_code?: number; readonly code?: number };
      readonly code?: number;
      readonly message?: string;
    };
    if (typeof error === "object" && error !== null)
      return { message: error.message ?? "", code: error.grpc_code ?? error.code ?? 2 };
    return { message: message ?? error ?? "", code: code ?? null };
  } catch {
    return { message: body.slice(0, 100), code: null };
  }
}

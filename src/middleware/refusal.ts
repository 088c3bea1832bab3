/** Requests that do not get their lock, and how they are answered. */

import { STATUS_CODES } from "node:http";

/** Why a request did not reach its handler. */
export interface Refusal {
  /** 409 or 423: another request has the lock. 503: the store cannot be asked. 400: the request yields no valid key. */
  readonly status: 400 | 409 | 423 | 503;
  /** The header Retry-After. null: none, since a retry would change nothing. */
  readonly retryAfterSeconds: number | null;
  /** The cause. Its message may name the holder, so it is for logs and not for clients. */
  readonly error: Error;
}

/** The default answer to a refused request. */
export interface RefusalAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

const DETAILS: Readonly<Record<Refusal["status"], string>> = {
  400: "the request does not name a valid resource",
  409: "another request for this resource is running",
  423: "another request for this resource is running",
  503: "it cannot be determined whether another request for this resource is running",
};

/** Matches codes, since a process may load two copies of the package. @throws the error if it is no refusal */
export function toRefusal(error: unknown, busyStatus: 409 | 423): Refusal {
  if (!(error instanceof Error)) throw error;
  const { code, remainingMs = 0 } = error as { readonly code?: unknown; readonly remainingMs?: number };
  const retryAfterSeconds = Math.max(1, Math.ceil(remainingMs / 1_000));
  if (code === "LOCK_TIMEOUT") return { status: busyStatus, retryAfterSeconds, error };
  if (code === "LOCK_STORE_PAUSED" || code === "LOCK_STORE_FAILED" || code === "LOCK_CLOSED")
    return { status: 503, retryAfterSeconds, error };
  // all other arguments have been checked before: the key is too long, or has control characters
  if (error instanceof TypeError) return { status: 400, retryAfterSeconds: null, error };
  throw error;
}

/** A problem document (RFC 9457). */
export function formatRefusal({ status, retryAfterSeconds }: Refusal): RefusalAnswer {
  const headers = { "content-type": "application/problem+json", "cache-control": "no-store" };
  return {
    status,
    headers: retryAfterSeconds === null ? headers : { ...headers, "retry-after": String(retryAfterSeconds) },
    body: JSON.stringify({ title: STATUS_CODES[status], status, detail: DETAILS[status] }),
  };
}

/** Error responses: application/problem+json (RFC 9457) with a `code` and a `reason` for programs. */

import type { OutgoingHttpHeaders, ServerResponse } from "node:http";
import { STATUS_CODES } from "node:http";
import { ProtocolError } from "../../protocol/handshake.ts";
import type { ErrorCode } from "../../server/error-codes.ts";
import { ERROR_CODES, toHttpStatus } from "../../server/error-codes.ts";
import { RequestError } from "../../server/request-error.ts";

/** Optional members and headers of the response. */
export interface ProblemDetails {
  /** The invalid member of the body, parameter or header. */
  readonly field?: string;
  /** For a busy key: the label of its holder. */
  readonly holder?: string;
  /** Milliseconds until another attempt makes sense; also in the Retry-After header, in seconds. */
  readonly retryMs?: number;
  /** The methods of the path, for the Allow header. */
  readonly allow?: string;
  /** The connection ends with this response. */
  readonly close?: boolean;
}

/**
 * The error response to one request. `code` is the kind of the error, `reason` its reason in one word, and the message is
 * for people. None of them repeats input, which may contain secrets.
 */
export class Problem extends Error {
  readonly code: ErrorCode;
  readonly reason: string;
  readonly details: ProblemDetails;
  constructor(code: ErrorCode, reason: string, message: string, details: ProblemDetails = {}) {
    super(message);
    this.name = "Problem";
    this.code = code;
    this.reason = reason;
    this.details = details;
  }

  get status(): number {
    return toHttpStatus(this.code, this.reason);
  }
}

/** The problem of an invalid field. */
export function invalidField(field: string, reason: string, message: string): Problem {
  return new Problem("INVALID", reason, message, { field });
}

/** The problem for an error; null: an internal error, whose message is not for clients. */
export function toProblem(error: unknown): Problem | null {
  if (error instanceof Problem) return error;
  if (error instanceof RequestError) {
    const { reason, retryMs } = ERROR_CODES[error.code];
    return new Problem(error.code, reason, error.message, retryMs === undefined ? {} : { retryMs });
  }
  if (error instanceof ProtocolError && error.code === "AUTH") {
    return new Problem("AUTH", "credential", error.message);
  }
  return null;
}

/** The problem for an internal error. The details are in the log. */
export function internalProblem(): Problem {
  return new Problem("INTERNAL", "server", "internal error; see the log of the server");
}

const PROBLEM_TYPE = "application/problem+json";

export function formatProblem({ status, code, reason, message, details }: Problem): string {
  const { field, holder, retryMs } = details;
  return `${JSON.stringify({
    type: "about:blank",
    title: STATUS_CODES[status] ?? "Error",
    status,
    code,
    reason,
    detail: message,
    ...(field !== undefined && { field }),
    ...(holder !== undefined && { holder }),
    ...(retryMs !== undefined && { retryMs: Math.ceil(retryMs) }),
  })}\n`;
}

export function formatProblemHeaders({ status, details }: Problem): Record<string, string> {
  return {
    "content-type": PROBLEM_TYPE,
    ...(status === 401 && { "www-authenticate": 'Bearer realm="holdfast"' }),
    ...(details.retryMs !== undefined && { "retry-after": String(Math.max(1, Math.ceil(details.retryMs / 1_000))) }),
    ...(details.allow !== undefined && { allow: details.allow }),
    ...(details.close === true && { connection: "close" }),
  };
}

/** Set on every response, so that no browser caches, frames, sniffs or shares it. CORS is not supported. */
export const SECURITY_HEADERS: OutgoingHttpHeaders = {
  "cache-control": "no-store",
  "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
};

/** Writes a problem directly to the response of Node, without the framework. */
export function sendProblem(outgoing: ServerResponse, problem: Problem): void {
  const text = formatProblem(problem);
  const length = Buffer.byteLength(text);
  outgoing.writeHead(problem.status, { ...formatProblemHeaders(problem), "content-length": length });
  outgoing.end(text);
}

/**
 * All error codes of the server. HTTP statuses, metrics, and the responses in the OpenAPI document come from this
 * table.
 */

/** The codes of docs/reference/protocol.md. */
type ProtocolErrorCode =
  | "AUTH"
  | "DISK"
  | "DRAINING"
  | "FLOOR"
  | "FORBIDDEN"
  | "INTERNAL"
  | "LIMIT"
  | "PROTOCOL"
  | "REPLACED"
  | "RUN_ID"
  | "SLOW"
  | "UNSUPPORTED"
  | "VERSION";

/** The codes that occur only over HTTP. */
type HttpErrorCode =
  | "BUSY"
  | "FATAL"
  | "INVALID"
  | "LOCK_LOST"
  | "MEDIA_TYPE"
  | "METHOD"
  | "NOT_FOUND"
  | "NOT_HELD"
  | "NOT_READY"
  | "PAUSED"
  | "RECLAIMING"
  | "STORE"
  | "TIMEOUT";

export type ErrorCode = ProtocolErrorCode | HttpErrorCode;

export interface ErrorCodeInfo {
  /** Whether the code has its own label in the metrics. The others count as "other". */
  readonly isCounted: boolean;
  /** The HTTP status; null: the code never occurs over HTTP. */
  readonly status: number | null;
  /** The reason over HTTP, unless the error has another one. */
  readonly reason: string;
  /** Reasons over HTTP with a status of their own. */
  readonly statusByReason?: Readonly<Record<string, number>>;
  /** Over HTTP: after how many milliseconds another attempt makes sense. */
  readonly retryMs?: number;
  /** For the OpenAPI document. */
  readonly meaning: string;
}

const protocolOnly = (meaning: string): ErrorCodeInfo => ({ isCounted: true, status: null, reason: "", meaning });

export const ERROR_CODES: Readonly<Record<ErrorCode, ErrorCodeInfo>> = {
  AUTH: { isCounted: true, status: 401, reason: "credential", meaning: "the credential is missing or not valid" },
  BUSY: { isCounted: false, status: 409, reason: "held", meaning: "the lock is not free (only with `wait` 0)" },
  DISK: { isCounted: true, status: 503, reason: "disk", retryMs: 1_000, meaning: "the disk cannot be written" },
  DRAINING: { isCounted: true, status: 503, reason: "draining", retryMs: 1_000, meaning: "the server is stopping" },
  FATAL: { isCounted: true, status: 502, reason: "store", meaning: "the store refused permanently" },
  FLOOR: { isCounted: true, status: 409, reason: "floor", meaning: "the token floor is too far in the future" },
  FORBIDDEN: {
    isCounted: true,
    status: 403,
    reason: "rights",
    meaning: "the credential lacks a right, the Host header is unknown, or the request comes from a foreign web page",
  },
  INTERNAL: { isCounted: true, status: 500, reason: "server", meaning: "the server failed; see its log" },
  INVALID: {
    isCounted: false,
    status: 400,
    reason: "malformed",
    meaning: "the request is invalid; `field` names the field, parameter or header",
  },
  LIMIT: {
    isCounted: true,
    status: 429,
    reason: "full",
    statusByReason: { length: 413, header: 431 },
    retryMs: 1_000,
    meaning: "a limit of the server is reached",
  },
  LOCK_LOST: {
    isCounted: false,
    status: 409,
    reason: "unknown",
    meaning: "the claim has ended; `reason` is expired, released, revoked, maxHold or unknown",
  },
  MEDIA_TYPE: { isCounted: false, status: 415, reason: "type", meaning: "the body is not application/json" },
  METHOD: { isCounted: false, status: 405, reason: "method", meaning: "the path does not support this method" },
  NOT_FOUND: { isCounted: false, status: 404, reason: "path", meaning: "the path does not exist" },
  NOT_HELD: { isCounted: false, status: 409, reason: "unknown", meaning: "no claim holds this key with this token" },
  NOT_READY: {
    isCounted: false,
    status: 503,
    reason: "store",
    meaning:
      "`reason` is reclaiming (recovery after a restart), draining (the server is stopping) or store (its state or its store is not available)",
  },
  PAUSED: { isCounted: false, status: 503, reason: "recovery", meaning: "nothing is granted now (only with `wait` 0)" },
  PROTOCOL: protocolOnly("the data is not the lock protocol"),
  RECLAIMING: {
    isCounted: true,
    status: 503,
    reason: "reclaiming",
    retryMs: 1_000,
    meaning: "the server is recovering after a restart",
  },
  REPLACED: protocolOnly("a newer connection of the session has replaced this one"),
  RUN_ID: protocolOnly("the line does not begin with the run id of this server"),
  SLOW: protocolOnly("the client does not read its output"),
  STORE: { isCounted: true, status: 503, reason: "store", retryMs: 1_000, meaning: "the store cannot be reached" },
  TIMEOUT: { isCounted: false, status: 408, reason: "slow", meaning: "the request did not arrive in time" },
  UNSUPPORTED: { isCounted: true, status: 501, reason: "store", meaning: "the store cannot do this" },
  VERSION: protocolOnly("the server does not speak this version of the protocol"),
};

/** All codes, in alphabetical order. */
export const ALL_ERROR_CODES: readonly ErrorCode[] = Object.keys(ERROR_CODES) as ErrorCode[];

/** The HTTP status of a code with this reason. */
export function toHttpStatus(code: ErrorCode, reason: string): number {
  const { status, statusByReason } = ERROR_CODES[code];
  return statusByReason?.[reason] ?? status ?? 500;
}

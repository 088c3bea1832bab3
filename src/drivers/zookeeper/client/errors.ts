/** The errors of requests: a class for what callers must tell apart, and a code for each refusal of the server. */

import { StoreRefusedError } from "../../../errors.ts";

/** The server's error codes, by their numbers in the protocol, which are negative. */
const ERROR_NAMES = {
  1: "SYSTEM_ERROR",
  2: "RUNTIME_INCONSISTENCY",
  3: "DATA_INCONSISTENCY",
  4: "CONNECTION_LOSS",
  5: "MARSHALLING",
  6: "UNIMPLEMENTED",
  7: "OPERATION_TIMEOUT",
  8: "BAD_ARGUMENTS",
  13: "NEW_CONFIG_NO_QUORUM",
  14: "RECONFIG_IN_PROGRESS",
  101: "NO_NODE",
  102: "NO_AUTH",
  103: "BAD_VERSION",
  108: "NO_CHILDREN_FOR_EPHEMERALS",
  110: "NODE_EXISTS",
  111: "NOT_EMPTY",
  112: "SESSION_EXPIRED",
  114: "INVALID_ACL",
  115: "AUTH_FAILED",
  118: "SESSION_MOVED",
  119: "NOT_READ_ONLY",
  120: "EPHEMERAL_ON_LOCAL_SESSION",
  121: "NO_WATCHER",
  122: "REQUEST_TIMEOUT",
  123: "RECONFIG_DISABLED",
  124: "SESSION_CLOSED_REQUIRE_SASL",
  125: "QUOTA_EXCEEDED",
  127: "THROTTLED",
} as const;

/** A name of an error: that of the server, or the number of one that this client does not know. */
type ErrorCode = (typeof ERROR_NAMES)[keyof typeof ERROR_NAMES] | `CODE_${number}`;

/** The server refused the request: nothing was changed. */
export class ZooKeeperError extends Error {
  /** The server's name of the error, for instance "NO_NODE". */
  readonly code: ErrorCode;
  constructor(code: ErrorCode, message: string) {
    super(message);
    this.name = "ZooKeeperError";
    this.code = code;
  }
}

/**
 * There is no answer, and none will come. `isSent` false: the request was not sent, and nothing was changed. `isSent`
 * true: it may have been carried out, so the caller must read the state.
 */
export class ConnectionLossError extends Error {
  readonly code = "CONNECTION_LOSS";
  readonly isSent: boolean;
  constructor(isSent: boolean, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "ConnectionLossError";
    this.isSent = isSent;
  }
}

export function createClosedError(): ConnectionLossError {
  return new ConnectionLossError(false, "the ZooKeeper client was closed");
}

/** The session has ended, with its ephemeral nodes and watches; later requests belong to another session. */
export class SessionExpiredError extends Error {
  readonly code = "SESSION_EXPIRED";
  constructor() {
    super("the ZooKeeper session has expired");
    this.name = "SessionExpiredError";
  }
}

/** Wrong credentials, or a server that requires others: a retry does not help. */
export class AuthFailedError extends Error {
  readonly code = "AUTH_FAILED";
  constructor(message = "ZooKeeper refused the credentials") {
    super(message);
    this.name = "AuthFailedError";
  }
}

/** A server that is too old to be used safely. */
export class OutdatedServerError extends Error {
  readonly code = "OUTDATED_SERVER";
  constructor() {
    super(
      "this ZooKeeper server is older than 3.6, the oldest supported version: it lacks SetWatches2, which restores watches",
    );
    this.name = "OutdatedServerError";
  }
}

/** Removes claim ids from a text for messages: the id of a protected node (Curator's `_c_<id>-`) is a secret. */
export function redactIds(text: string): string {
  return text.replace(/_c_[0-9A-Za-z]+(?:-[0-9A-Fa-f]{4,12})*-/g, "_c_...-");
}

/** The error of a reply code other than 0. */
export function toServerError(code: number, description: string): Error {
  if (code === -112) return new SessionExpiredError();
  if (code === -115) return new AuthFailedError();
  const names: Readonly<Record<number, ErrorCode>> = ERROR_NAMES;
  const name = names[-code] ?? (`CODE_${code}` as const);
  return new ZooKeeperError(name, `ZooKeeper: ${redactIds(description)}: ${name}`);
}

const PERMANENT_CODES: readonly ErrorCode[] = ["NO_AUTH", "INVALID_ACL", "QUOTA_EXCEEDED"];

/**
 * Is a retry useless? The server is too old, the credentials or permissions are refused, the ACL is invalid, or a quota
 * set by an operator is exceeded.
 */
export function isPermanent(error: unknown): error is AuthFailedError | OutdatedServerError | ZooKeeperError {
  if (error instanceof AuthFailedError || error instanceof OutdatedServerError) return true;
  return error instanceof ZooKeeperError && PERMANENT_CODES.includes(error.code);
}

/** The error to report to the client: a StoreRefusedError if a retry cannot help. */
export function toFatalError(error: unknown): unknown {
  return isPermanent(error) ? new StoreRefusedError(error.message, { cause: error }) : error;
}

/** Is the outcome of this request unknown? Then the caller must read the state. */
export function isOutcomeUnknown(error: unknown): boolean {
  return error instanceof ConnectionLossError && error.isSent;
}

/** Is this the server's error with that code? */
export function hasCode(error: unknown, code: ErrorCode): boolean {
  return error instanceof ZooKeeperError && error.code === code;
}

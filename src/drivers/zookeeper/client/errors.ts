/** What can go wrong with a request, told apart by `code`. */

/** Codes of the server, as its protocol numbers them. */
const ERROR_NAMES: Readonly<Record<number, string>> = {
  [-1]: "SYSTEM_ERROR",
  [-2]: "RUNTIME_INCONSISTENCY",
  [-3]: "DATA_INCONSISTENCY",
  [-4]: "CONNECTION_LOSS",
  [-5]: "MARSHALLING",
  [-6]: "UNIMPLEMENTED",
  [-7]: "OPERATION_TIMEOUT",
  [-8]: "BAD_ARGUMENTS",
  [-13]: "NEW_CONFIG_NO_QUORUM",
  [-14]: "RECONFIG_IN_PROGRESS",
  [-101]: "NO_NODE",
  [-102]: "NO_AUTH",
  [-103]: "BAD_VERSION",
  [-108]: "NO_CHILDREN_FOR_EPHEMERALS",
  [-110]: "NODE_EXISTS",
  [-111]: "NOT_EMPTY",
  [-112]: "SESSION_EXPIRED",
  [-114]: "INVALID_ACL",
  [-115]: "AUTH_FAILED",
  [-118]: "SESSION_MOVED",
  [-119]: "NOT_READ_ONLY",
  [-120]: "EPHEMERAL_ON_LOCAL_SESSION",
  [-121]: "NO_WATCHER",
  [-122]: "REQUEST_TIMEOUT",
  [-123]: "RECONFIG_DISABLED",
  [-124]: "SESSION_CLOSED_REQUIRE_SASL",
  [-125]: "QUOTA_EXCEEDED",
  [-127]: "THROTTLED",
};

/** The server has answered, and refused: nothing was changed. */
export class ZooKeeperError extends Error {
  /** As the server names it, for instance "NO_NODE". */
  readonly code: string;
  constructor(code: string, message: string) {
    super(message);
    this.name = "ZooKeeperError";
    this.code = code;
  }
}

/**
 * There is no answer, and none will come. `isSent` false: the request has not left, nothing was changed. `isSent` true: it may
 * have been carried out; whoever asked must look.
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

/** The session is over, and with it its ephemeral nodes and watches; what is asked next belongs to another session. */
export class SessionExpiredError extends Error {
  readonly code = "SESSION_EXPIRED";
  constructor() {
    super("the ZooKeeper session has expired");
    this.name = "SessionExpiredError";
  }
}

/** Asking again changes nothing: wrong credentials, or a server that wants others. */
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
      "this ZooKeeper is older than 3.6, the oldest one that locks can rely on: it does not know SetWatches2, which restores watches",
    );
    this.name = "OutdatedServerError";
  }
}

/** What was asked, for people: the id of a protected node (Curator's `_c_<id>-`) is a secret. */
export function redactIds(what: string): string {
  return what.replace(/_c_[0-9A-Za-z]+(?:-[0-9A-Fa-f]{4,12})*-/g, "_c_...-");
}

/** The error of a reply's code, which is not 0. */
export function toServerError(code: number, description: string): Error {
  if (code === -112) return new SessionExpiredError();
  if (code === -115) return new AuthFailedError();
  const name = ERROR_NAMES[code] ?? `CODE_${code}`;
  return new ZooKeeperError(name, `ZooKeeper: ${redactIds(description)}: ${name}`);
}

const PERMANENT_CODES: readonly string[] = ["NO_AUTH", "INVALID_ACL", "QUOTA_EXCEEDED"];

/**
 * Would asking again change nothing: are the servers too old, do they not know us, not take what our nodes are to allow,
 * or not take any more of them where an operator has set a quota?
 */
export function isPermanent(error: unknown): boolean {
  if (error instanceof AuthFailedError || error instanceof OutdatedServerError) return true;
  return error instanceof ZooKeeperError && PERMANENT_CODES.includes(error.code);
}

/** Is this the server's refusal of that name? */
export function hasCode(error: unknown, code: string): boolean {
  return error instanceof ZooKeeperError && error.code === code;
}

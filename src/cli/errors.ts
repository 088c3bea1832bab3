/** How a command fails: an error kind with a fixed exit code, and a message for the user. */

import { StateError } from "../server/storage/private-files.ts";

/**
 * Exit codes by error kind. 64 to 78 are those of sysexits(3); the others follow timeout(1), flock(1) and the shell.
 */
export const EXIT_CODES = {
  timeout: 124,
  busy: 124,
  lost: 123,
  maxHold: 122,
  deadlock: 121,
  unreachable: 69,
  paused: 69,
  refused: 77,
  usage: 64,
  notExecutable: 126,
  notFound: 127,
  internal: 70,
  output: 74,
  config: 78,
} as const;

/** Why a command failed. */
export type ErrorKind = keyof typeof EXIT_CODES;

/** Further facts for programs; printed with --json. */
export type ErrorDetails = Readonly<Record<string, unknown>>;

/** Ends the command with the exit code of its kind, and prints the message on stderr. */
export class CommandError extends Error {
  /** Decides the exit code. */
  readonly kind: ErrorKind;
  /** The exit code: the kind's own, unless --conflict-exit-code replaces it. */
  readonly code: number;
  /** Printed with --json. */
  readonly details: ErrorDetails;
  constructor(
    kind: ErrorKind,
    message: string,
    options: { readonly code?: number; readonly details?: ErrorDetails; readonly cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = "CommandError";
    this.kind = kind;
    this.code = options.code ?? EXIT_CODES[kind];
    this.details = options.details ?? {};
  }
}

/** Rewords an error message of commander, the parser of the command line. */
export function describeUsageError(message: string, command = "run"): string {
  const sentence = message
    .replace(/^error: /, "")
    .replace(/\s*\(Did you mean (.+)\?\)$/s, "; did you mean $1?")
    .replace(
      /^(unknown option '--store').*$/s,
      command === "serve" ? "$1; holdfast gateway serves another store" : "$1; use --url to name the store",
    )
    .replace(/^option '(?:-\w, )?(.+)' argument missing$/, "$1: the value is missing")
    .replace(
      /^too many arguments for '(.+)'\. Expected (\d+) .* got (\d+)\.$/,
      "too many arguments for $1: at most $2, not $3",
    )
    .replace(
      /^command-argument value '(.*)' is invalid for argument '(.+)'\. Allowed choices are (.+)\.$/s,
      "the $2 must be one of $3, not $1",
    )
    .replace(/^(unknown command '[^']*')$/, "$1; see holdfast --help")
    .replace(/^(unknown option '[^']*')$/, `$1; see holdfast ${command.startsWith("-") ? "" : `${command} `}--help`)
    .replace(/^missing required argument '(.+)'$/, `the argument <$1> is missing; see holdfast ${command} --help`);
  return sentence.startsWith("the argument <key> is missing")
    ? `no key given; for example: holdfast ${command} nightly-report${command === "run" ? " -- ./report.sh" : ""}`
    : sentence;
}

/** Converts what was thrown to a CommandError. `url` names the store in the message of a store error. */
export function toCommandError(error: unknown, url: string): CommandError {
  if (error instanceof CommandError) return error;
  if (error instanceof StateError) return new CommandError("output", error.message, { cause: error });
  const limitError = toFileLimitError(error);
  if (limitError !== null) return limitError;
  const { code, message } = toErrorLike(error);
  switch (code) {
    case "LOCK_TIMEOUT":
      return new CommandError("timeout", message, { cause: error });
    case "LOCK_STORE_PAUSED":
      return new CommandError("paused", message, { cause: error });
    case "LOCK_LOST":
      return toLostError(error as { readonly reason?: unknown }, message);
    case "LOCK_DEADLOCK":
      return new CommandError("deadlock", message, { cause: error });
    case "LOCK_STORE_FAILED":
      return toStoreError(error, url);
    case "LOCK_STORE_REFUSED":
      return new CommandError("refused", message, { cause: error });
    case "LOCK_UNSUPPORTED":
      return new CommandError("usage", message, { cause: error });
    default:
      break;
  }
  if (isNetworkCode(code)) return toStoreError(error, url);
  if (error instanceof TypeError && code === undefined) return new CommandError("usage", message, { cause: error });
  return new CommandError("internal", message, { cause: error });
}

const FILE_LIMITS: ReadonlyMap<unknown, string> = new Map([
  ["EMFILE", "this process may not open more files: raise its limit (ulimit -n)"],
  ["ENFILE", "this machine cannot open more files: close some, or raise its limit (fs.file-max)"],
]);

/** null: no limit on open files is the cause. One may be met wherever something is opened, a module included. */
export function toFileLimitError(error: unknown): CommandError | null {
  for (let cause: unknown = error; cause !== undefined && cause !== null; cause = (cause as Error).cause) {
    const limit = FILE_LIMITS.get(toErrorLike(cause).code);
    if (limit !== undefined) return new CommandError("unreachable", limit, { cause: error });
  }
  return null;
}

/** The same for an error of a call to a driver, which does not wrap what its store reports. */
export function toCallError(error: unknown, url: string): CommandError {
  const converted = toCommandError(error, url);
  const isBug = error instanceof ReferenceError || error instanceof RangeError || error instanceof SyntaxError;
  return converted.kind === "internal" && error instanceof Error && !isBug ? toStoreError(error, url) : converted;
}

/** The error of a store that has not answered in time. */
export function createSilenceError(storeName: string): CommandError {
  return new CommandError("unreachable", `${storeName} did not answer`, { cause: { code: "ETIMEDOUT" } });
}

function toLostError(error: { readonly reason?: unknown }, message: string): CommandError {
  const kind = error.reason === "maxHold" ? "maxHold" : "lost";
  return new CommandError(kind, message, { details: { reason: error.reason }, cause: error });
}

const NETWORK_ERRORS: Readonly<Record<string, string>> = {
  ECONNREFUSED: "refused the connection",
  ENOENT: "does not exist: no server listens there",
  ECONNRESET: "closed the connection",
  EPIPE: "closed the connection",
  EAGAIN: "accepts no connections at the moment",
  ENOTFOUND: "cannot be reached: unknown host name",
  EAI_AGAIN: "cannot be reached: the DNS lookup failed temporarily",
  ETIMEDOUT: "did not answer",
  EHOSTUNREACH: "cannot be reached",
  ENETUNREACH: "cannot be reached",
  EACCES: "cannot be opened: permission denied",
};

/** An error between us and the store. A socket that this user may not open counts as refused, not as unreachable. */
function toStoreError(error: unknown, url: string): CommandError {
  const problem = describeCause(error);
  const isRefused = problem === NETWORK_ERRORS.EACCES;
  const where = isRefused ? describePath(error) : "";
  return new CommandError(isRefused ? "refused" : "unreachable", `${url} ${problem}${where}`, { cause: error });
}

/** Of a file that the server on demand needs. */
function describePath(error: unknown): string {
  for (let cause = error; cause !== undefined && cause !== null; cause = (cause as Error).cause) {
    const { path } = cause as { readonly path?: unknown };
    if (typeof path === "string") return ` (${path})`;
  }
  return "";
}

/** Of a file that a store needs, not of the socket of a server. */
function isMissingFile(error: unknown): boolean {
  const { code, syscall } = error as { readonly code?: unknown; readonly syscall?: unknown };
  return code === "ENOENT" && typeof syscall === "string" && syscall !== "connect";
}

function isNetworkCode(code: unknown): boolean {
  return typeof code === "string" && Object.hasOwn(NETWORK_ERRORS, code);
}

/** Errors that may be gone a moment later. An unknown host is a wrong address, and no time corrects that. */
const TRANSIENT_CODES: ReadonlySet<unknown> = new Set(
  Object.keys(NETWORK_ERRORS)
    .filter((code) => code !== "ENOTFOUND" && code !== "EACCES")
    // the server has too many connections, or is about to stop
    .concat("LIMIT", "DRAINING"),
);

/** Those of a server that is frozen or restarting: its address accepts connections, or does not refuse them. */
const UNRESPONSIVE_CODES: ReadonlySet<unknown> = new Set(["ECONNRESET", "EPIPE", "EAGAIN", "ETIMEDOUT", "DRAINING"]);

/** True if another attempt to open a lock server may succeed a moment later. */
export function isTransient(error: CommandError): boolean {
  return error.kind === "unreachable" && findTransientCode(error) !== null;
}

/**
 * True if there is a server, which does not answer at the moment. Else the address may be wrong, or the server full.
 */
export function isUnresponsive(error: CommandError): boolean {
  return UNRESPONSIVE_CODES.has(findTransientCode(error));
}

function findTransientCode(error: CommandError): unknown {
  for (let cause: unknown = error.cause; cause !== undefined && cause !== null; cause = (cause as Error).cause) {
    const { code } = toErrorLike(cause);
    if (TRANSIENT_CODES.has(code)) return code;
  }
  return null;
}

/** The innermost cause with a message, worded to follow the url in a sentence. */
function describeCause(error: unknown): string {
  let description = toErrorLike(error).message;
  for (let cause: unknown = error; cause !== undefined && cause !== null; cause = (cause as Error).cause) {
    const { code, message } = toErrorLike(cause);
    if (isNetworkCode(code) && !isMissingFile(cause)) return NETWORK_ERRORS[code as string] as string;
    if (message !== "") description = message;
  }
  return `cannot be used: ${description}`;
}

function toErrorLike(error: unknown): { readonly code: unknown; readonly message: string } {
  if (typeof error !== "object" || error === null) return { code: undefined, message: String(error) };
  const { code, message } = error as { readonly code?: unknown; readonly message?: unknown };
  return { code, message: String(message ?? error) };
}

/** How a command fails: a cause with a fixed exit code, and one sentence for people. */

/** Exit codes by cause. They are free of overlap with sysexits and follow timeout(1), flock(1) and the shell. */
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

/** Why a command could not do what was asked. */
export type ErrorKind = keyof typeof EXIT_CODES;

/** What a program may want to know besides the cause; printed with --json. */
export type ErrorDetails = Readonly<Record<string, unknown>>;

/** Ends the command with its cause's exit code and this message on stderr. */
export class CommandError extends Error {
  /** Why; decides the exit code. */
  readonly kind: ErrorKind;
  /** Instead of the cause's own exit code (--conflict-exit-code). */
  readonly code: number;
  /** More for --json. */
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

/** What the parser of the command line says, as a sentence of ours. */
export function describeUsageError(message: string, command = "run"): string {
  const sentence = message
    .replace(/^error: /, "")
    .replace(/\s*\(Did you mean (.+)\?\)$/s, "; did you mean $1?")
    .replace(/^(unknown option '--store').*$/s, "$1; the store is named by --url")
    .replace(/^option '(?:-\w, )?(.+)' argument missing$/, "$1 lacks its value")
    .replace(/^too many arguments for '(.+)'\. Expected (\d+) .* got (\d+)\.$/, "arguments of $1: at most $2, not $3")
    .replace(/^(unknown command '[^']*')$/, "$1; see holdfast --help")
    .replace(/^(unknown option '[^']*')$/, `$1; see holdfast ${command.startsWith("-") ? "" : `${command} `}--help`)
    .replace(/^missing required argument '(.+)'$/, `which $1? See holdfast ${command} --help`);
  return sentence.startsWith("which key?")
    ? `which key? For example: holdfast ${command} nightly-report${command === "run" ? " -- ./report.sh" : ""}`
    : sentence;
}

/** What was thrown, as a CommandError. `url` is named where the store is at fault. */
export function toCommandError(error: unknown, url: string): CommandError {
  if (error instanceof CommandError) return error;
  const { code, message } = toErrorLike(error);
  switch (code) {
    case "LOCK_TIMEOUT":
      return new CommandError("timeout", message, { cause: error });
    case "PAUSED":
      return new CommandError("paused", message, { cause: error });
    case "LOCK_LOST":
      return toLostError(error as { readonly reason?: unknown }, message);
    case "LOCK_DEADLOCK":
      return new CommandError("deadlock", message, { cause: error });
    case "DRIVER_FAILED":
      return toStoreError(error, url);
    case "DRIVER_FATAL":
      return new CommandError("refused", message, { cause: error });
    case "UNSUPPORTED":
      return new CommandError("usage", message, { cause: error });
    default:
      break;
  }
  if (isNetworkCode(code)) return toStoreError(error, url);
  if (error instanceof TypeError && code === undefined) return new CommandError("usage", message, { cause: error });
  return new CommandError("internal", message, { cause: error });
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
  ENOTFOUND: "is a host nobody knows",
  EAI_AGAIN: "is a host whose name cannot be looked up now",
  ETIMEDOUT: "did not answer",
  EHOSTUNREACH: "cannot be reached",
  ENETUNREACH: "cannot be reached",
  EACCES: "may not be used by you",
};

/** The store could not be asked; a socket that this user may not open refuses them, whoever listens there. */
function toStoreError(error: unknown, url: string): CommandError {
  const problem = describeCause(error);
  const kind = problem === NETWORK_ERRORS.EACCES ? "refused" : "unreachable";
  return new CommandError(kind, `${url} ${problem}`, { cause: error });
}

function isNetworkCode(code: unknown): boolean {
  return typeof code === "string" && Object.hasOwn(NETWORK_ERRORS, code);
}

/** Codes of the network that say nothing about a moment later; a host that nobody knows is a wrong address. */
const TRANSIENT_CODES: ReadonlySet<unknown> = new Set(
  Object.keys(NETWORK_ERRORS)
    .filter((code) => code !== "ENOTFOUND" && code !== "EACCES")
    // of a server that has no room for one more connection, or is about to stop
    .concat("LIMIT", "DRAINING"),
);

/** May the store be reached a moment later? */
export function isTransient(error: CommandError): boolean {
  if (error.kind !== "unreachable") return false;
  for (let cause: unknown = error.cause; cause !== undefined && cause !== null; cause = (cause as Error).cause) {
    if (TRANSIENT_CODES.has(toErrorLike(cause).code)) return true;
  }
  return false;
}

/** The innermost error that says something, as the end of a sentence that begins with the url. */
function describeCause(error: unknown): string {
  let description = toErrorLike(error).message;
  for (let cause: unknown = error; cause !== undefined && cause !== null; cause = (cause as Error).cause) {
    const { code, message } = toErrorLike(cause);
    if (isNetworkCode(code)) return NETWORK_ERRORS[code as string] as string;
    if (message !== "") description = message;
  }
  return `cannot be used: ${description}`;
}

function toErrorLike(error: unknown): { readonly code: unknown; readonly message: string } {
  if (typeof error !== "object" || error === null) return { code: undefined, message: String(error) };
  const { code, message } = error as { readonly code?: unknown; readonly message?: unknown };
  return { code, message: String(message ?? error) };
}

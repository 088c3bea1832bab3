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
export type Cause = keyof typeof EXIT_CODES;

/** What a program may want to know besides the cause; printed with --json. */
export type Details = Readonly<Record<string, unknown>>;

/** Ends the command with its cause's exit code and this message on stderr. */
export class CommandError extends Error {
  /** Why; decides the exit code. */
  readonly why: Cause;
  /** Instead of the cause's own exit code (--conflict-exit-code). */
  readonly code: number;
  /** More for --json. */
  readonly details: Details;
  constructor(
    why: Cause,
    message: string,
    options: { readonly code?: number; readonly details?: Details; readonly cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = "CommandError";
    this.why = why;
    this.code = options.code ?? EXIT_CODES[why];
    this.details = options.details ?? {};
  }
}

/** What the parser of the command line says, as a sentence of ours. */
export function usageInWords(message: string, command = "run"): string {
  const said = message
    .replace(/^error: /, "")
    .replace(/\s*\(Did you mean (.+)\?\)$/s, "; did you mean $1?")
    .replace(/^(unknown option '--store').*$/s, "$1; the store is named by --url")
    .replace(/^option '(?:-\w, )?(.+)' argument missing$/, "$1 lacks its value")
    .replace(/^too many arguments for '(.+)'\. Expected (\d+) .* got (\d+)\.$/, "arguments of $1: at most $2, not $3")
    .replace(/^(unknown command '[^']*')$/, "$1; see holdfast --help")
    .replace(/^(unknown option '[^']*')$/, `$1; see holdfast ${command.startsWith("-") ? "" : `${command} `}--help`)
    .replace(/^missing required argument '(.+)'$/, `which $1? See holdfast ${command} --help`);
  return said.startsWith("which key?")
    ? `which key? For example: holdfast ${command} nightly-report${command === "run" ? " -- ./report.sh" : ""}`
    : said;
}

/** What was thrown, as a CommandError. `url` is named where the store is at fault. */
export function commandError(error: unknown, url: string): CommandError {
  if (error instanceof CommandError) return error;
  const { code, message } = asError(error);
  switch (code) {
    case "LOCK_TIMEOUT":
      return new CommandError("timeout", message, { cause: error });
    case "PAUSED":
      return new CommandError("paused", message, { cause: error });
    case "LOCK_LOST":
      return lostError(error as { readonly reason?: unknown }, message);
    case "LOCK_DEADLOCK":
      return new CommandError("deadlock", message, { cause: error });
    case "DRIVER_FAILED":
      return storeError(error, url);
    case "DRIVER_FATAL":
      return new CommandError("refused", message, { cause: error });
    case "UNSUPPORTED":
      return new CommandError("usage", message, { cause: error });
    default:
      break;
  }
  if (isNetworkCode(code)) return storeError(error, url);
  if (error instanceof TypeError && code === undefined) return new CommandError("usage", message, { cause: error });
  return new CommandError("internal", message, { cause: error });
}

function lostError(error: { readonly reason?: unknown }, message: string): CommandError {
  const why = error.reason === "maxHold" ? "maxHold" : "lost";
  return new CommandError(why, message, { details: { reason: error.reason }, cause: error });
}

const NETWORK: Readonly<Record<string, string>> = {
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
function storeError(error: unknown, url: string): CommandError {
  const told = whatHappened(error);
  const why = told === NETWORK.EACCES ? "refused" : "unreachable";
  return new CommandError(why, `${url} ${told}`, { cause: error });
}

function isNetworkCode(code: unknown): boolean {
  return typeof code === "string" && Object.hasOwn(NETWORK, code);
}

/** Codes of the network that say nothing about a moment later; a host that nobody knows is a wrong address. */
const PASSING: ReadonlySet<unknown> = new Set(
  Object.keys(NETWORK)
    .filter((code) => code !== "ENOTFOUND" && code !== "EACCES")
    // of a server that has no room for one more connection, or is about to stop
    .concat("LIMIT", "DRAINING"),
);

/** May the store be reached a moment later? */
export function mayPass(error: CommandError): boolean {
  if (error.why !== "unreachable") return false;
  for (let next: unknown = error.cause; next !== undefined && next !== null; next = (next as Error).cause) {
    if (PASSING.has(asError(next).code)) return true;
  }
  return false;
}

/** The innermost error that says something, as the end of a sentence that begins with the url. */
function whatHappened(error: unknown): string {
  let told = asError(error).message;
  for (let next: unknown = error; next !== undefined && next !== null; next = (next as Error).cause) {
    const { code, message } = asError(next);
    if (isNetworkCode(code)) return NETWORK[code as string] as string;
    if (message !== "") told = message;
  }
  return `cannot be used: ${told}`;
}

function asError(error: unknown): { readonly code: unknown; readonly message: string } {
  if (typeof error !== "object" || error === null) return { code: undefined, message: String(error) };
  const { code, message } = error as { readonly code?: unknown; readonly message?: unknown };
  return { code, message: String(message ?? error) };
}

/** The first line in each direction, the hello of client and server. docs/reference/protocol.md is the specification. */

import type { Traits } from "../spi/driver.ts";
import { MAX_LOCKS } from "../spi/driver.ts";

/** The version of the protocol that this code uses, and the oldest that it understands. */
export const PROTOCOL_VERSION = 1;

/** The version of this package, for information; a test compares it with package.json. */
export const PACKAGE_VERSION = "0.1.0";

/** Limits for a client; the server sends its own in its hello. */
export interface ProtocolLimits {
  /** The longest line to the server in bytes, including its line feed. */
  readonly lineBytes: number;
  /** The most keys of one claim. */
  readonly locks: number;
  /** The longest token range of one claim. */
  readonly tokens: number;
  /** The most claims in one reply to `list`. */
  readonly pageSize: number;
  /** The most ids or claims in one frame. Default 2,000. */
  readonly itemsPerFrame?: number;
  /** The most frames in one line. */
  readonly framesPerLine?: number;
  /** The longest lease in milliseconds. */
  readonly ttlMs?: number;
}

/** The limits of this server. A claim with the most keys, all of the longest length, fits into a line. */
export const PROTOCOL_LIMITS: Required<Omit<ProtocolLimits, "ttlMs">> = {
  lineBytes: 262_144,
  locks: MAX_LOCKS,
  tokens: 65_536,
  pageSize: 1_000,
  // about as many claims as fit into a line
  itemsPerFrame: 5_000,
  // about twice as many as frames with a claim fit into a line
  framesPerLine: 10_000,
};

/** The longest token range that every server accepts. */
export const MIN_TOKEN_LIMIT = 1_024;

/** The longest run id or state id. */
const MAX_NAME_CHARS = 64;

/** The longest first line in bytes. Small, since the client is not authenticated yet. */
export const MAX_HELLO_BYTES = 4_096;

/** The id of a server's state, and how often a server was started with it. */
export interface StateEpoch {
  /** The id of the state, since its first start. */
  readonly id: string;
  /** The number of starts with this state, from 1. */
  readonly generation: number;
}

/** The state and server run that a client was last connected to. */
export interface LastSeenState extends StateEpoch {
  readonly runId: string;
}

/** The client's first line. */
export interface ClientHello {
  readonly protocol: number;
  /** The version of the client's package, for information. */
  readonly version: string;
  /** The label of claims without one. */
  readonly label: string;
  /** Identifies the client across reconnects: 26 characters as from randomId(), a secret. */
  readonly session: string;
  /** A keep-session connection: it only keeps the session alive, and the server reads nothing more from it. */
  readonly keepSession: boolean;
  /** The client's process and its start time (field 22 of /proc/PID/stat), so that a server can detect its end. */
  readonly pid: number | null;
  readonly pidStart: string | null;
  /** Authenticates the client; a secret. Default: none. */
  readonly credential?: string | null;
  /** Only asks for the server's hello, after which the server ends the connection. On Unix sockets. */
  readonly probe?: boolean;
  /** The state that the client was last connected to, by which a server detects that its own is an older copy. Default: none. */
  readonly seen?: LastSeenState | null;
}

/** The server's first line. */
export interface ServerHello {
  readonly protocol: number;
  readonly version: string;
  /** The run id of the server: the first element of every later line, in both directions. */
  readonly runId: string;
  /** How long a session lasts without a sign of the client, and the lease in the answers for "session" claims. */
  readonly sessionMs: number;
  /** A session ends with its connection, not by silence: on a Unix socket the stream ends when the client's process does. */
  readonly endsWithConnection: boolean;
  readonly traits: Traits;
  /** The persistent state of the server; null: none. */
  readonly state?: StateEpoch | null;
  /** How much longer the recovery lasts, in which clients reclaim and nothing new is granted; 0: no recovery. */
  readonly recoveryRemainingMs: number;
  readonly limits: ProtocolLimits;
  /** On Unix sockets: the directory for the run files of `holdfast run`. Default: none. */
  readonly runDirectory?: string;
}

/** A violation of the protocol, which ends the connection. The message never quotes the received data. */
export class ProtocolError extends Error {
  readonly code: string;
  constructor(code: string, message: string) {
    super(message);
    this.name = "ProtocolError";
    this.code = code;
  }
}

export function encodeClientHello(hello: ClientHello): string {
  const {
    protocol,
    version,
    label,
    session,
    keepSession,
    pid,
    pidStart,
    credential = null,
    probe,
    seen = null,
  } = hello;
  if (probe) return `${JSON.stringify({ hello: { protocol, probe } })}\n`;
  // the secret session id is enough to keep the session alive
  if (keepSession) return `${JSON.stringify({ hello: { protocol, keepSession, session } })}\n`;
  const fields = {
    protocol,
    version,
    label,
    session,
    pid,
    pidStart,
    ...(credential !== null && { credential }),
    ...(seen && { seen }),
  };
  return `${JSON.stringify({ hello: fields })}\n`;
}

/** @throws ProtocolError if the line is not a hello of a supported version */
export function decodeClientHello(line: string): ClientHello {
  const hello = asRecord(asRecord(parseJson(line))?.hello);
  if (hello === null) throw new ProtocolError("PROTOCOL", "the first line must be a hello");
  checkVersion(hello.protocol, hello.oldest);
  const { version, label, keepSession, pid, pidStart, credential } = hello;
  const probe = hello.probe === true;
  const session = probe ? "" : hello.session;
  if (typeof session !== "string") throw new ProtocolError("PROTOCOL", "hello: session must be a string");
  return {
    protocol: PROTOCOL_VERSION,
    version: requireShortString(version ?? "", "version"),
    label: requireShortString(label ?? "", "label"),
    session,
    keepSession: keepSession === true,
    pid: Number.isSafeInteger(pid) && (pid as number) > 0 ? (pid as number) : null,
    pidStart: typeof pidStart === "string" && /^\d{1,20}$/.test(pidStart) ? pidStart : null,
    credential: credential == null ? null : requireShortString(credential, "credential"),
    probe,
    seen: decodeLastSeenState(hello.seen),
  };
}

/** A malformed value counts as missing. */
function decodeLastSeenState(value: unknown): LastSeenState | null {
  const seen = asRecord(value);
  const state = decodeStateEpoch(seen);
  return state === null || typeof seen?.runId !== "string" || seen.runId.length > MAX_NAME_CHARS
    ? null
    : { ...state, runId: seen.runId };
}

function decodeStateEpoch(value: unknown): StateEpoch | null {
  const state = asRecord(value);
  const hasValidId = typeof state?.id === "string" && state.id !== "" && state.id.length <= MAX_NAME_CHARS;
  if (!hasValidId || !Number.isSafeInteger(state.generation) || (state.generation as number) < 1) return null;
  return { id: state.id as string, generation: state.generation as number };
}

/** A later client may offer a range of versions. @throws ProtocolError unless the range contains this server's version */
function checkVersion(newest: unknown, oldest: unknown): void {
  if (newest === PROTOCOL_VERSION) return;
  const isRange = Number.isSafeInteger(newest) && Number.isSafeInteger(oldest);
  if (isRange && (oldest as number) <= PROTOCOL_VERSION && PROTOCOL_VERSION < (newest as number)) return;
  const requestedText = Number.isSafeInteger(newest) ? `, its client version ${newest}` : "";
  throw new ProtocolError("VERSION", `this server speaks version ${PROTOCOL_VERSION} of the protocol${requestedText}`);
}

export function encodeServerHello(hello: ServerHello): string {
  return `${JSON.stringify({ hello })}\n`;
}

/** @throws ProtocolError with the server's code and message if it refused the client, or if the line is not a hello */
export function decodeServerHello(line: string): ServerHello {
  if (line.startsWith("HTTP/")) {
    throw new ProtocolError("PROTOCOL", "this port speaks HTTP: connect to the port of the lock protocol");
  }
  const message = asRecord(tryParseJson(line));
  const error = asRecord(message?.error);
  if (error !== null) throw toProtocolError(error);
  const hello = asRecord(message?.hello);
  const limits = asRecord(hello?.limits);
  const traits = asRecord(hello?.traits);
  if (hello === null || limits === null || asRecord(traits?.lease) === null || hello.protocol !== PROTOCOL_VERSION) {
    throw new ProtocolError("PROTOCOL", `the peer is not a Holdfast server${guessOtherServer(line, hello)}`);
  }
  return {
    protocol: PROTOCOL_VERSION,
    version: requireShortString(hello.version, "version"),
    runId: requireShortString(hello.runId, "runId"),
    sessionMs: requireNonNegativeInt(hello.sessionMs, "sessionMs"),
    endsWithConnection: hello.endsWithConnection === true,
    // earlier servers do not know it
    traits: {
      ...(traits as unknown as Traits),
      recall: traits?.recall === "push" ? "push" : traits?.recall === "recheck" && "recheck",
    },
    recoveryRemainingMs: requireNonNegativeInt(hello.recoveryRemainingMs ?? 0, "recoveryRemainingMs"),
    state: decodeStateEpoch(hello.state),
    limits: {
      lineBytes: requireNonNegativeInt(limits.lineBytes, "lineBytes"),
      locks: requireNonNegativeInt(limits.locks, "locks"),
      tokens: requireNonNegativeInt(limits.tokens, "tokens"),
      pageSize: requireNonNegativeInt(limits.pageSize, "pageSize"),
      ...optionalInt("itemsPerFrame", limits.itemsPerFrame),
      ...optionalInt("framesPerLine", limits.framesPerLine),
      ...optionalInt("ttlMs", limits.ttlMs),
    },
    ...(hello.runDirectory !== undefined && { runDirectory: requireShortString(hello.runDirectory, "runDirectory") }),
  };
}

/** The last line on a connection that the server ends. */
export function encodeConnectionError(error: { readonly code: string; readonly message: string }): string {
  return `${JSON.stringify({ error: { code: error.code, message: error.message } })}\n`;
}

/** Decodes such a last line; null if the line is another one. */
export function decodeConnectionError(line: string): ProtocolError | null {
  if (!line.startsWith('{"error"')) return null;
  const error = asRecord(asRecord(parseJson(line))?.error);
  return error === null ? null : toProtocolError(error);
}

/** Guesses the kind of server without quoting its data. */
function guessOtherServer(line: string, hello: object | null): string {
  if (hello !== null) return " of this version";
  // Redis answers the hello like any unknown command
  return /^-(?:ERR|NOAUTH|DENIED|LOADING)\b/.test(line) ? ", but seems to be Redis: its urls begin with redis://" : "";
}

/** @throws ProtocolError */
export function parseJson(line: string): unknown {
  const value = tryParseJson(line);
  // the parser's message would quote the received data
  if (value === undefined) throw new ProtocolError("PROTOCOL", "a line is not JSON");
  return value;
}

/** Returns the value, or undefined if the text is not JSON. */
function tryParseJson(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

function toProtocolError(error: Readonly<Record<string, unknown>>): ProtocolError {
  return new ProtocolError(requireShortString(error.code, "code"), requireShortString(error.message, "message"));
}

function asRecord(value: unknown): Readonly<Record<string, unknown>> | null {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Readonly<Record<string, unknown>>)
    : null;
}

function requireShortString(value: unknown, name: string): string {
  if (typeof value !== "string" || value.length > 1_024)
    throw new ProtocolError("PROTOCOL", `${name} must be a short string`);
  return value;
}

/** A limit that earlier servers do not send. */
function optionalInt<K extends string>(name: K, value: unknown): { readonly [name in K]?: number } {
  return (value === undefined ? {} : { [name]: requireNonNegativeInt(value, name) }) as {
    readonly [name in K]?: number;
  };
}

function requireNonNegativeInt(value: unknown, name: string): number {
  if (!Number.isSafeInteger(value) || (value as number) < 0) {
    throw new ProtocolError("PROTOCOL", `${name} must be a whole number`);
  }
  return value as number;
}

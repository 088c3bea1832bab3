/** The first line each way: who is calling, and what the server is. docs/reference/protocol.md is the specification. */

import type { Traits } from "../spi/driver.ts";
import { MAX_LOCKS } from "../spi/driver.ts";

/** The version of the protocol this code speaks, and the oldest that it understands. */
export const PROTOCOL_VERSION = 1;

/** The version of this code, for people; a test compares it with package.json. */
export const PACKAGE_VERSION = "0.1.0";

/** Bounds a client must keep to; the server's own stand in its hello. */
export interface ProtocolLimits {
  /** Longest line to the server, in bytes, its line feed included. */
  readonly lineBytes: number;
  /** Most holds of one claim. */
  readonly holds: number;
  /** Longest run of tokens of one claim. */
  readonly tokens: number;
  /** Most claims one `list` gives. */
  readonly page: number;
  /** Most ids or claims in one frame. A server that does not say so takes 2,000. */
  readonly batch?: number;
  /** Most frames in one line. */
  readonly frames?: number;
  /** Longest lease that may be asked for, in milliseconds. */
  readonly ttlMs?: number;
}

/** What this server allows. A claim with that many of the longest keys still fits into a line. */
export const PROTOCOL_LIMITS: ProtocolLimits = { lineBytes: 262_144, holds: MAX_LOCKS, tokens: 1_024, page: 1_000 };

/** Names of starts and states are short. */
const MAX_NAME_CHARS = 64;

/** The longest first line, in bytes: nobody has said yet who they are. */
export const MAX_HELLO_BYTES = 4_096;

/** Which state a server keeps, and which start of it this is. */
export interface StateEpoch {
  /** Names the state from its first start on. */
  readonly id: string;
  /** Its starts, counted from 1. */
  readonly generation: number;
}

/** What a client has seen of the server that it was connected to last. */
export interface LastSeenState extends StateEpoch {
  readonly start: string;
}

/** What a client says first. */
export interface ClientHello {
  readonly protocol: number;
  /** The client's own version, for people. */
  readonly version: string;
  /** Given to claims that bring no label. */
  readonly label: string;
  /** Names the client over reconnects: 26 characters as of randomId(), a secret. */
  readonly session: string;
  /** This connection only keeps the session alive: nothing on it is read. */
  readonly tether: boolean;
  /** The client's process and its start time (field 22 of /proc/PID/stat), so that a server can see that it is gone. */
  readonly pid: number | null;
  readonly pidStart: string | null;
  /** By what the server knows the client; a secret. Default: it has none. */
  readonly credential?: string | null;
  /** Only asks who answers here: the server says hello and ends the connection. On Unix sockets. */
  readonly probe?: boolean;
  /** What the client has seen of the last server here: shows a server that its state is older. Default: nothing. */
  readonly seen?: LastSeenState | null;
}

/** What a server says first. */
export interface ServerHello {
  readonly protocol: number;
  readonly version: string;
  /** Names this run of the server: the first element of every later line, both ways. */
  readonly start: string;
  /** How long a session lasts in silence, and what "session" claims are told as their lease. */
  readonly sessionMs: number;
  /** Silence ends nothing: the end of the stream is the death of the client (a Unix socket). */
  readonly silenceKeeps: boolean;
  readonly traits: Traits;
  /** Which state it keeps; null: none that outlives it. */
  readonly state?: StateEpoch | null;
  /** How long the server will still grant nothing new, so that clients can reclaim; 0: it is open. */
  readonly reclaimMs: number;
  readonly limits: ProtocolLimits;
  /** On Unix sockets: the folder in which `holdfast run` writes down what it holds. Default: there is none. */
  readonly runsIn?: string;
}

/** Something that is not the protocol; the connection ends after it. The message never repeats what was received. */
export class ProtocolError extends Error {
  readonly code: string;
  constructor(code: string, message: string) {
    super(message);
    this.name = "ProtocolError";
    this.code = code;
  }
}

export function encodeClientHello(hello: ClientHello): string {
  const { protocol, version, label, session, tether, pid, pidStart, credential = null, probe, seen = null } = hello;
  if (probe) return `${JSON.stringify({ hello: { protocol, probe } })}\n`;
  // who knows the session may keep it alive
  if (tether) return `${JSON.stringify({ hello: { protocol, tether, session } })}\n`;
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

/** @throws ProtocolError if the line is not a hello this code understands */
export function decodeClientHello(line: string): ClientHello {
  const hello = asRecord(asRecord(parseJson(line))?.hello);
  if (hello === null) throw new ProtocolError("PROTOCOL", "the first line must be a hello");
  checkVersion(hello.protocol, hello.oldest);
  const { version, label, tether, pid, pidStart, credential } = hello;
  const probe = hello.probe === true;
  const session = probe ? "" : hello.session;
  if (typeof session !== "string") throw new ProtocolError("PROTOCOL", "hello: session must be a string");
  return {
    protocol: PROTOCOL_VERSION,
    version: requireShortString(version ?? "", "version"),
    label: requireShortString(label ?? "", "label"),
    session,
    tether: tether === true,
    pid: Number.isSafeInteger(pid) && (pid as number) > 0 ? (pid as number) : null,
    pidStart: typeof pidStart === "string" && /^\d{1,20}$/.test(pidStart) ? pidStart : null,
    credential: credential == null ? null : requireShortString(credential, "credential"),
    probe,
    seen: decodeLastSeenState(hello.seen),
  };
}

/** What is no such thing shows nothing. */
function decodeLastSeenState(value: unknown): LastSeenState | null {
  const seen = asRecord(value);
  const state = decodeStateEpoch(seen);
  return state === null || typeof seen?.start !== "string" || seen.start.length > MAX_NAME_CHARS
    ? null
    : { ...state, start: seen.start };
}

function decodeStateEpoch(value: unknown): StateEpoch | null {
  const state = asRecord(value);
  const hasValidId = typeof state?.id === "string" && state.id !== "" && state.id.length <= MAX_NAME_CHARS;
  if (!hasValidId || !Number.isSafeInteger(state.generation) || (state.generation as number) < 1) return null;
  return { id: state.id as string, generation: state.generation as number };
}

/** A client of a later version may say that it speaks older ones, too. @throws ProtocolError unless ours is among them */
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

/** @throws ProtocolError with the server's own code and message if it refused, else if the line is not a hello */
export function decodeServerHello(line: string): ServerHello {
  if (line.startsWith("HTTP/")) {
    throw new ProtocolError("PROTOCOL", "this port speaks HTTP: the lock protocol has a port of its own");
  }
  const message = asRecord(tryParseJson(line));
  const error = asRecord(message?.error);
  if (error !== null) throw toProtocolError(error);
  const hello = asRecord(message?.hello);
  const limits = asRecord(hello?.limits);
  const traits = asRecord(hello?.traits);
  if (hello === null || limits === null || asRecord(traits?.lease) === null || hello.protocol !== PROTOCOL_VERSION) {
    throw new ProtocolError("PROTOCOL", `what answers there is not a Holdfast server${guessOtherServer(line, hello)}`);
  }
  return {
    protocol: PROTOCOL_VERSION,
    version: requireShortString(hello.version, "version"),
    start: requireShortString(hello.start, "start"),
    sessionMs: requireNonNegativeInt(hello.sessionMs, "sessionMs"),
    silenceKeeps: hello.silenceKeeps === true,
    traits: traits as unknown as Traits,
    reclaimMs: requireNonNegativeInt(hello.reclaimMs ?? 0, "reclaimMs"),
    state: decodeStateEpoch(hello.state),
    limits: {
      lineBytes: requireNonNegativeInt(limits.lineBytes, "lineBytes"),
      holds: requireNonNegativeInt(limits.holds, "holds"),
      tokens: requireNonNegativeInt(limits.tokens, "tokens"),
      page: requireNonNegativeInt(limits.page, "page"),
      ...optionalInt("batch", limits.batch),
      ...optionalInt("frames", limits.frames),
      ...optionalInt("ttlMs", limits.ttlMs),
    },
    ...(hello.runsIn !== undefined && { runsIn: requireShortString(hello.runsIn, "runsIn") }),
  };
}

/** The one line with which a server ends a connection. */
export function encodeConnectionError(error: { readonly code: string; readonly message: string }): string {
  return `${JSON.stringify({ error: { code: error.code, message: error.message } })}\n`;
}

/** The error of a refusal line, or null if the line is something else. */
export function decodeConnectionError(line: string): ProtocolError | null {
  if (!line.startsWith('{"error"')) return null;
  const error = asRecord(asRecord(parseJson(line))?.error);
  return error === null ? null : toProtocolError(error);
}

/** What else it may be; nothing of what it said is repeated. */
function guessOtherServer(line: string, hello: object | null): string {
  if (hello !== null) return " of this version";
  // a Redis answers our hello as it answers any command that it does not know
  return /^-(?:ERR|NOAUTH|DENIED|LOADING)\b/.test(line) ? ", but seems to be Redis: its urls begin with redis://" : "";
}

/** JSON, or a ProtocolError. */
export function parseJson(line: string): unknown {
  const value = tryParseJson(line);
  // the parser's message would repeat what was received
  if (value === undefined) throw new ProtocolError("PROTOCOL", "a line is not JSON");
  return value;
}

/** The value, which is never undefined; undefined: it is no JSON. */
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

/** A bound that earlier servers do not name. */
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

/** The first line each way: who is calling, and what the server is. docs/reference/protocol.md is the specification. */

import type { Traits } from "../spi/driver.ts";
import { MAX_HOLDS } from "../spi/driver.ts";

/** The version of the protocol this code speaks, and the oldest that it understands. */
export const PROTOCOL = 1;

/** The version of this code, for people; a test compares it with package.json. */
export const VERSION = "0.1.0";

/** Bounds a client must keep to; the server's own stand in its hello. */
export interface Limits {
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
export const LIMITS: Limits = { lineBytes: 262_144, holds: MAX_HOLDS, tokens: 1_024, page: 1_000 };

/** Names of starts and states are short. */
const MOST_NAME_CHARS = 64;

/** The longest first line, in bytes: nobody has said yet who they are. */
export const HELLO_BYTES = 4_096;

/** Which state a server keeps, and which start of it this is. */
export interface StateName {
  /** Names the state from its first start on. */
  readonly id: string;
  /** Its starts, counted from 1. */
  readonly generation: number;
}

/** What a client has seen of the server that it was connected to last. */
export interface SeenState extends StateName {
  readonly start: string;
}

/** What a client says first. */
export interface ClientHello {
  readonly protocol: number;
  /** The client's own version, for people. */
  readonly version: string;
  /** Given to claims that bring no label. */
  readonly label: string;
  /** Names the client over reconnects: 26 characters as of newId(), a secret. */
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
  readonly seen?: SeenState | null;
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
  readonly state?: StateName | null;
  /** How long the server will still grant nothing new, so that clients can reclaim; 0: it is open. */
  readonly reclaimMs: number;
  readonly limits: Limits;
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

export function encodeHello(hello: ClientHello): string {
  const { protocol, version, label, session, tether, pid, pidStart, credential = null, probe, seen = null } = hello;
  if (probe) return `${JSON.stringify({ hello: { protocol, probe } })}\n`;
  // who knows the session may keep it alive
  if (tether) return `${JSON.stringify({ hello: { protocol, tether, session } })}\n`;
  const who = {
    protocol,
    version,
    label,
    session,
    pid,
    pidStart,
    ...(credential !== null && { credential }),
    ...(seen && { seen }),
  };
  return `${JSON.stringify({ hello: who })}\n`;
}

/** @throws ProtocolError if the line is not a hello this code understands */
export function decodeHello(line: string): ClientHello {
  const hello = record(record(parsed(line))?.hello);
  if (hello === null) throw new ProtocolError("PROTOCOL", "the first line must be a hello");
  checkVersion(hello.protocol, hello.oldest);
  const { version, label, tether, pid, pidStart, credential } = hello;
  const probe = hello.probe === true;
  const session = probe ? "" : hello.session;
  if (typeof session !== "string") throw new ProtocolError("PROTOCOL", "hello: session must be a string");
  return {
    protocol: PROTOCOL,
    version: text(version ?? "", "version"),
    label: text(label ?? "", "label"),
    session,
    tether: tether === true,
    pid: Number.isSafeInteger(pid) && (pid as number) > 0 ? (pid as number) : null,
    pidStart: typeof pidStart === "string" && /^\d{1,20}$/.test(pidStart) ? pidStart : null,
    credential: credential == null ? null : text(credential, "credential"),
    probe,
    seen: seenIn(hello.seen),
  };
}

/** What is no such thing shows nothing. */
function seenIn(value: unknown): SeenState | null {
  const seen = record(value);
  const state = stateIn(seen);
  return state === null || typeof seen?.start !== "string" || seen.start.length > MOST_NAME_CHARS
    ? null
    : { ...state, start: seen.start };
}

function stateIn(value: unknown): StateName | null {
  const state = record(value);
  const isNamed = typeof state?.id === "string" && state.id !== "" && state.id.length <= MOST_NAME_CHARS;
  if (!isNamed || !Number.isSafeInteger(state.generation) || (state.generation as number) < 1) return null;
  return { id: state.id as string, generation: state.generation as number };
}

/** A client of a later version may say that it speaks older ones, too. @throws ProtocolError unless ours is among them */
function checkVersion(newest: unknown, oldest: unknown): void {
  if (newest === PROTOCOL) return;
  const understood = Number.isSafeInteger(newest) && Number.isSafeInteger(oldest);
  if (understood && (oldest as number) <= PROTOCOL && PROTOCOL < (newest as number)) return;
  const asked = Number.isSafeInteger(newest) ? `, its client version ${newest}` : "";
  throw new ProtocolError("VERSION", `this server speaks version ${PROTOCOL} of the protocol${asked}`);
}

export function encodeWelcome(hello: ServerHello): string {
  return `${JSON.stringify({ hello })}\n`;
}

/** @throws ProtocolError with the server's own code and message if it refused, else if the line is not a hello */
export function decodeWelcome(line: string): ServerHello {
  if (line.startsWith("HTTP/")) {
    throw new ProtocolError("PROTOCOL", "this port speaks HTTP: the lock protocol has a port of its own");
  }
  const whole = record(json(line));
  const refusal = record(whole?.error);
  if (refusal !== null) throw refused(refusal);
  const hello = record(whole?.hello);
  const limits = record(hello?.limits);
  const traits = record(hello?.traits);
  if (hello === null || limits === null || record(traits?.lease) === null || hello.protocol !== PROTOCOL) {
    throw new ProtocolError("PROTOCOL", `what answers there is not a Holdfast server${otherServer(line, hello)}`);
  }
  return {
    protocol: PROTOCOL,
    version: text(hello.version, "version"),
    start: text(hello.start, "start"),
    sessionMs: whole0(hello.sessionMs, "sessionMs"),
    silenceKeeps: hello.silenceKeeps === true,
    traits: traits as unknown as Traits,
    reclaimMs: whole0(hello.reclaimMs ?? 0, "reclaimMs"),
    state: stateIn(hello.state),
    limits: {
      lineBytes: whole0(limits.lineBytes, "lineBytes"),
      holds: whole0(limits.holds, "holds"),
      tokens: whole0(limits.tokens, "tokens"),
      page: whole0(limits.page, "page"),
      ...some("batch", limits.batch),
      ...some("frames", limits.frames),
      ...some("ttlMs", limits.ttlMs),
    },
    ...(hello.runsIn !== undefined && { runsIn: text(hello.runsIn, "runsIn") }),
  };
}

/** The one line with which a server ends a connection. */
export function encodeRefusal(error: { readonly code: string; readonly message: string }): string {
  return `${JSON.stringify({ error: { code: error.code, message: error.message } })}\n`;
}

/** The error of a refusal line, or null if the line is something else. */
export function decodeRefusal(line: string): ProtocolError | null {
  if (!line.startsWith('{"error"')) return null;
  const refusal = record(record(parsed(line))?.error);
  return refusal === null ? null : refused(refusal);
}

/** What else it may be; nothing of what it said is repeated. */
function otherServer(line: string, hello: object | null): string {
  if (hello !== null) return " of this version";
  // a Redis answers our hello as it answers any command that it does not know
  return /^-(?:ERR|NOAUTH|DENIED|LOADING)\b/.test(line) ? ", but seems to be Redis: its urls begin with redis://" : "";
}

/** JSON, or a ProtocolError. */
export function parsed(line: string): unknown {
  const value = json(line);
  // the parser's message would repeat what was received
  if (value === undefined) throw new ProtocolError("PROTOCOL", "a line is not JSON");
  return value;
}

/** The value, which is never undefined; undefined: it is no JSON. */
function json(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

function refused(refusal: Readonly<Record<string, unknown>>): ProtocolError {
  return new ProtocolError(text(refusal.code, "code"), text(refusal.message, "message"));
}

function record(value: unknown): Readonly<Record<string, unknown>> | null {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Readonly<Record<string, unknown>>)
    : null;
}

function text(value: unknown, name: string): string {
  if (typeof value !== "string" || value.length > 1_024)
    throw new ProtocolError("PROTOCOL", `${name} must be a short string`);
  return value;
}

/** A bound that earlier servers do not name. */
function some<K extends string>(name: K, value: unknown): { readonly [name in K]?: number } {
  return (value === undefined ? {} : { [name]: whole0(value, name) }) as { readonly [name in K]?: number };
}

function whole0(value: unknown, name: string): number {
  if (!Number.isSafeInteger(value) || (value as number) < 0) {
    throw new ProtocolError("PROTOCOL", `${name} must be a whole number`);
  }
  return value as number;
}

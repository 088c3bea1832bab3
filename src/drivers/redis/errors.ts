/** Explains errors of Redis: what is wrong and what to do, without script digests, claim ids and passwords. */

import { StoreRefusedError } from "../../errors.ts";
import type { ClientAddress } from "./clients/types.ts";

interface KnownError {
  /** Matches the message of the server or the client library. */
  readonly pattern: RegExp;
  /** `command`: the refused command, if the message does not name it. */
  readonly message: (match: RegExpExecArray, command?: string) => string;
  /** A retry is useless while a driver opens. Later it is not: the server may recover. */
  readonly isFatal?: true;
  /** A retry is useless, too, but no Redis was reached that could have refused: not a StoreRefusedError. */
  readonly isNotRedis?: true;
}

const LOADING = /\bLOADING\b/;
const WAIT_ON_REPLICA = /\bWAIT cannot be used with replica\b/;
const MOVED = /\bMOVED\b/;
const REPLICA = /\b(READONLY|MASTERDOWN)\b/;
/** Errors of the certificates, and of a port that does not use TLS. */
const TLS_FAILURE =
  /self-signed certificate|unable to (?:verify the first|get (?:local )?issuer) certificate|does not match certificate's altnames|certificate has expired|alert (?:certificate required|handshake failure)|wrong version number|packet length too long/;

/**
 * The errors that users meet; all others are passed on as they are. The first match counts. The error code of Redis
 * stays in brackets: users find it in its documentation.
 */
const KNOWN_ERRORS: readonly KnownError[] = [
  {
    pattern: /\bOOM\b/,
    message: () =>
      "the server's memory is full (OOM): new locks are refused, held locks continue; raise maxmemory, or use a separate server for locks",
  },
  {
    pattern: REPLICA,
    message: ([code]) =>
      `this is a replica (${code}): connect to the master, or through Sentinels with a URL redis+sentinel://host,host/master`,
    isFatal: true,
  },
  { pattern: LOADING, message: () => "the server is still loading its data (LOADING): try again later" },
  {
    pattern: /\b(?:NOAUTH|WRONGPASS)\b|invalid password/,
    message: ([code]) =>
      `the server refuses the login (${code}): set user and password, in a URL redis://user:password@host, and check ACL LIST on the server`,
    isFatal: true,
  },
  {
    pattern: /\b(?:MOVED|CROSSSLOT)\b|cluster support disabled|unknown command.{1,2}sentinel/i,
    message: ([reason]) =>
      `the server is of another kind (${reason}): use a URL redis:// for a single server, redis+cluster:// for a Cluster, redis+sentinel:// for Sentinels, or a client for that kind`,
    isFatal: true,
  },
  {
    // in a script Redis does not name it
    pattern: /unknown (?:redis )?command(?:,? ['`]([^'`]+)['`])?/i,
    message: ([, name], command = name) =>
      `the server does not have ${command?.toUpperCase() ?? "a command that Holdfast's scripts use"} (unknown command): it is older than Redis 6.2, or hides the command (rename-command): allow it, or use another server`,
    isFatal: true,
  },
  {
    pattern: TLS_FAILURE,
    message: ([reason]) =>
      `TLS failed (${reason}): set ?ca=FILE and ?servername=NAME in the URL, pass your own client with a client certificate, or use redis:// for a port without TLS`,
    isFatal: true,
  },
  {
    pattern: /Unknown RESP type|Protocol error/,
    message: () =>
      "this is not a Redis server: check host and port; the URL of a Holdfast server begins with holdfast://",
    isNotRedis: true,
  },
  // the option of ioredis is ours
  { pattern: /max retries per request/, message: () => "the connection broke before the reply arrived" },
];

/** A server that does not know a command quotes its arguments: the text of a script, claim ids. */
const QUOTED_ARGUMENTS = /, with args beginning with:.*/s;
const UNKNOWN_COMMAND = /unknown (?:redis )?command/i;
const SCRIPT_SHA = /,? script: [0-9a-f]{40}(?:, on @user_script:\d+)?\.?/;
const PERMISSION_ERROR = /\bNOPERM\b|no permissions|executing the script can't|ACL failure in script/i;

/** An explained error of a server or a client library. */
class RedisStoreError extends Error {
  /** The CLI treats an error with a code as the answer of the store. */
  readonly code = "REDIS";
  readonly isFatal: boolean;
  readonly isNotRedis: boolean;
  constructor(
    explanation: string,
    { isFatal = false, isNotRedis = false }: { isFatal?: boolean; isNotRedis?: boolean },
  ) {
    super(`redis: ${explanation}`);
    this.name = "Error";
    this.isFatal = isFatal;
    this.isNotRedis = isNotRedis;
  }
}

/** Whether the user lacks a permission, or the server does not have the command. */
export function isUnavailableCommand(error: unknown): boolean {
  return [PERMISSION_ERROR, UNKNOWN_COMMAND].some((pattern) => pattern.test(String(error)));
}

/** Whether the server is a replica: it may have been the master when the connection was opened. */
export function isReplicaError(error: unknown): boolean {
  return REPLICA.test(String(error));
}

/**
 * Whether a node of a Cluster does not have the slot any more: its client, or the connection for WAIT, which leads to one node, does not
 * know the new master yet. To a client of another kind it says that the server is a Cluster.
 */
export function isMovedError(error: unknown): boolean {
  return MOVED.test(String(error));
}

/** Whether a library gave up waiting for the answer, by an option of its own (ioredis: commandTimeout). */
export function isTimeoutError(error: unknown): boolean {
  return error instanceof Error && error.message === "Command timed out";
}

/** Whether the server does not know the digest of the script. */
export function isNoScriptError(error: unknown): boolean {
  return /\bNOSCRIPT\b/.test(String(error));
}

/** Null if the error is not in the table. `command`: the refused command, if the message does not name it. */
export function explainError(message: string, command?: string): Error | null {
  if (PERMISSION_ERROR.test(message))
    return new RedisStoreError(explainMissingPermission(message, command), { isFatal: true });
  const text = message.replace(QUOTED_ARGUMENTS, "");
  for (const { pattern, message: explanation, ...flags } of KNOWN_ERRORS) {
    const match = pattern.exec(text);
    if (match !== null) return new RedisStoreError(explanation(match, command), flags);
  }
  return null;
}

/**
 * Explains an error of a server or a client library and drops its details of the command: ioredis attaches all
 * arguments, among them claim ids and passwords.
 */
export function sanitizeError(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof RedisStoreError) return error;
  // the generic error of a cluster client says nothing; the error of its last node gives the reason
  const { lastNodeError } = error as { readonly lastNodeError?: unknown };
  const { name, message, code } = (lastNodeError instanceof Error ? lastNodeError : error) as NodeJS.ErrnoException;
  const knownError = explainError(message);
  if (knownError !== null) return knownError;
  return Object.assign(new Error(message.replace(SCRIPT_SHA, "")), { name }, code === undefined ? {} : { code });
}

/** Whether waiting and retrying are useless. */
export function isPermanentError(error: unknown): boolean {
  const sanitized = sanitizeError(error);
  return sanitized instanceof RedisStoreError && (sanitized.isFatal || sanitized.isNotRedis);
}

/**
 * What ioredis says between the end of a connection and the event that reports it: it still takes the client for ready.
 */
const JUST_ENDED = /Stream isn't writeable/;

/**
 * Whether the same command may succeed soon: the connection has just ended, the server is starting and loads its data,
 * or a Cluster client, which sends WAIT to any node that it takes for a master, does not know yet that this one has
 * become a replica.
 */
export function isPassingError(error: unknown): boolean {
  return [JUST_ENDED, LOADING, WAIT_ON_REPLICA].some((pattern) => pattern.test(String(error)));
}

const CONNECTION_CLOSED = /ECONNRESET|EPIPE|Connection is closed|Socket closed|socket hang up/;

/** Why a client is not connected, from its last error. `timeoutMs`: set if the driver waited for so long. */
export function toConnectError(failure: unknown, { isTls }: ClientAddress, timeoutMs?: number): Error {
  const cause = sanitizeError(failure);
  if (cause instanceof RedisStoreError) return cause;
  if (cause instanceof Error && CONNECTION_CLOSED.test(cause.message)) {
    const hint = isTls
      ? "does Redis use TLS on this port (else use redis://)?"
      : "does Redis listen on this port without TLS (else use rediss://), with protected mode off?";
    return new RedisStoreError(`the connection was closed before an answer: ${hint}`, {});
  }
  // a cluster client reports only "timeout"
  const isSilent = !(cause instanceof Error) || cause.message === "timeout";
  if (timeoutMs === undefined && !isSilent) return cause;
  const summary = timeoutMs === undefined ? "redis: not reached" : `redis: not reached within ${timeoutMs} ms`;
  if (!isSilent) return new Error(`${summary}: ${cause.message}`, { cause });
  // a server without TLS takes the TLS handshake for the beginning of a command and waits for the rest
  const hint = isTls
    ? "does Redis use TLS on this port (else use redis://)?"
    : "is the server loading its data, or blocked by a firewall?";
  return new Error(`${summary}, no answer: ${hint}`);
}

/** The error of open(): with the server's address, and fatal if a retry is useless. */
export function toOpenError(error: unknown, { label, isViaSentinel }: ClientAddress, isCluster: boolean): unknown {
  if (!(error instanceof Error)) return error;
  const addLabel = (message: string): string =>
    label === "" ? message : message.replace(/^redis(?=: )/, `redis ${label}`);
  if (error instanceof StoreRefusedError) {
    error.message = addLabel(error.message);
    return error;
  }
  for (let cause: unknown = error; cause instanceof Error; cause = cause.cause) {
    // during a fail-over the Sentinels, or the nodes, soon name the new master
    const isTransient = (isViaSentinel && REPLICA.test(cause.message)) || (isCluster && isMovedError(cause));
    if (cause instanceof RedisStoreError && cause.isFatal && !isTransient)
      return new StoreRefusedError(addLabel(cause.message));
  }
  error.message = addLabel(error.message);
  return error;
}

function explainMissingPermission(message: string, command = /'([^']+)'/.exec(message)?.[1] ?? ""): string {
  if (/channels?\b/.test(message)) {
    return "this user may not access Holdfast's channels (NOPERM): grant &PREFIX:*, by default &holdfast:*";
  }
  if (/\bkeys?\b/.test(message)) {
    return "this user may not access Holdfast's keys (NOPERM): grant ~PREFIX:*, by default ~holdfast:*";
  }
  if (command === "")
    return "this user lacks a right that Holdfast's scripts need (NOPERM): holdfast doctor shows which";
  return `this user has no right to ${command.toUpperCase()} (NOPERM): grant +${command.toLowerCase()}`;
}

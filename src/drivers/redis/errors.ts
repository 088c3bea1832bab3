/** Explains errors of Redis: what is wrong and what to do, without script digests, claim ids and passwords. */

import { FatalDriverError } from "../../errors.ts";
import type { ClientAddress } from "./clients/types.ts";

interface KnownError {
  /** Matches the message of the server or the client library. */
  readonly pattern: RegExp;
  readonly message: string | ((match: RegExpExecArray) => string);
  /** A retry is useless while a driver opens. Later it is not: the server may recover. */
  readonly isFatal?: true;
  /** A retry is useless, too, but no Redis was reached that could have refused: not a FatalDriverError. */
  readonly isNotRedis?: true;
}

const CLUSTER_MESSAGE =
  "this server belongs to a Redis Cluster: pass a cluster client, or a URL redis+cluster://host,host";
const UNTRUSTED_CERTIFICATE =
  /(self-signed certificate|unable to (?:verify the first|get (?:local )?issuer) certificate)/;

const LOADING = /\bLOADING\b/;
const REPLICA = /\b(READONLY|MASTERDOWN)\b/;

/** The first match counts. The server's error code stays in brackets: users find it in the documentation of Redis. */
const KNOWN_ERRORS: readonly KnownError[] = [
  {
    pattern: /\bOOM\b/,
    message:
      "the server's memory is full (OOM): new locks are refused, held locks continue; raise maxmemory, or use a separate server for locks",
  },
  {
    pattern: /\bMISCONF\b/,
    message:
      "the server refuses writes because its last save to disk failed (MISCONF): check its log and free disk space",
  },
  {
    pattern: /\bNOREPLICAS\b/,
    message:
      "the server refuses writes because too few replicas are connected (NOREPLICAS): check its setting min-replicas-to-write",
  },
  {
    pattern: REPLICA,
    message: ([word]) =>
      `this is a replica (${word}): connect to the master, or through Sentinels with a URL redis+sentinel://host,host/master`,
    isFatal: true,
  },
  { pattern: LOADING, message: "the server is still loading its data (LOADING): try again later" },
  {
    pattern: /\bBUSY\b/,
    message: "a script of another program blocks the server (BUSY): SCRIPT KILL ends it",
  },
  {
    pattern: /\bCLUSTERDOWN\b/,
    message: "the cluster is down (CLUSTERDOWN): a hash slot has no owner, or most masters are unreachable",
  },
  {
    pattern: /\bNOAUTH\b/,
    message: "the server requires a password (NOAUTH): set user and password, in a URL redis://user:password@host",
    isFatal: true,
  },
  {
    pattern: /\bWRONGPASS\b|invalid password/,
    message: "the user or password is wrong, or the user is disabled (WRONGPASS): check ACL LIST on the server",
    isFatal: true,
  },
  {
    pattern: /\bDENIED\b/,
    message:
      "the server is in protected mode and accepts only local connections (DENIED): set a password, and create a user for locks",
    isFatal: true,
  },
  { pattern: /\b(?:MOVED|CROSSSLOT)\b/, message: CLUSTER_MESSAGE, isFatal: true },
  {
    pattern: /cluster support disabled/,
    message: "this server does not belong to a Redis Cluster: pass a client for a single server, or a URL redis://host",
    isFatal: true,
  },
  {
    pattern: /unknown command.{1,2}sentinel/i,
    message: "this is a Redis server, not a Sentinel: name the Sentinels (port 26379), or use a URL redis://host",
    isFatal: true,
  },
  {
    pattern: /\bDB index\b/,
    message:
      "the database does not exist (DB index is out of range): choose a lower number, or raise the server's setting databases",
    isFatal: true,
  },
  {
    pattern: UNTRUSTED_CERTIFICATE,
    message: ([word]) => `the server's certificate is not trusted (${word}): name its CA with ?ca=FILE in the URL`,
    isFatal: true,
  },
  {
    pattern: /does not match certificate's altnames/,
    message:
      "the server's certificate is for another host name: set the expected name with ?servername=NAME in the URL",
    isFatal: true,
  },
  { pattern: /certificate has expired/, message: "the server's certificate has expired: replace it", isFatal: true },
  {
    pattern: /alert certificate required|alert handshake failure/,
    message:
      "the server requires a client certificate, which a URL cannot name: pass a client of your own (tls: { cert, key })",
    isFatal: true,
  },
  {
    pattern: /wrong version number|packet length too long/,
    message: "this port does not use TLS: connect without it, with redis:// instead of rediss:// in a URL",
    isFatal: true,
  },
  {
    // a Holdfast server begins every frame with this bracket: clients report its code or the character
    pattern: /Unknown RESP type 123\b|Protocol error, got "\{"/,
    message: "this is not a Redis server, but probably a Holdfast server: use a URL holdfast://host",
    isNotRedis: true,
  },
  {
    pattern: /Unknown RESP type|Protocol error/,
    message: "this is not a Redis server: check host and port",
    isNotRedis: true,
  },
  // the error with which ioredis fails every pending command
  { pattern: /max retries per request/, message: "the connection broke before the reply arrived" },
];

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

/** Whether the user lacks a permission. */
export function isPermissionError(error: unknown): boolean {
  return PERMISSION_ERROR.test(String(error));
}

/** Whether the server does not know the digest of the script. */
export function isNoScriptError(error: unknown): boolean {
  return /no_?script/i.test(String(error));
}

/** Null if the error is not in the table. `command`: the refused command, if the message does not name it. */
export function explainError(message: string, command?: string): Error | null {
  if (PERMISSION_ERROR.test(message))
    return new RedisStoreError(explainMissingPermission(message, command), { isFatal: true });
  for (const { pattern, message: explanation, ...flags } of KNOWN_ERRORS) {
    const match = pattern.exec(message);
    if (match !== null)
      return new RedisStoreError(typeof explanation === "string" ? explanation : explanation(match), flags);
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

/** Whether the server is starting and loads its data. */
export function isLoadingError(error: unknown): boolean {
  return LOADING.test(String(error));
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
export function toOpenError(error: unknown, { label, isViaSentinel }: ClientAddress): unknown {
  if (!(error instanceof Error)) return error;
  const addLabel = (message: string): string =>
    label === "" ? message : message.replace(/^redis(?=: )/, `redis ${label}`);
  if (error instanceof FatalDriverError) {
    error.message = addLabel(error.message);
    return error;
  }
  for (let cause: unknown = error; cause instanceof Error; cause = cause.cause) {
    // during a fail-over the Sentinels soon name the new master
    const isTransient = isViaSentinel && REPLICA.test(cause.message);
    if (cause instanceof RedisStoreError && cause.isFatal && !isTransient)
      return new FatalDriverError(addLabel(cause.message));
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

/** What goes wrong with a Redis, in plain words: what it is, and what to do. No digest of a script, no id, no password. */

import { FatalDriverError } from "../../errors.ts";
import type { ClientAddress } from "./clients/address.ts";

interface KnownError {
  /** How the server, or a client library, says it. */
  readonly pattern: RegExp;
  readonly message: string | ((match: RegExpExecArray) => string);
  /** While a driver opens asking again is useless. Later the server may become again what it was. */
  readonly isFatal?: true;
  /** The same, but it is no refusal: nothing that could refuse was reached. */
  readonly isNotRedis?: true;
}

const CLUSTER_MESSAGE =
  "this server belongs to a Redis Cluster: give a client of the Cluster, or a url redis+cluster://host,host";
const UNTRUSTED_CERTIFICATE =
  /(self-signed certificate|unable to (?:verify the first|get (?:local )?issuer) certificate)/;

const LOADING = /\bLOADING\b/;
const REPLICA = /\b(READONLY|MASTERDOWN)\b/;

/** The first that fits. The server's own word for it stays in brackets: it is what its documentation knows. */
const KNOWN_ERRORS: readonly KnownError[] = [
  {
    pattern: /\bOOM\b/,
    message:
      "its memory is full (OOM): no new lock is granted, held ones go on; raise maxmemory, or give locks a server of their own",
  },
  {
    pattern: /\bMISCONF\b/,
    message: "it takes no writes since it could not save to its disk (MISCONF): look at its log and the space there",
  },
  {
    pattern: /\bNOREPLICAS\b/,
    message:
      "it takes no writes while too few replicas are connected (NOREPLICAS): see its setting min-replicas-to-write",
  },
  {
    pattern: REPLICA,
    message: ([word]) =>
      `this is a replica (${word}): connect to the master, or let Sentinels name it, redis+sentinel://host,host/master`,
    isFatal: true,
  },
  { pattern: LOADING, message: "it is still loading its data (LOADING): it will answer when it has" },
  {
    pattern: /\bBUSY\b/,
    message: "a script that is none of ours has run for too long there (BUSY): SCRIPT KILL ends it",
  },
  {
    pattern: /\bCLUSTERDOWN\b/,
    message: "the Cluster is not whole (CLUSTERDOWN): a slot is served by nobody, or most masters are away",
  },
  {
    pattern: /\bNOAUTH\b/,
    message:
      "it asks for a password and was given none (NOAUTH): name user and password, in a url redis://user:password@host",
    isFatal: true,
  },
  {
    pattern: /\bWRONGPASS\b|invalid password/,
    message: "user or password is wrong, or the user is switched off (WRONGPASS): see ACL LIST there",
    isFatal: true,
  },
  {
    pattern: /\bDENIED\b/,
    message:
      "it is in protected mode and takes connections of its own machine only (DENIED): give it a password, and locks a user of their own",
    isFatal: true,
  },
  { pattern: /\b(?:MOVED|CROSSSLOT)\b/, message: CLUSTER_MESSAGE, isFatal: true },
  {
    pattern: /cluster support disabled/,
    message: "this server is in no Redis Cluster: give a client of a single server, or a url redis://host",
    isFatal: true,
  },
  {
    pattern: /unknown command.{1,2}sentinel/i,
    message:
      "no Sentinel answers there but a server: name the Sentinels (port 26379), or the server by a url redis://host",
    isFatal: true,
  },
  {
    pattern: /\bDB index\b/,
    message: "it has no such database (DB index is out of range): name a lower one, or raise its setting databases",
    isFatal: true,
  },
  {
    pattern: UNTRUSTED_CERTIFICATE,
    message: ([word]) => `its certificate is not trusted (${word}): name its authority, in a url ?ca=FILE`,
    isFatal: true,
  },
  {
    pattern: /does not match certificate's altnames/,
    message:
      "its certificate bears another name than the one it was reached by: say which is meant, in a url ?servername=NAME",
    isFatal: true,
  },
  { pattern: /certificate has expired/, message: "its certificate has expired: it needs a new one", isFatal: true },
  {
    pattern: /alert certificate required|alert handshake failure/,
    message:
      "it wants a certificate of its clients, which a url cannot name: give a client of your own (tls: { cert, key })",
    isFatal: true,
  },
  {
    pattern: /wrong version number|packet length too long/,
    message: "no TLS is spoken at this port: connect without it, in a url redis:// and not rediss://",
    isFatal: true,
  },
  {
    // the bracket that every frame of a lock server of ours begins with: as its code, or as it is
    pattern: /Unknown RESP type 123\b|Protocol error, got "\{"/,
    message: "what answers there is not Redis, but seems to be a Holdfast server: its urls begin with holdfast://",
    isNotRedis: true,
  },
  {
    pattern: /Unknown RESP type|Protocol error/,
    message: "what answers there is not Redis: check host and port",
    isNotRedis: true,
  },
  // what ioredis says of each command that was under way
  { pattern: /max retries per request/, message: "the connection broke before it was answered" },
];

const SCRIPT_SHA = /,? script: [0-9a-f]{40}(?:, on @user_script:\d+)?\.?/;
const PERMISSION_ERROR = /\bNOPERM\b|no permissions|executing the script can't|ACL failure in script/i;

/** What a server or a client library said, in our words. */
class RedisStoreError extends Error {
  /** Tools take an error with a code for an answer. */
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

/** Does this user lack a right to it? */
export function isPermissionError(error: unknown): boolean {
  return PERMISSION_ERROR.test(String(error));
}

/** Does the server not have the script of that digest? */
export function isNoScriptError(error: unknown): boolean {
  return /no_?script/i.test(String(error));
}

/** In our words, if we have any for it. `command`: the one that was refused, where the message does not name it. */
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
 * The error of a server or a client library in plain words, without what it carries of the command: ids and passwords are
 * secrets, and ioredis hangs all words of a command on the error.
 */
export function sanitizeError(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof RedisStoreError) return error;
  // that of the last node asked says why none will do
  const { lastNodeError } = error as { readonly lastNodeError?: unknown };
  const { name, message, code } = (lastNodeError instanceof Error ? lastNodeError : error) as NodeJS.ErrnoException;
  const knownError = explainError(message);
  if (knownError !== null) return knownError;
  return Object.assign(new Error(message.replace(SCRIPT_SHA, "")), { name }, code === undefined ? {} : { code });
}

/** Does it say what waiting does not change? */
export function isPermanentError(error: unknown): boolean {
  const sanitized = sanitizeError(error);
  return sanitized instanceof RedisStoreError && (sanitized.isFatal || sanitized.isNotRedis);
}

/** Does a server say that it is starting? */
export function isLoadingError(error: unknown): boolean {
  return LOADING.test(String(error));
}

const CONNECTION_CLOSED = /ECONNRESET|EPIPE|Connection is closed|Socket closed|socket hang up/;

/** Why a client is not connected, given what it said last. `timeoutMs`: it was waited for so long. */
export function toConnectError(failure: unknown, { isTls }: ClientAddress, timeoutMs?: number): Error {
  const cause = sanitizeError(failure);
  if (cause instanceof RedisStoreError) return cause;
  if (cause instanceof Error && CONNECTION_CLOSED.test(cause.message)) {
    const hint = isTls ? "with TLS (else redis://)" : "without TLS (else rediss://), and not in protected mode";
    return new RedisStoreError(
      `the connection was closed before it was answered: does Redis listen there, ${hint}?`,
      {},
    );
  }
  // a client of a Cluster says only that
  const isSilent = !(cause instanceof Error) || cause.message === "timeout";
  if (timeoutMs === undefined && !isSilent) return cause;
  const summary = timeoutMs === undefined ? "redis: not reached" : `redis: not reached within ${timeoutMs} ms`;
  if (!isSilent) return new Error(`${summary}: ${cause.message}`, { cause });
  // a server without TLS takes its beginning for that of a command, and waits for the rest
  const guess = isTls ? "is TLS spoken at this port (else redis://)?" : "is it loading its data, or behind a firewall?";
  return new Error(`${summary}, nothing answers: ${guess}`);
}

/** What is told of a failure while a driver opens: where it is, and whether asking again is useless. */
export function toOpenError(error: unknown, { label, isViaSentinel }: ClientAddress): unknown {
  if (!(error instanceof Error)) return error;
  const addLabel = (message: string): string =>
    label === "" ? message : message.replace(/^redis(?=: )/, `redis ${label}`);
  if (error instanceof FatalDriverError) {
    error.message = addLabel(error.message);
    return error;
  }
  for (let cause: unknown = error; cause instanceof Error; cause = cause.cause) {
    // Sentinels that are changing the roles name the new master in a moment
    const isTransient = isViaSentinel && REPLICA.test(cause.message);
    if (cause instanceof RedisStoreError && cause.isFatal && !isTransient)
      return new FatalDriverError(addLabel(cause.message));
  }
  error.message = addLabel(error.message);
  return error;
}

function explainMissingPermission(message: string, command = /'([^']+)'/.exec(message)?.[1] ?? ""): string {
  if (/channels?\b/.test(message)) {
    return "this user may not use our channels (NOPERM): grant &PREFIX:*, by default &holdfast:*";
  }
  if (/\bkeys?\b/.test(message)) {
    return "this user may not use our keys (NOPERM): grant ~PREFIX:*, by default ~holdfast:*";
  }
  if (command === "") return "this user lacks a right that our scripts need (NOPERM): holdfast doctor tells which";
  return `this user has no right to ${command.toUpperCase()} (NOPERM): grant +${command.toLowerCase()}`;
}

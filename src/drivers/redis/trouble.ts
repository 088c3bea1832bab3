/** What goes wrong with a Redis, in plain words: what it is, and what to do. No digest of a script, no id, no password. */

import { FatalDriverError } from "../../errors.ts";
import type { Address } from "./client/address.ts";

interface Trouble {
  /** How the server, or a client library, says it. */
  readonly sign: RegExp;
  readonly says: string | ((found: RegExpExecArray) => string);
  /** While a driver opens asking again is useless. Later the server may become again what it was. */
  readonly isFatal?: true;
  /** The same, but it is no refusal: nothing that could refuse was reached. */
  readonly isElsewhere?: true;
}

const CLUSTERED =
  "this server belongs to a Redis Cluster: give a client of the Cluster, or a url redis+cluster://host,host";
const CERTIFICATE = /(self-signed certificate|unable to (?:verify the first|get (?:local )?issuer) certificate)/;

const LOADING = /\bLOADING\b/;
const REPLICA = /\b(READONLY|MASTERDOWN)\b/;

/** The first that fits. The server's own word for it stays in brackets: it is what its documentation knows. */
const TROUBLES: readonly Trouble[] = [
  {
    sign: /\bOOM\b/,
    says: "its memory is full (OOM): no new lock is granted, held ones go on; raise maxmemory, or give locks a server of their own",
  },
  {
    sign: /\bMISCONF\b/,
    says: "it takes no writes since it could not save to its disk (MISCONF): look at its log and the space there",
  },
  {
    sign: /\bNOREPLICAS\b/,
    says: "it takes no writes while too few replicas are connected (NOREPLICAS): see its setting min-replicas-to-write",
  },
  {
    sign: REPLICA,
    says: ([word]) =>
      `this is a replica (${word}): connect to the master, or let Sentinels name it, redis+sentinel://host,host/master`,
    isFatal: true,
  },
  { sign: LOADING, says: "it is still loading its data (LOADING): it will answer when it has" },
  { sign: /\bBUSY\b/, says: "a script that is none of ours has run for too long there (BUSY): SCRIPT KILL ends it" },
  {
    sign: /\bCLUSTERDOWN\b/,
    says: "the Cluster is not whole (CLUSTERDOWN): a slot is served by nobody, or most masters are away",
  },
  {
    sign: /\bNOAUTH\b/,
    says: "it asks for a password and was given none (NOAUTH): name user and password, in a url redis://user:password@host",
    isFatal: true,
  },
  {
    sign: /\bWRONGPASS\b|invalid password/,
    says: "user or password is wrong, or the user is switched off (WRONGPASS): see ACL LIST there",
    isFatal: true,
  },
  {
    sign: /\bDENIED\b/,
    says: "it is in protected mode and takes connections of its own machine only (DENIED): give it a password, and locks a user of their own",
    isFatal: true,
  },
  { sign: /\b(?:MOVED|CROSSSLOT)\b/, says: CLUSTERED, isFatal: true },
  {
    sign: /cluster support disabled/,
    says: "this server is in no Redis Cluster: give a client of a single server, or a url redis://host",
    isFatal: true,
  },
  {
    sign: /unknown command.{1,2}sentinel/i,
    says: "no Sentinel answers there but a server: name the Sentinels (port 26379), or the server by a url redis://host",
    isFatal: true,
  },
  {
    sign: /\bDB index\b/,
    says: "it has no such database (DB index is out of range): name a lower one, or raise its setting databases",
    isFatal: true,
  },
  {
    sign: CERTIFICATE,
    says: ([word]) => `its certificate is not trusted (${word}): name its authority, in a url ?ca=FILE`,
    isFatal: true,
  },
  {
    sign: /does not match certificate's altnames/,
    says: "its certificate bears another name than the one it was reached by: say which is meant, in a url ?servername=NAME",
    isFatal: true,
  },
  { sign: /certificate has expired/, says: "its certificate has expired: it needs a new one", isFatal: true },
  {
    sign: /alert certificate required|alert handshake failure/,
    says: "it wants a certificate of its clients, which a url cannot name: give a client of your own (tls: { cert, key })",
    isFatal: true,
  },
  {
    sign: /wrong version number|packet length too long/,
    says: "no TLS is spoken at this port: connect without it, in a url redis:// and not rediss://",
    isFatal: true,
  },
  {
    // the bracket that every frame of a lock server of ours begins with: as its code, or as it is
    sign: /Unknown RESP type 123\b|Protocol error, got "\{"/,
    says: "what answers there is not Redis, but seems to be a Holdfast server: its urls begin with holdfast://",
    isElsewhere: true,
  },
  {
    sign: /Unknown RESP type|Protocol error/,
    says: "what answers there is not Redis: check host and port",
    isElsewhere: true,
  },
  // what ioredis says of each command that was under way
  { sign: /max retries per request/, says: "the connection broke before it was answered" },
];

const SCRIPT = /,? script: [0-9a-f]{40}(?:, on @user_script:\d+)?\.?/;
const LACKING = /\bNOPERM\b|no permissions|executing the script can't|ACL failure in script/i;

/** What a server or a client library said, in our words. */
class SaidError extends Error {
  /** Tools take an error with a code for an answer. */
  readonly code = "REDIS";
  readonly isFatal: boolean;
  readonly isElsewhere: boolean;
  constructor(says: string, { isFatal = false, isElsewhere = false }: { isFatal?: boolean; isElsewhere?: boolean }) {
    super(`redis: ${says}`);
    this.name = "Error";
    this.isFatal = isFatal;
    this.isElsewhere = isElsewhere;
  }
}

/** Does this user lack a right to it? */
export function isRefusal(error: unknown): boolean {
  return LACKING.test(String(error));
}

/** Does the server not have the script of that digest? */
export function isUnknownScript(error: unknown): boolean {
  return /no_?script/i.test(String(error));
}

/** In our words, if we have any for it. `command`: the one that was refused, where the message does not name it. */
export function inWords(message: string, command?: string): Error | null {
  if (LACKING.test(message)) return new SaidError(lacking(message, command), { isFatal: true });
  for (const { sign, says, ...ends } of TROUBLES) {
    const found = sign.exec(message);
    if (found !== null) return new SaidError(typeof says === "string" ? says : says(found), ends);
  }
  return null;
}

/**
 * The error of a server or a client library in plain words, without what it carries of the command: ids and passwords are
 * secrets, and ioredis hangs all words of a command on the error.
 */
export function plain(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof SaidError) return error;
  // that of the last node asked says why none will do
  const { lastNodeError } = error as { readonly lastNodeError?: unknown };
  const { name, message, code } = (lastNodeError instanceof Error ? lastNodeError : error) as NodeJS.ErrnoException;
  const said = inWords(message);
  if (said !== null) return said;
  return Object.assign(new Error(message.replace(SCRIPT, "")), { name }, code === undefined ? {} : { code });
}

/** Does it say what waiting does not change? */
export function isHopeless(error: unknown): boolean {
  const said = plain(error);
  return said instanceof SaidError && (said.isFatal || said.isElsewhere);
}

/** Does a server say that it is starting? */
export function isLoading(error: unknown): boolean {
  return LOADING.test(String(error));
}

const CLOSED = /ECONNRESET|EPIPE|Connection is closed|Socket closed|socket hang up/;

/** Why a client is not connected, given what it said last. `withinMs`: it was waited for so long. */
export function notReached(failure: unknown, { isTls }: Address, withinMs?: number): Error {
  const why = plain(failure);
  if (why instanceof SaidError) return why;
  if (why instanceof Error && CLOSED.test(why.message)) {
    const how = isTls ? "with TLS (else redis://)" : "without TLS (else rediss://), and not in protected mode";
    return new SaidError(`the connection was closed before it was answered: does Redis listen there, ${how}?`, {});
  }
  // a client of a Cluster says only that
  const isSilent = !(why instanceof Error) || why.message === "timeout";
  if (withinMs === undefined && !isSilent) return why;
  const late = withinMs === undefined ? "redis: not reached" : `redis: not reached within ${withinMs} ms`;
  if (!isSilent) return new Error(`${late}: ${why.message}`, { cause: why });
  // a server without TLS takes its beginning for that of a command, and waits for the rest
  const guess = isTls ? "is TLS spoken at this port (else redis://)?" : "is it loading its data, or behind a firewall?";
  return new Error(`${late}, nothing answers: ${guess}`);
}

/** What is told of a failure while a driver opens: where it is, and whether asking again is useless. */
export function openingError(error: unknown, { place, isNamed }: Address): unknown {
  if (!(error instanceof Error)) return error;
  const at = (message: string): string => (place === "" ? message : message.replace(/^redis(?=: )/, `redis ${place}`));
  if (error instanceof FatalDriverError) {
    error.message = at(error.message);
    return error;
  }
  for (let cause: unknown = error; cause instanceof Error; cause = cause.cause) {
    // Sentinels that are changing the roles name the new master in a moment
    const passes = isNamed && REPLICA.test(cause.message);
    if (cause instanceof SaidError && cause.isFatal && !passes) return new FatalDriverError(at(cause.message));
  }
  error.message = at(error.message);
  return error;
}

function lacking(message: string, command = /'([^']+)'/.exec(message)?.[1] ?? ""): string {
  if (/channels?\b/.test(message)) {
    return "this user may not use our channels (NOPERM): grant &PREFIX:*, by default &holdfast:*";
  }
  if (/\bkeys?\b/.test(message)) {
    return "this user may not use our keys (NOPERM): grant ~PREFIX:*, by default ~holdfast:*";
  }
  if (command === "") return "this user lacks a right that our scripts need (NOPERM): holdfast doctor tells which";
  return `this user has no right to ${command.toUpperCase()} (NOPERM): grant +${command.toLowerCase()}`;
}

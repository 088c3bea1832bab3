/** What is asked of a server before the first claim goes there. */

import { FatalDriverError } from "../../errors.ts";
import type { Connection } from "./connection.ts";
import { CLAIM, OPEN, RELEASE, RENEW } from "./scripts.ts";
import { LAYOUT } from "./words.ts";

export interface Names {
  readonly root: string;
  readonly layoutKey: string;
  /** Of our own, any. */
  readonly route: string;
}

export interface Terms {
  readonly connectTimeoutMs: number;
  readonly allowEviction: boolean;
  /** Are replicas waited for? */
  readonly waits: boolean;
}

/**
 * Connects, and sees that this server may keep our locks.
 * @throws FatalDriverError if it may not; Error if it was not reached
 */
export async function opened(connection: Connection, names: Names, terms: Terms): Promise<void> {
  try {
    await connection.connected(terms.connectTimeoutMs);
    await connection.selected(names.route);
    await rights(connection, names);
    // asks whether we may: for none it does not wait
    if (terms.waits) await connection.send(["WAIT", "0", "1"], names.route);
    if (!terms.allowEviction) await eviction(connection, names);
    // else the first call of each would bring its script along, which takes a second trip
    await Promise.all(
      [CLAIM, RENEW, RELEASE].map(({ text }) => optional(connection.send(["SCRIPT", "LOAD", text], names.route))),
    );
    await connection.listening(names.route);
  } catch (error) {
    throw refusal(error) ?? error;
  }
}

async function rights(connection: Connection, { root, layoutKey, route }: Names): Promise<void> {
  const words = ["EVAL", OPEN.text, "1", route, LAYOUT, connection.inboxOf(route), layoutKey, `${root}{00}:p:`];
  const said = await connection.send(words, route);
  if (String(said) === "QUEUED") {
    throw new FatalDriverError("redis: the client is within a MULTI: give a client that nobody uses so");
  }
  const [layout, refused] = said as [unknown, unknown];
  if (String(refused) !== "") throw new FatalDriverError(`redis: ${whyRefused(String(refused), layoutKey)}`);
  if (String(layout) !== LAYOUT) {
    throw new FatalDriverError(
      `redis: ${layoutKey} says that layout ${String(layout).slice(0, 20)} is in use here, and this version knows ${LAYOUT}`,
    );
  }
}

/** `refused`: the command that we may not use, and what the server says to it. */
function whyRefused(refused: string, layoutKey: string): string {
  if (refused.includes("READONLY")) return "this is a replica; connect to the master";
  if (/unknown/i.test(refused))
    return `this server is too old, or was told to refuse a command that is needed: ${refused}`;
  if (refused.includes("WRONGTYPE")) return `${layoutKey} is no key of ours: use another prefix`;
  return `the user lacks a right: ${refused}`;
}

async function eviction(connection: Connection, { route }: Names): Promise<void> {
  const info = String((await optional(connection.send(["INFO", "memory"], route))) ?? "");
  const policy = /maxmemory_policy:(\S+)/.exec(info)?.[1] ?? "noeviction";
  if (policy === "noeviction") return;
  throw new FatalDriverError(
    `redis: maxmemory-policy is ${policy}, so Redis may throw locks away; set noeviction, or allow it with allowEviction`,
  );
}

/** What a user may lack the right to, without harm. */
async function optional(call: Promise<unknown>): Promise<unknown> {
  try {
    return await call;
  } catch (error) {
    if (isRefusal(error)) return null;
    throw error;
  }
}

function isRefusal(error: unknown): boolean {
  return /NOPERM|no permissions/i.test(String(error));
}

const CLUSTERED =
  "this server belongs to a Redis Cluster: give a client of the Cluster, or a url redis+cluster://host,host";

const REASONS: Readonly<Record<string, string>> = {
  MOVED: CLUSTERED,
  CROSSSLOT: CLUSTERED,
  "DB index": "this server has no such database: name a lower one, or raise its setting databases",
};

/** What asking again does not change, as the error that says so. */
function refusal(error: unknown): FatalDriverError | null {
  for (let cause: unknown = error; cause instanceof Error; cause = cause.cause) {
    const said = /\b(?:NOPERM|NOAUTH|WRONGPASS|MOVED|CROSSSLOT|DB index)\b/.exec(cause.message)?.[0];
    if (said === undefined) continue;
    const why = REASONS[said] ?? cause.message;
    return new FatalDriverError(`redis: ${why}`, { cause });
  }
  return null;
}

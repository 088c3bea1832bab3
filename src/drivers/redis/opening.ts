/** What is asked of a server before the first claim goes there. */

import { FatalDriverError } from "../../errors.ts";
import type { Connection } from "./connection.ts";
import { CLAIM, OPEN, RELEASE, RENEW } from "./scripts.ts";
import { inWords, isRefusal, isUnknownScript, openingError } from "./trouble.ts";
import { ALL_BUCKETS, LAYOUT, routeOf } from "./words.ts";

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
 * Connects, and sees that this server may keep our locks. `rest`: what else is asked of it.
 * @throws FatalDriverError if it may not; Error if it was not reached
 */
export async function opened(
  connection: Connection,
  names: Names,
  terms: Terms,
  rest: () => Promise<void>,
): Promise<void> {
  try {
    if (terms.waits && connection.isSilent) throw new FatalDriverError(NO_COUNT);
    await connection.connected(terms.connectTimeoutMs, async () => {
      await examined(connection, names, terms);
      await rest();
    });
  } catch (error) {
    throw openingError(error, connection.address);
  }
}

async function examined(connection: Connection, names: Names, terms: Terms): Promise<void> {
  await connection.selected(names.route);
  await rights(connection, names);
  // asks whether we may: for none it does not wait
  if (terms.waits) await connection.send(["WAIT", "0", "1"], names.route);
  if (!terms.allowEviction) await eviction(connection, names);
  // else the first call of each would bring its script along, which takes a second trip
  await Promise.all([
    digests(connection, names),
    ...[CLAIM, RENEW, RELEASE].map(({ text }) => optional(connection.send(["SCRIPT", "LOAD", text], names.route))),
  ]);
  await connection.listening(names.route);
}

const NO_COUNT =
  "redis: option replicas needs ioredis, iovalkey or redis (node-redis): valkey-glide does not tell whose writes replicas have";

/** No script has it. */
const NO_DIGEST = "0".repeat(40);

async function rights(connection: Connection, { root, layoutKey, route }: Names): Promise<void> {
  const words = ["EVAL", OPEN.text, "1", route, LAYOUT, connection.inboxOf(route), layoutKey, `${root}{00}:p:`];
  const said = await connection.send(words, route);
  if (String(said) === "QUEUED") {
    throw new FatalDriverError("redis: the client is within a MULTI: give a client that nobody uses so");
  }
  const [layout, refused] = said as [unknown, unknown];
  if (String(refused) !== "") throw whyRefused(String(refused), layoutKey);
  if (String(layout) !== LAYOUT) {
    throw new FatalDriverError(
      `redis: ${layoutKey} says that layout ${String(layout).slice(0, 20)} is in use here, and this version knows ${LAYOUT}`,
    );
  }
}

/** `refused`: the command that we may not use, and what the server says to it. */
function whyRefused(refused: string, layoutKey: string): Error {
  const said = inWords(refused, /^\w+/.exec(refused)?.[0]);
  if (said !== null) return said;
  const why = /unknown/i.test(refused)
    ? `this server is too old, or was told to refuse a command that is needed: ${refused}`
    : refused.includes("WRONGTYPE")
      ? `${layoutKey} is no key of ours: use another prefix`
      : `it refuses a command that is needed: ${refused}`;
  return new FatalDriverError(`redis: ${why}`);
}

/** Scripts are run by their digests, which is a right of its own. */
async function digests(connection: Connection, { route }: Names): Promise<void> {
  await connection.send(["EVALSHA", NO_DIGEST, "1", route], route).catch((error: unknown) => {
    if (!isUnknownScript(error)) throw error;
  });
}

/** By a script: a client library sends a command that names no key to any node. */
const MEMORY = "return redis.call('INFO', 'memory')";

async function eviction(connection: Connection, { root }: Names): Promise<void> {
  const routes = connection.oneEach(ALL_BUCKETS.map((bucket) => routeOf(root, bucket)));
  const infos = await Promise.all(routes.map((one) => optional(connection.send(["EVAL", MEMORY, "1", one], one))));
  const policies = infos.map((info) => /maxmemory_policy:(\S+)/.exec(String(info))?.[1] ?? "noeviction");
  const policy = policies.find((one) => one !== "noeviction");
  if (policy === undefined) return;
  throw new FatalDriverError(
    `redis: maxmemory-policy is ${policy}, so it may throw locks away when memory is full: set noeviction, or allow it (option allowEviction)`,
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

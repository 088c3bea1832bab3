/** fenceRedis(): a script of the user that runs only if no later holder has run one. */

import { StoreRefusedError } from "../errors.ts";
import { stringRule, validateOptions } from "../util/validate.ts";
import { createStaleLockError } from "./errors.ts";
import type { FencedLock } from "./locks.ts";
import { readGrants } from "./locks.ts";

/** What to run. */
export interface RedisFenceOptions {
  /** Lua, as for EVAL. It sees `keys` as KEYS and `args` as ARGV. */
  readonly script: string;
  /** The keys that the script uses. Default: none. */
  readonly keys?: readonly string[];
  /** The arguments of the script. Default: none. */
  readonly args?: readonly string[];
  /**
   * The key that has the tokens. In a Cluster it must be in the slot of `keys`. All programs that write the same data use the
   * same one. Default "holdfast:fence:" and the key of the lock with its prefix.
   */
  readonly fenceKey?: string;
}

const STALE = "HOLDFAST_STALE";
const UNKNOWN_COMMAND = /unknown command/i;

/**
 * The same rule as in a database, in one script, which Redis runs without interruption: field e has the highest token of
 * an exclusive lock, field s that of readers and semaphore holders. Tokens are compared as text, since Lua rounds above 2^53.
 */
const PRELUDE = `
local own = ARGV[1]
local function isNewer(token)
  return token and (#token > #own or (#token == #own and token > own))
end
local exclusive, shared = redis.call('HGET', KEYS[1], 'e'), redis.call('HGET', KEYS[1], 's')
if isNewer(exclusive) or (ARGV[2] == 'e' and isNewer(shared)) then return redis.error_reply('${STALE}') end
if ARGV[2] == 'e' or not isNewer(shared) then redis.call('HSET', KEYS[1], ARGV[2], own) end
table.remove(KEYS, 1)
table.remove(ARGV, 1)
table.remove(ARGV, 1)
`;

/**
 * Runs the script of the user. Its result is inside an array, so that it differs from "QUEUED", the reply in a transaction;
 * only an error is an error there, too.
 */
const wrapScript = (script: string): string => `${PRELUDE}
local result = (function()\n${script}\nend)()
if type(result) == 'table' and result.err then return result end
return {result}`;

const listRule = (value: unknown): string | null =>
  Array.isArray(value) && value.every((one) => typeof one === "string") ? null : "an array of strings";

/**
 * Runs a script on Redis, unless a later holder of the lock has run one: the check and the script are one step. The key
 * of the tokens is never deleted, so Redis must not evict keys.
 * @param client ioredis, iovalkey or redis (node-redis)
 * @param lock a lock with one key
 * @returns what the script returns
 * @throws StaleLockError if a later holder was there first: the script did not run; LockLostError, UnsupportedError and
 *   TypeError before anything is sent; StoreRefusedError if the client is inside a MULTI transaction, which has the script now,
 *   or if the server does not have EVAL; the error of the client, after which the script may have run
 */
export async function fenceRedis(client: unknown, lock: FencedLock, options: RedisFenceOptions): Promise<unknown> {
  validateOptions(
    "fenceRedis",
    options,
    { script: stringRule, keys: listRule, args: listRule, fenceKey: stringRule },
    { required: ["script"] },
  );
  const send = findSender(client);
  const [grant, ...others] = readGrants(lock);
  if (grant === undefined || others.length > 0) throw new TypeError("lock must have one key: pass a lock of that key");
  const { script, keys = [], args = [], fenceKey = `holdfast:fence:${grant.storeKey}` } = options;
  const mode = grant.isExclusive ? "e" : "s";
  const command = [
    "EVAL",
    wrapScript(script),
    String(keys.length + 1),
    fenceKey,
    ...keys,
    String(grant.token),
    mode,
    ...args,
  ];
  const reply = await send(command, fenceKey).catch((error: unknown) => {
    const message = String((error as { readonly message?: unknown }).message);
    if (message.includes(STALE)) throw createStaleLockError(grant.key, grant.token);
    // it quotes the script
    if (UNKNOWN_COMMAND.test(message)) throw new StoreRefusedError(NO_EVAL);
    throw error;
  });
  if (!Array.isArray(reply)) throw new StoreRefusedError(INSIDE_MULTI);
  return reply[0] ?? null;
}

const INSIDE_MULTI =
  "fenceRedis: the client is inside a MULTI transaction, which has queued the script: DISCARD it, and pass a client of its own; a script is a transaction by itself";
const NO_EVAL =
  "fenceRedis: the server does not have EVAL (unknown command): it hides the command (rename-command): allow it, or use another server";

type Send = (command: string[], key: string) => Promise<unknown>;

interface RedisLike {
  call?(...command: string[]): Promise<unknown>;
  sendCommand?(...args: unknown[]): Promise<unknown>;
  readonly masters?: unknown;
}

/** What a transaction or a pipeline has that a client does not: in ioredis and node-redis. */
const QUEUE_MEMBERS = ["isPipeline", "execAsPipeline"];

/** @throws TypeError */
function findSender(client: unknown): Send {
  const redis = Object(client) as RedisLike;
  if (QUEUE_MEMBERS.some((member) => member in redis)) {
    throw new TypeError(
      "client must be a Redis client, not a transaction or pipeline, which would only queue the script",
    );
  }
  if (typeof redis.call === "function") return (command) => redis.call?.(...command) as Promise<unknown>;
  if (typeof redis.sendCommand !== "function") {
    throw new TypeError("client must be a Redis client: ioredis, iovalkey or redis (node-redis)");
  }
  const sendCommand = redis.sendCommand.bind(redis);
  // a Cluster of node-redis
  if (Array.isArray(redis.masters)) return (command, key) => sendCommand(key, false, command);
  return (command) => sendCommand(command);
}

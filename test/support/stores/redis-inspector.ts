// The raw state of a Redis: every key of ours in every database, read by one script, so at one moment, and
// understood here without the driver (whose scripts may be what is wrong). Its formats: src/drivers/redis/lua/lib/prelude.lua and records.lua.
//
// Exceptions by name: the layout key and the birth record have no end; an index may name keys without places and a counter may
// stand alone, since both go only some time after their last use; what is left of a claim that has ended ("x released": a
// tombstone) has no place, and ends within one ttl of it.

import type { ChildProcess } from "node:child_process";
import { Redis } from "ioredis";
import type { StoredEntry, StoreView } from "./store-inspector.ts";
import { findViolations } from "./store-inspector.ts";

/** ARGV: a pattern of keys, then the numbers of databases. Gives the time, then a row for each key. */
const SNAPSHOT_SCRIPT = `
  local found = { redis.call('TIME') }
  for at = 2, #ARGV do
    local database = ARGV[at]
    if database ~= '0' then redis.call('SELECT', database) end
    for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
      local kind = redis.call('TYPE', key).ok
      local value = kind == 'zset' and redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
        or kind == 'string' and redis.call('GET', key) or kind
      found[#found + 1] = { database, key, redis.call('PTTL', key), value }
    end
  end
  return found`;

/** "<prefix>:1:{<bucket>}:<kind>" and, of lines and claims, ":<key or id>". */
const KEY_PATTERN = /^(.*):1:\{([0-9a-f]{2})\}:([abcimnpw])(?::(.*))?$/s;
export const ENTRY_PATTERN: RegExp = /^([0-9a-f]{2})(\w+):(\d+):(\d+):(\d+)$/;

interface StoredKey {
  readonly key: string;
  readonly endsInMs: number;
  readonly value: Buffer | readonly (readonly [member: string, score: number])[];
}

export interface StoredRecord {
  readonly key: string;
  readonly expiresAt: number;
  readonly token: number;
  readonly ttl: number;
  readonly tokens: number;
  readonly stage: number;
  readonly unreachableSince: number;
  readonly count: number;
  /** The keys of a claim over several, each with its bucket. */
  readonly holds: readonly (readonly [bucket: string, key: string])[] | null;
}

export interface StoredQueue {
  readonly admitted: readonly (readonly [member: string, score: number])[];
  readonly waiting: readonly (readonly [member: string, score: number])[];
}

/** What stands under one prefix in one database. */
export class Keyspace {
  readonly queues = new Map<string, StoredQueue>();
  readonly records = new Map<string, StoredRecord>();
  readonly ended = new Set<string>();
  readonly indices = new Map<string, Set<string>>();
  readonly counters = new Map<string, number>();

  queueOf(name: string): StoredQueue {
    return this.queues.get(name) ?? { admitted: [], waiting: [] };
  }
}

/** Everything that is wrong with what we keep in a Redis; `prefix`: only of this one. In a Cluster: with one node. */
export async function findRedisViolations(admin: Redis, prefix?: string): Promise<string[]> {
  return findViolations(await readStoreView(admin, prefix));
}

/** Looks at a server that is about to be ended. One that is gone, stopped, or lets only some people in is not looked at. */
export async function inspectRedisServer(port: number, child: ChildProcess): Promise<string[]> {
  if (child.exitCode !== null || child.signalCode !== null) return [];
  const admin = new Redis(port, "127.0.0.1", {
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
    connectTimeout: 1_000,
    commandTimeout: 5_000,
  });
  admin.on("error", () => undefined);
  try {
    if (!/role:master/.test(await admin.info("replication"))) return [];
    return await findRedisViolations(admin);
  } catch (error) {
    if (/NOAUTH|NOPERM|LOADING|Connection is closed|timed out|ECONN/.test(String(error))) return [];
    throw error;
  } finally {
    admin.disconnect();
  }
}

export async function readStoreView(admin: Redis, prefix?: string): Promise<StoreView> {
  const keyspace = await admin.info("keyspace");
  const databases = [...keyspace.matchAll(/^db(\d+):/gm)].map(([, database]) => database as string);
  if (databases.length === 0) return { entries: [], withoutExpiry: [], orphans: [] };
  return toStoreView(await takeSnapshot(admin, databases, prefix));
}

export interface Snapshot {
  /** The server's clock in milliseconds. */
  readonly now: number;
  /** By database and prefix. */
  readonly spaces: ReadonlyMap<string, Keyspace>;
  readonly endless: readonly string[];
}

export async function takeSnapshot(admin: Redis, databases: readonly string[], prefix?: string): Promise<Snapshot> {
  const pattern = prefix === undefined ? "*" : `${prefix.replaceAll(/[*?[\]\\]/g, "\\$&")}:*`;
  const [time, ...rows] = (await admin.callBuffer("EVAL", SNAPSHOT_SCRIPT, "0", pattern, ...databases)) as [
    [Buffer, Buffer],
    ...[Buffer, Buffer, number, Buffer | Buffer[]][],
  ];
  const now = Number(time[0]) * 1_000 + Math.floor(Number(time[1]) / 1_000);
  const spaces = new Map<string, Keyspace>();
  const endless: string[] = [];
  for (const [database, name, endsInMs, value] of rows) {
    const key = name.toString();
    const match = KEY_PATTERN.exec(key);
    if (match === null) continue;
    const [, owner = "", bucket = "", kind = "", rest = ""] = match;
    if (endsInMs === -1 && kind !== "b") endless.push(key);
    const id = `${database} ${owner}`;
    const keyspace = spaces.get(id) ?? new Keyspace();
    spaces.set(id, keyspace);
    sortKey(keyspace, { key, endsInMs, value: Array.isArray(value) ? toPairs(value) : value }, bucket, kind, rest);
  }
  return { now, spaces, endless };
}

export function toStoreView({ now, spaces, endless }: Snapshot): StoreView {
  const orphans: string[] = [];
  const entries: StoredEntry[] = [];
  for (const [id, space] of spaces) inspectKeyspace(space, spaces.size > 1 ? `${id}: ` : "", now, entries, orphans);
  return { entries, withoutExpiry: endless, orphans };
}

function toPairs(values: readonly Buffer[]): (readonly [string, number])[] {
  return Array.from(
    { length: values.length / 2 },
    (_, index) => [String(values[2 * index]), Number(values[2 * index + 1])] as const,
  );
}

function sortKey(keyspace: Keyspace, { key, value }: StoredKey, bucket: string, kind: string, suffix: string): void {
  if (Buffer.isBuffer(value)) {
    if (kind === "n") keyspace.counters.set(bucket, Number(value));
    if (kind !== "c") return;
    if (value.subarray(0, 2).equals(Buffer.from("x "))) keyspace.ended.add(bucket + suffix);
    else keyspace.records.set(bucket + suffix, parseRecord(key, value));
    return;
  }
  if (kind === "i") keyspace.indices.set(bucket, new Set(value.map(([member]) => member)));
  const name = `${bucket}${suffix}`;
  if (kind === "a") keyspace.queues.set(name, { ...keyspace.queueOf(name), admitted: value });
  if (kind === "w") keyspace.queues.set(name, { ...keyspace.queueOf(name), waiting: value });
}

/** Eight numbers, the state, the inbox up to a zero; then when it was placed, waits, arrivals, holds as JSON, the label. */
function parseRecord(key: string, value: Buffer): StoredRecord {
  const number = (index: number): number => value.readDoubleBE(8 * index);
  const inboxEnd = value.indexOf(0, 65);
  const arrivalsFrom = inboxEnd + 1 + 8 + 1;
  const arrivalsEnd = value.indexOf(0, arrivalsFrom);
  const json = value.subarray(arrivalsEnd + 1, value.indexOf(0, arrivalsEnd + 1)).toString();
  const holds = json === "" ? null : (JSON.parse(json) as [string, string, string, string][]);
  return {
    key,
    expiresAt: number(0),
    token: number(1),
    stage: number(2),
    unreachableSince: number(3),
    ttl: number(4),
    tokens: number(5),
    count: number(7),
    holds: holds?.map(([bucket, name]) => [bucket, name] as const) ?? null,
  };
}

function inspectKeyspace(
  keyspace: Keyspace,
  location: string,
  now: number,
  entries: StoredEntry[],
  orphans: string[],
): void {
  /** Where each claim stands: "a<bucket><key>" and "w<bucket><key>". */
  const listsByClaim = new Map<string, Set<string>>();
  for (const [name, { admitted, waiting }] of keyspace.queues) {
    const [bucket, key] = [name.slice(0, 2), name.slice(2)];
    for (const [list, state] of [
      [admitted, "held"],
      [waiting, "waiting"],
    ] as const) {
      for (const [member, score] of list) {
        const [, owner = "", id = "", permits = "", limit = "", ttl = ""] = ENTRY_PATTERN.exec(member) ?? [];
        if (id === "") {
          orphans.push(`${location}${member} in the line of "${key}"`);
          continue;
        }
        const claim = owner + id;
        const lists = listsByClaim.get(claim) ?? new Set<string>();
        listsByClaim.set(claim, lists.add((state === "held" ? "a" : "w") + name));
        // ended, and not looked at since: it counts for nobody, and goes with the key at the latest
        if (state === "held" && score <= now) continue;
        const record = keyspace.records.get(claim);
        const mayHaveEnded = state === "waiting" && score / 1_000 + Number(ttl) <= now;
        if (record === undefined && !mayHaveEnded)
          orphans.push(`${location}the place of ${claim} (${state}) on "${key}"`);
        if (record !== undefined && record.expiresAt <= now) continue;
        if (record?.token === 0 && state === "held" && record.stage === 1) {
          orphans.push(`${location}the place among the admitted of ${claim} on "${key}", for which it waits`);
        }
        const isListed = keyspace.indices.get(bucket)?.has(key) === true;
        if (!isListed) orphans.push(`${location}the line of "${key}", which no index names,`);
        entries.push({
          claim: location + claim,
          key: location + key,
          permits: Number(permits),
          limit: Number(limit),
          state,
        });
      }
    }
  }
  for (const [claim, record] of keyspace.records) {
    // after a step back of the clock a record may say an end that the places do not: nobody believes it
    if (record.expiresAt > now && record.expiresAt <= now + record.ttl)
      inspectRecord(keyspace, location, claim, record, listsByClaim.get(claim) ?? new Set(), orphans);
  }
  for (const claim of keyspace.ended) {
    if (listsByClaim.has(claim)) orphans.push(`${location}the place of ${claim}, which has ended,`);
  }
}

/** A claim that lives stands in all lines that it has entered, and its tokens are counted. */
function inspectRecord(
  keyspace: Keyspace,
  location: string,
  claim: string,
  { key, token, tokens, stage, count, holds }: StoredRecord,
  lists: ReadonlySet<string>,
  orphans: string[],
): void {
  const enteredLocks = holds?.slice(0, stage) ?? null;
  const isWhole =
    enteredLocks === null
      ? lists.size === 1 && [...lists].every((list) => list.startsWith(token > 0 ? "a" : "w"))
      : enteredLocks.every(([bucket, name], at) => {
          return lists.has((at < stage - 1 || token > 0 ? "a" : "w") + bucket + name);
        });
  if (!isWhole) orphans.push(`${location}${key} (stage ${stage} of ${count}, token ${token}), without its places,`);
  for (const bucket of new Set(holds?.map(([one]) => one) ?? [key.slice(key.indexOf("{") + 1).slice(0, 2)])) {
    const last = keyspace.counters.get(bucket) ?? 0;
    if (token > 0 && last < token + tokens - 1) orphans.push(`${location}the token of ${claim}, above its counter,`);
    if (count > 1 && token === 0 && keyspace.indices.get(bucket) === undefined)
      orphans.push(`${location}${key}, unlisted,`);
  }
}

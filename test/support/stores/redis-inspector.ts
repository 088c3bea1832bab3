// The raw state of a Redis: every key of ours in every database, read by one script, so at one moment, and
// understood here without the driver (whose scripts may be what is wrong). Its formats: src/drivers/redis/lua/lib/prelude.lua and records.lua.
//
// Exceptions by name: the layout key and the run record have no end; a hash may contain fields of claims that have ended, which
// weeding finds; a sorted set of admitted entries may stand beside a key that is not in full form, and counts for nothing.

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
        or kind == 'hash' and redis.call('HGETALL', key)
        or kind == 'string' and redis.call('GET', key) or kind
      found[#found + 1] = { database, key, redis.call('PTTL', key), value }
    end
  end
  return found`;

/** "<prefix>:3:{<bucket>}:<kind>" and, of queues, ":<key>". */
const KEY_PATTERN = /^(.*):3:\{([0-9a-f]{2})\}:([abhmpw])(?::(.*))?$/s;
export const ENTRY_PATTERN: RegExp = /^([0-9a-f]{2})(\w+):(\d+):(\d+):(\d+)(:r)?$/;
/** The totals of the admitted entries, which are members of their set. */
const TOTALS: readonly string[] = ["used", "count", "recalling", "time"];
/** After the head of a record. */
const RECORD_PATTERN = /^(\w+) (\d+) (\d+) (\d+) (\d+) (\d+) ([01])([012])\n(.*)\n([^\n]*)\n([^\n]*)\n([^\n]*)$/s;
const HEAD_SIZE = 36;

export interface StoredRecord {
  /** Where it is: the field of its key (thin form), or its own. */
  readonly place: "k" | "c";
  /** In thin form: whether somebody waits. */
  readonly isWaitedFor: boolean;
  readonly id: string;
  readonly expiresAt: number;
  readonly token: number;
  readonly ttl: number;
  readonly permits: number;
  readonly limit: number;
  readonly tokens: number;
  /** The number of queues that it has entered. */
  readonly enteredCount: number;
  readonly unreachableSince: number;
  readonly count: number;
  /** The keys of a claim over several, each with its bucket. */
  readonly locks: readonly (readonly [bucket: string, key: string])[] | null;
}

export interface StoredQueue {
  readonly form: "free" | "thin" | "full";
  /** In thin form the one that its record stands for. */
  readonly admitted: readonly (readonly [member: string, score: number])[];
  readonly waiting: readonly (readonly [member: string, score: number])[];
  /** What the set of the admitted entries says about them. */
  readonly totals?: ReadonlyMap<string, number>;
}

const FREE: StoredQueue = { form: "free", admitted: [], waiting: [] };

/** What stands under one prefix in one database. */
class Keyspace {
  readonly queues = new Map<string, StoredQueue>();
  /** By bucket and id. */
  readonly records = new Map<string, StoredRecord>();
  /** Claims that have both: the record of their key counts. */
  readonly doubled = new Set<string>();
  /** Claims of which a tombstone is left, and when it ends. */
  readonly ended = new Map<string, number>();
  /** Claims over several keys that a bucket lists, as "<key>\0<bucket><id>". */
  readonly listed = new Map<string, Set<string>>();
  readonly counters = new Map<string, number>();

  queueOf(name: string): StoredQueue {
    return this.queues.get(name) ?? FREE;
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
    if (Array.isArray(value)) sortKey(keyspace, value, bucket, kind, rest);
  }
  return { now, spaces, endless };
}

export function toStoreView({ now, spaces, endless }: Snapshot): StoreView {
  const orphans: string[] = [];
  const entries: StoredEntry[] = [];
  for (const [id, space] of spaces) inspectKeyspace(space, spaces.size > 1 ? `${id}: ` : "", now, entries, orphans);
  return { entries, withoutExpiry: endless, orphans };
}

function sortKey(keyspace: Keyspace, value: readonly Buffer[], bucket: string, kind: string, suffix: string): void {
  const name = bucket + suffix;
  const pairs = Array.from(
    { length: value.length / 2 },
    (_, index) => [value[2 * index] as Buffer, value[2 * index + 1] as Buffer] as const,
  );
  const toScores = (): (readonly [string, number])[] => pairs.map(([member, score]) => [String(member), Number(score)]);
  const queue = keyspace.queueOf(name);
  // the admitted entries count in full form only
  if (kind === "a") {
    const [totals, entries] = [new Map<string, number>(), toScores().filter(([member]) => !TOTALS.includes(member))];
    for (const [member, score] of toScores()) if (TOTALS.includes(member)) totals.set(member, 0 - score);
    keyspace.queues.set(name, { ...queue, totals, admitted: queue.form === "thin" ? queue.admitted : entries });
  }
  if (kind === "w") keyspace.queues.set(name, { ...queue, waiting: toScores() });
  if (kind === "h") for (const [field, text] of pairs) sortField(keyspace, bucket, String(field), text);
}

function sortField(keyspace: Keyspace, bucket: string, field: string, value: Buffer): void {
  const [kind, name] = [field.slice(0, 2), field.slice(2)];
  if (field === "n") keyspace.counters.set(bucket, Number(value));
  if (kind === "m:") keyspace.listed.set(bucket, (keyspace.listed.get(bucket) ?? new Set()).add(name));
  if (kind === "k:" && value.toString() === "F") {
    keyspace.queues.set(bucket + name, { ...keyspace.queueOf(bucket + name), form: "full" });
  } else if (kind === "k:") {
    const record = parseRecord(value, "k");
    const entry = `${bucket}${record.id}:${record.permits}:${record.limit}:${record.ttl}`;
    const admitted = [[entry, record.expiresAt] as const];
    keyspace.queues.set(bucket + name, { ...keyspace.queueOf(bucket + name), form: "thin", admitted });
    if (keyspace.records.has(bucket + record.id)) keyspace.doubled.add(bucket + record.id);
    keyspace.records.set(bucket + record.id, record);
  }
  const tombstone = /^x (\d+) \d+ /.exec(value.toString());
  if (kind === "c:" && tombstone !== null) keyspace.ended.set(bucket + name, Number(tombstone[1]));
  else if (kind === "c:" && keyspace.records.has(bucket + name)) keyspace.doubled.add(bucket + name);
  else if (kind === "c:") keyspace.records.set(bucket + name, parseRecord(value, "c"));
}

/** Form, state, four numbers, the number of queues that it has entered; then the fields of the request, the label, locks as JSON, arrivals, inbox. */
function parseRecord(value: Buffer, place: "k" | "c"): StoredRecord {
  const number = (index: number): number => value.readDoubleBE(3 + 8 * index);
  const text = value.subarray(HEAD_SIZE).toString();
  const match = RECORD_PATTERN.exec(text);
  if (match === null) throw new Error(`a record that nobody wrote: ${JSON.stringify(text)}`);
  const [, id = "", ttl, permits, limit, tokens, , , , , json = ""] = match;
  const locks = json === "" ? null : (JSON.parse(json) as [string, string, string, string][]);
  return {
    place,
    isWaitedFor: value.toString("latin1", 1, 2) === "1",
    id,
    expiresAt: number(0),
    token: number(1),
    enteredCount: value.readUInt8(3 + 8 * 4),
    unreachableSince: number(3),
    ttl: Number(ttl),
    permits: Number(permits),
    limit: Number(limit),
    tokens: Number(tokens),
    count: locks?.length ?? 1,
    locks: locks?.map(([bucket, name]) => [bucket, name] as const) ?? null,
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
  for (const [name, queue] of keyspace.queues) {
    const key = name.slice(2);
    inspectForm(keyspace, location, name, queue, now, orphans);
    for (const [list, state] of [
      [queue.form === "free" ? [] : queue.admitted, "held"],
      [queue.waiting, "waiting"],
    ] as const) {
      for (const [member, score] of list) {
        const [, owner = "", id = "", permits = "", limit = "", ttl = ""] = ENTRY_PATTERN.exec(member) ?? [];
        if (id === "") {
          orphans.push(`${location}${member} in the queue of "${key}"`);
          continue;
        }
        const claim = owner + id;
        const lists = listsByClaim.get(claim) ?? new Set<string>();
        listsByClaim.set(claim, lists.add((state === "held" ? "a" : "w") + name));
        // ended, and not looked at since: it counts for nobody, and goes with the key at the latest
        if (state === "held" && score <= now) continue;
        const record = keyspace.records.get(claim);
        const mayHaveEnded = state === "waiting" && score / 1_000 + Number(ttl) <= now;
        const isLeftOver = (keyspace.ended.get(claim) ?? now) < now;
        if (record === undefined && !mayHaveEnded && !isLeftOver)
          orphans.push(`${location}the place of ${claim} (${state}) on "${key}"`);
        if (record !== undefined && record.expiresAt <= now) continue;
        if (record?.token === 0 && state === "held" && record.enteredCount === 1) {
          orphans.push(`${location}the place among the admitted of ${claim} on "${key}", for which it waits`);
        }
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
  for (const claim of keyspace.doubled) orphans.push(`${location}the second record of ${claim}`);
  for (const [claim, endsAt] of keyspace.ended) {
    if (listsByClaim.has(claim) && endsAt > now) orphans.push(`${location}the place of ${claim}, which has ended,`);
  }
}

/** The form of a key is a function of its queue. */
function inspectForm(
  keyspace: Keyspace,
  location: string,
  name: string,
  { form, admitted, waiting, totals }: StoredQueue,
  now: number,
  orphans: string[],
): void {
  const recordOf = (member: string): StoredRecord | undefined => {
    const [, owner = "", id = ""] = ENTRY_PATTERN.exec(member) ?? [];
    return keyspace.records.get(owner + id);
  };
  const key = `${location}"${name.slice(2)}"`;
  const isWaiting = waiting.some(([member]) => {
    const record = recordOf(member);
    return record !== undefined && record.token === 0 && record.expiresAt > now;
  });
  const [only] = admitted.map(([member]) => recordOf(member));
  if (form === "free" && isWaiting) orphans.push(`the queue of ${key}, which is free,`);
  if (form === "thin" && only?.isWaitedFor !== waiting.length > 0 && (isWaiting || only?.isWaitedFor === true))
    orphans.push(`the queue of ${key}, of which its holder knows otherwise,`);
  if (form === "thin" && only?.token === 0) orphans.push(`the holder of ${key}, without a token,`);
  const counted = totals?.get("count") === admitted.length && totals.get("used") === sumOf(admitted, 3);
  if (form === "full" && admitted.length > 0 && (!counted || totals?.get("recalling") !== sumOf(admitted, 6)))
    orphans.push(`the totals of ${key}, ${JSON.stringify([...(totals ?? [])])},`);
  if (form === "full" && admitted.length === 1 && only?.count === 1 && only.expiresAt > now)
    orphans.push(`the full form of ${key}, with one holder,`);
}

/** The sum of a number of each entry; of a text, how many have it. */
function sumOf(admitted: StoredQueue["admitted"], group: number): number {
  return admitted.reduce(
    (sum, [member]) => sum + Number(ENTRY_PATTERN.exec(member)?.[group]?.replace(":r", "1") ?? 0),
    0,
  );
}

/** A claim that lives stands in all queues that it has entered, and its tokens are counted. */
function inspectRecord(
  keyspace: Keyspace,
  location: string,
  claim: string,
  { place, token, tokens, enteredCount, count, locks }: StoredRecord,
  lists: ReadonlySet<string>,
  orphans: string[],
): void {
  const enteredLocks = locks?.slice(0, enteredCount) ?? null;
  const isWhole =
    enteredLocks === null
      ? lists.size === 1 && [...lists].every((list) => list.startsWith(token > 0 ? "a" : "w"))
      : enteredLocks.every(([bucket, name], at) => {
          return lists.has((at < enteredCount - 1 || token > 0 ? "a" : "w") + bucket + name);
        });
  if (!isWhole)
    orphans.push(
      `${location}the record of ${claim} (in ${enteredCount} of ${count} queues, token ${token}), without its places,`,
    );
  for (const bucket of new Set(locks?.map(([one]) => one) ?? [claim.slice(0, 2)])) {
    const last = keyspace.counters.get(bucket) ?? 0;
    if (token > 0 && last < token + tokens - 1) orphans.push(`${location}the token of ${claim}, above its counter,`);
  }
  if (place === "k" && count > 1)
    orphans.push(`${location}the record of ${claim} over several keys in the field of one,`);
  for (const [bucket, name] of token === 0 ? (locks ?? []) : []) {
    if (keyspace.listed.get(bucket)?.has(`${name}\0${claim}`) !== true) orphans.push(`${location}${claim}, unlisted,`);
  }
}

/** What of a Redis server matters to locks, in plain words: for `holdfast doctor`, and warnings when a driver opens. */

import type { Check } from "../../spi/driver.ts";
import type { Connection } from "./connection.ts";
import { isPermissionError } from "./errors.ts";
import { ALL_BUCKETS, toRoutingKey } from "./script-codec.ts";

/** Sends a command; null: this user may not. */
export type Query = (args: string[]) => Promise<unknown>;

export interface DiagnosticsContext {
  /** The beginning of the names of all our keys, "holdfast:", and of those that stay for ever on purpose. */
  readonly prefix: string;
  readonly isPermanentKey: (key: string) => boolean;
  /** Does something promote replicas, as far as is known: Sentinels, or a Cluster? */
  readonly hasFailover: boolean;
  /** Is guardDataLoss on? */
  readonly isGuarded: boolean;
  /** How many replicas are waited for; 0: none. */
  readonly replicaAcks: number;
}

/** ZRANDMEMBER came with it. */
const MIN_VERSION = [6, 2];
/** What the scripts were tested with. */
const TESTED_VERSION = "7.0";
/** Nearly full: claims, or connections, will be refused. */
const NEARLY_FULL = 0.9;
/** How much is looked through for keys without a time to live. */
const MAX_SCANS = 50;
const KEYS_PER_SCAN = 1_000;

/** By a script: client libraries send a command that names no key to any node, and put prefixes of theirs before keys. */
const COMMAND_SCRIPT = "return redis.call(unpack(ARGV))";

/** Commands to the server, or to each master; those this user has no right to answer null. */
export function createQueries(connection: Connection, namePrefix: string): readonly Query[] {
  return connection
    .onePerMaster(ALL_BUCKETS.map((bucket) => toRoutingKey(namePrefix, bucket)))
    .map((routingKey) => async (args) => {
      try {
        return await connection.send(["EVAL", COMMAND_SCRIPT, "1", routingKey, ...args], routingKey);
      } catch (error) {
        if (isPermissionError(error)) return null;
        throw error;
      }
    });
}

const emittedWarnings = new Set<string>();

/** A process says it once, however many drivers it opens. */
export function warnOnce(warning: string): void {
  if (emittedWarnings.has(warning)) return;
  if (emittedWarnings.size < 100) emittedWarnings.add(warning);
  process.emitWarning(warning, "HoldfastWarning");
}

/** What may be warned of when a driver opens, by the names that `silenceWarnings` takes: those of doctor's findings. */
export const WARNING_NAMES = [
  "version",
  "role",
  "failover",
  "clients",
  "memory",
  "disk",
  "appendonly",
  "guardDataLoss",
] as const;

/** The name of a warning. */
export type WarningName = (typeof WARNING_NAMES)[number];

/** A finding that is warned of, unless it is good. */
interface RedisCheck extends Check {
  readonly what: WarningName | "server";
}

/** From the best to the worst. */
const STATUSES_BY_SEVERITY: readonly Check["level"][] = ["good", "unknown", "doubtful", "bad"];

/** What INFO tells of the server; of several masters the worst of each. */
export async function diagnoseAll(queries: readonly Query[], context: DiagnosticsContext): Promise<RedisCheck[]> {
  const checks = (await Promise.all(queries.map((query) => diagnoseServer(query, context)))).flat();
  return [...new Set(checks.map(({ what }) => what))].map((what) => {
    const sameName = checks.filter((check) => check.what === what);
    const level = STATUSES_BY_SEVERITY[Math.max(...sameName.map((check) => STATUSES_BY_SEVERITY.indexOf(check.level)))];
    const sameStatus = sameName.filter((check) => check.level === level);
    const [worst] = sameStatus as [RedisCheck];
    if (queries.length === 1 || level === "good") return worst;
    return { ...worst, says: `${worst.says} (${sameStatus.length} of ${queries.length} masters)` };
  });
}

/** What INFO tells of one server. */
export async function diagnoseServer(query: Query, context: DiagnosticsContext): Promise<RedisCheck[]> {
  const reply = await query(["INFO"]);
  if (reply === null) {
    const says = "this user has no right to INFO: version, role, memory and persistence are not known";
    return [{ level: "unknown", what: "server", says, advice: "grant +info" }];
  }
  const text = String(reply);
  const info = (field: string): string => new RegExp(`^${field}:(.*?)\\r?$`, "m").exec(text)?.[1] ?? "";
  const checks = [
    checkVersion(info),
    checkRole(info, context),
    checkFailover(info, context),
    checkClients(info),
    checkMemory(info),
    checkPersistence(info, context),
  ];
  return checks.filter((check) => check !== null);
}

type InfoReader = (field: string) => string;

function checkVersion(info: InfoReader): RedisCheck {
  const version = info("redis_version");
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const what = "version";
  const says = `Redis ${version}`;
  if (major > (MIN_VERSION[0] as number) || (major === MIN_VERSION[0] && minor >= (MIN_VERSION[1] as number))) {
    return { level: "good", what, says };
  }
  return {
    level: "bad",
    what,
    says,
    advice: `its scripts need ${MIN_VERSION.join(".")}; they are tested with ${TESTED_VERSION}`,
  };
}

function checkRole(info: InfoReader, { replicaAcks: wantedAcks }: DiagnosticsContext): RedisCheck {
  const what = "role";
  if (info("role") !== "master") {
    return { level: "bad", what, says: "this is a replica", advice: "connect to the master: locks live there" };
  }
  const replicas = Number(info("connected_slaves"));
  const replicaCount =
    replicas === 0 ? "without replicas" : `with ${replicas} ${replicas === 1 ? "replica" : "replicas"}`;
  const says = `master, ${replicaCount}`;
  if (replicas >= wantedAcks) return { level: "good", what, says };
  const advice = `nobody is granted until ${wantedAcks} have connected (option replicas)`;
  return { level: "bad", what, says, advice };
}

/** What a replica that is promoted means to locks; null: there is none that could be. */
function checkFailover(
  info: InfoReader,
  { hasFailover, isGuarded, replicaAcks: wantedAcks }: DiagnosticsContext,
): RedisCheck | null {
  const what = "failover";
  const count = Number(info("connected_slaves"));
  if (info("role") !== "master" || !(hasFailover || count > 0)) return null;
  if (wantedAcks > 0)
    return { level: "good", what, says: `grants and renewals wait for ${wantedAcks} of ${count} replicas` };
  // INFO has it only if both min-replicas-to-write and min-replicas-max-lag are set
  const stopsWriting = info("min_slaves_good_slaves") !== "";
  const bounded = "min-replicas-to-write ends a master that was replaced within min-replicas-max-lag";
  if (stopsWriting && isGuarded) return { level: "good", what, says: `guardDataLoss is on; ${bounded}` };
  const lost = "a replica that is promoted may not know the last locks granted";
  const split = "a master that was replaced while it was suspended or cut off goes on granting beside the new one";
  const bound = "min-replicas-to-write 1 bounds that to min-replicas-max-lag";
  const tokens = "fencing tokens keep the resource safe";
  if (isGuarded) {
    const says = `guardDataLoss is on; but ${split}`;
    return {
      level: "doubtful",
      what,
      says,
      advice: `option replicas, for all of them, rules that out, ${bound}; ${tokens}`,
    };
  }
  if (stopsWriting) {
    const advice = `option replicas, for all of them, rules that out, guardDataLoss keeps it from being granted again; ${tokens}`;
    return { level: "doubtful", what, says: `${lost}; ${bounded}`, advice };
  }
  const advice = `option replicas, for all of them, rules out both; else guardDataLoss for the first, while ${bound}; ${tokens}`;
  return { level: "doubtful", what, says: `${lost}, and ${split}`, advice };
}

function checkClients(info: InfoReader): RedisCheck | null {
  const what = "clients";
  const [count, maxClients] = [Number(info("connected_clients")), Number(info("maxclients"))];
  if (!(maxClients > 0)) return null;
  const says = `${count} of ${maxClients} connections in use`;
  if (count < NEARLY_FULL * maxClients) return { level: "good", what, says };
  const advice = "raise maxclients: a process that gets no connection to hear of grants waits for seconds at each lock";
  return { level: "doubtful", what, says, advice };
}

function checkMemory(info: InfoReader): RedisCheck {
  const what = "memory";
  const policy = info("maxmemory_policy");
  const maxMemory = Number(info("maxmemory"));
  if (policy !== "noeviction" && policy !== "") {
    return {
      level: "bad",
      what,
      says: `maxmemory-policy is ${policy}: locks that are held may be thrown away`,
      advice: "set maxmemory-policy noeviction, or give locks a server of their own",
    };
  }
  if (maxMemory === 0) return { level: "good", what, says: "no bound, nothing is evicted" };
  const usedShare = Number(info("used_memory")) / maxMemory;
  if (usedShare >= 1) {
    const advice =
      "raise maxmemory, or give locks a server of their own; held ones are renewed, handed over and released";
    return { level: "bad", what, says: "memory is full: no new lock is granted", advice };
  }
  const says = `${Math.round(usedShare * 100)} % of maxmemory in use, nothing is evicted`;
  if (usedShare < NEARLY_FULL) return { level: "good", what, says };
  return { level: "doubtful", what, says, advice: "when it is full new locks are refused; held ones can be released" };
}

function checkPersistence(info: InfoReader, { isGuarded }: DiagnosticsContext): RedisCheck {
  const isOn = info("aof_enabled") === "1";
  const hasFailed = isOn ? info("aof_last_write_status") !== "ok" : info("rdb_last_bgsave_status") !== "ok";
  if (hasFailed) {
    const advice = "look at its log and the space on its disk; it may refuse to write soon";
    return { level: "doubtful", what: "disk", says: "the last write to disk failed", advice };
  }
  const what = "appendonly";
  if (isOn) {
    const says = "append-only file: locks outlive a restart, but for the last second unless appendfsync is always";
    return { level: "good", what, says };
  }
  if (isGuarded) return { level: "good", what, says: "a restart forgets locks; guardDataLoss is on" };
  return {
    level: "doubtful",
    what,
    says: "no append-only file: a restart forgets locks that are held, and grants them to others",
    advice: "set appendonly yes and appendfsync always, or use guardDataLoss",
  };
}

interface KeyScan {
  readonly cursor: string;
  readonly keyCount: number;
  readonly withoutTtlCount: number;
}

/** Every key of ours ends by itself, or it would stay for ever. Looks through a bounded part of all keys. */
export async function findKeysWithoutTtl(queries: readonly Query[], context: DiagnosticsContext): Promise<Check> {
  const what = "keys";
  const scans = await Promise.all(
    queries.map((query) => scanKeys(query, context, { cursor: "0", keyCount: 0, withoutTtlCount: 0 }, MAX_SCANS)),
  );
  const completed = scans.filter((scan) => scan !== null);
  if (completed.length < queries.length) {
    return { level: "unknown", what, says: "this user has no right to SCAN, so keys were not looked at" };
  }
  const keyCount = completed.reduce((sum, scan) => sum + scan.keyCount, 0);
  const withoutTtlCount = completed.reduce((sum, scan) => sum + scan.withoutTtlCount, 0);
  const scope = completed.every(({ cursor }) => cursor === "0") ? "" : " (of those looked at)";
  if (withoutTtlCount === 0)
    return { level: "good", what, says: `${keyCount} of ours, each with a time to live${scope}` };
  return {
    level: "bad",
    what,
    says: `${withoutTtlCount} of ${keyCount} of ours have no time to live${scope}`,
    advice: "something else wrote or persisted them: no script of ours leaves such a key",
  };
}

async function scanKeys(
  query: Query,
  context: DiagnosticsContext,
  previous: KeyScan,
  remainingScans: number,
): Promise<KeyScan | null> {
  const pattern = `${context.prefix.replace(/[\\*?[\]]/g, "\\$&")}*`;
  const reply = await query(["SCAN", previous.cursor, "MATCH", pattern, "COUNT", String(KEYS_PER_SCAN)]);
  if (reply === null) return null;
  const [next, foundKeys] = reply as readonly [unknown, readonly unknown[]];
  const keys = foundKeys.map(String).filter((key) => !context.isPermanentKey(key));
  const ttls = await Promise.all(keys.map((key) => query(["PTTL", key])));
  const scan: KeyScan = {
    cursor: String(next),
    keyCount: previous.keyCount + keys.length,
    withoutTtlCount: previous.withoutTtlCount + ttls.filter((ms) => Number(ms) === -1).length,
  };
  return scan.cursor === "0" || remainingScans === 1 ? scan : scanKeys(query, context, scan, remainingScans - 1);
}

/** What is worth a warning when a driver opens, but for what is not to be warned of. */
export function formatWarnings(checks: readonly Check[], silenced: readonly string[] = []): string[] {
  return checks
    .filter(({ level, what }) => (level === "bad" || level === "doubtful") && !silenced.includes(what))
    .map(({ says, advice }) => `redis: ${says}${advice === undefined ? "" : `; ${advice}`}`);
}

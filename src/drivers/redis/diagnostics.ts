/** Checks the settings of a Redis server that matter to locks: for `holdfast doctor` and for warnings in open(). */

import type { Check } from "../../spi/driver.ts";
import type { Connection } from "./connection.ts";
import { isUnavailableCommand } from "./errors.ts";
import { ALL_BUCKETS, toRoutingKey } from "./key-names.ts";
import type { WarningName } from "./options.ts";

/** Sends a command. Null: the user lacks the permission, or the server the command. */
export type Query = (args: string[]) => Promise<unknown>;

export interface DiagnosticsContext {
  /** The prefix of all keys, "holdfast:". */
  readonly prefix: string;
  /** Whether a key has no time to live on purpose. */
  readonly isPermanentKey: (key: string) => boolean;
  /** Whether Sentinels or a Cluster may promote replicas. */
  readonly hasFailover: boolean;
  /** Whether guardDataLoss is on. */
  readonly isGuarded: boolean;
  /** The option `replicas.minAcks`; 0: not set. */
  readonly replicaAcks: number;
}

/** The first version with HRANDFIELD. */
const MIN_VERSION = [6, 2];
/** The version that the tests use. */
const TESTED_VERSION = "7.0";
/** Share of memory or connections above which refusals are likely soon. */
const NEARLY_FULL = 0.9;
/** Bounds of the search for keys without a time to live. */
const MAX_SCANS = 50;
const KEYS_PER_SCAN = 1_000;

/** In a script: libraries send a command without a key to an arbitrary node, and add their prefix to keys. */
const COMMAND_SCRIPT = "return redis.call(unpack(ARGV))";

/** One query for the server, or for each master of a Cluster. */
export function createQueries(connection: Connection, namePrefix: string): readonly Query[] {
  return connection
    .onePerMaster(ALL_BUCKETS.map((bucket) => toRoutingKey(namePrefix, bucket)))
    .map((routingKey) => async (args) => {
      try {
        return await connection.send(["EVAL", COMMAND_SCRIPT, "1", routingKey, ...args], routingKey);
      } catch (error) {
        if (isUnavailableCommand(error)) return null;
        throw error;
      }
    });
}

/** A check that open() warns of unless its result is good. */
interface RedisCheck extends Check {
  readonly name: WarningName | "server";
}

/** From the best to the worst. */
const STATUSES_BY_SEVERITY: readonly Check["status"][] = ["ok", "unknown", "warn", "fail"];

/** Checks all masters. Of each check the worst result counts. */
export async function diagnoseAll(queries: readonly Query[], context: DiagnosticsContext): Promise<RedisCheck[]> {
  const checks = (await Promise.all(queries.map((query) => diagnoseServer(query, context)))).flat();
  return [...new Set(checks.map(({ name }) => name))].map((name) => {
    const sameName = checks.filter((check) => check.name === name);
    const status =
      STATUSES_BY_SEVERITY[Math.max(...sameName.map((check) => STATUSES_BY_SEVERITY.indexOf(check.status)))];
    const sameStatus = sameName.filter((check) => check.status === status);
    const [worst] = sameStatus as [RedisCheck];
    if (queries.length === 1 || status === "ok") return worst;
    return { ...worst, message: `${worst.message} (${sameStatus.length} of ${queries.length} masters)` };
  });
}

/** Checks one server by its INFO. */
export async function diagnoseServer(query: Query, context: DiagnosticsContext): Promise<RedisCheck[]> {
  const reply = await query(["INFO"]);
  if (reply === null) {
    const message = "the server refuses INFO to this user: version, role, memory and persistence are unknown";
    return [{ status: "unknown", name: "server", message, hint: "grant +info" }];
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
  const name = "version";
  const message = `Redis ${version}`;
  if (major > (MIN_VERSION[0] as number) || (major === MIN_VERSION[0] && minor >= (MIN_VERSION[1] as number))) {
    return { status: "ok", name, message };
  }
  return {
    status: "fail",
    name,
    message,
    hint: `use ${MIN_VERSION.join(".")} or later; the scripts are tested with ${TESTED_VERSION}`,
  };
}

function checkRole(info: InfoReader, { replicaAcks: wantedAcks }: DiagnosticsContext): RedisCheck {
  const name = "role";
  if (info("role") !== "master") {
    return { status: "fail", name, message: "this is a replica", hint: "connect to the master, which keeps the locks" };
  }
  const replicas = Number(info("connected_slaves"));
  const replicaCount =
    replicas === 0 ? "without replicas" : `with ${replicas} ${replicas === 1 ? "replica" : "replicas"}`;
  const message = `master, ${replicaCount}`;
  if (replicas >= wantedAcks) return { status: "ok", name, message };
  const hint = `no lock is granted until ${wantedAcks} replicas are connected (option replicas)`;
  return { status: "fail", name, message, hint };
}

/** How safe locks are in a fail-over; null: there is no replica to promote. */
function checkFailover(
  info: InfoReader,
  { hasFailover, isGuarded, replicaAcks: wantedAcks }: DiagnosticsContext,
): RedisCheck | null {
  const name = "failover";
  const count = Number(info("connected_slaves"));
  if (info("role") !== "master" || !(hasFailover || count > 0)) return null;
  if (wantedAcks > 0)
    return { status: "ok", name, message: `grants and renewals wait for ${wantedAcks} of ${count} replicas` };
  // INFO contains the field only if min-replicas-to-write and min-replicas-max-lag are both set
  const stopsWriting = info("min_slaves_good_slaves") !== "";
  const masterStops = "min-replicas-to-write stops a replaced master within min-replicas-max-lag";
  if (stopsWriting && isGuarded) return { status: "ok", name, message: `guardDataLoss is on; ${masterStops}` };
  const lostGrants = "a promoted replica may not have the last locks granted";
  const splitMasters = "a master that was replaced while suspended or cut off keeps granting beside the new one";
  const prevention = "option replicas, with minAcks for all replicas, prevents";
  const tokens = "fencing tokens protect the resource";
  if (isGuarded) {
    const message = `guardDataLoss is on; but ${splitMasters}`;
    const hint = `${prevention} this, min-replicas-to-write 1 limits it to min-replicas-max-lag; ${tokens}`;
    return { status: "warn", name, message, hint };
  }
  if (stopsWriting) {
    const hint = `${prevention} this, guardDataLoss prevents a second grant; ${tokens}`;
    return { status: "warn", name, message: `${lostGrants}; ${masterStops}`, hint };
  }
  const hint = `${prevention} both; otherwise guardDataLoss prevents the first, min-replicas-to-write 1 limits the second to min-replicas-max-lag; ${tokens}`;
  return { status: "warn", name, message: `${lostGrants}, and ${splitMasters}`, hint };
}

function checkClients(info: InfoReader): RedisCheck | null {
  const name = "clients";
  const [count, maxClients] = [Number(info("connected_clients")), Number(info("maxclients"))];
  if (!(maxClients > 0)) return null;
  const message = `${count} of ${maxClients} connections in use`;
  if (count < NEARLY_FULL * maxClients) return { status: "ok", name, message };
  const hint = "raise maxclients: a process without a connection for pushes waits seconds longer for each lock";
  return { status: "warn", name, message, hint };
}

function checkMemory(info: InfoReader): RedisCheck {
  const name = "memory";
  const policy = info("maxmemory_policy");
  const maxMemory = Number(info("maxmemory"));
  if (policy !== "noeviction" && policy !== "") {
    return {
      status: "fail",
      name,
      message: `maxmemory-policy is ${policy}: held locks may be evicted`,
      hint: "set maxmemory-policy noeviction, or use a separate server for locks",
    };
  }
  if (maxMemory === 0) return { status: "ok", name, message: "no limit, nothing is evicted" };
  const usedShare = Number(info("used_memory")) / maxMemory;
  if (usedShare >= 1) {
    const hint =
      "raise maxmemory, or use a separate server for locks; held locks can still be renewed, handed over and released";
    return { status: "fail", name, message: "memory is full: no new lock is granted", hint };
  }
  const message = `${Math.round(usedShare * 100)} % of maxmemory in use, nothing is evicted`;
  if (usedShare < NEARLY_FULL) return { status: "ok", name, message };
  return {
    status: "warn",
    name,
    message,
    hint: "when memory is full, new locks are refused; held locks can still be released",
  };
}

function checkPersistence(info: InfoReader, { isGuarded }: DiagnosticsContext): RedisCheck {
  const isOn = info("aof_enabled") === "1";
  const hasFailed = isOn ? info("aof_last_write_status") !== "ok" : info("rdb_last_bgsave_status") !== "ok";
  if (hasFailed) {
    const hint = "check the server's log and free disk space; it may soon refuse writes";
    return { status: "warn", name: "disk", message: "the last write to disk failed", hint };
  }
  const name = "appendonly";
  if (isOn) {
    const message =
      "append-only file: locks survive a restart, except those of the last second unless appendfsync is always";
    return { status: "ok", name, message };
  }
  if (isGuarded) return { status: "ok", name, message: "a restart loses locks; guardDataLoss is on" };
  return {
    status: "warn",
    name,
    message: "no append-only file: a restart loses held locks and grants them to others",
    hint: "set appendonly yes and appendfsync always, or use guardDataLoss",
  };
}

interface KeyScan {
  /** False: the search ended at its bound. */
  readonly isComplete: boolean;
  readonly keyCount: number;
  readonly withoutTtlCount: number;
}

/** Looks for keys that would never expire, in a bounded part of all keys. */
export async function findKeysWithoutTtl(queries: readonly Query[], context: DiagnosticsContext): Promise<Check> {
  const name = "keys";
  const scans = await Promise.all(queries.map((query) => scanKeys(query, context)));
  const completed = scans.filter((scan) => scan !== null);
  if (completed.length < queries.length) {
    return { status: "unknown", name, message: "the server refuses SCAN to this user, so keys were not checked" };
  }
  const keyCount = completed.reduce((sum, scan) => sum + scan.keyCount, 0);
  const withoutTtlCount = completed.reduce((sum, scan) => sum + scan.withoutTtlCount, 0);
  const scope = completed.every(({ isComplete }) => isComplete) ? "" : " (of those scanned)";
  if (withoutTtlCount === 0)
    return { status: "ok", name, message: `${keyCount} keys of Holdfast, each with a time to live${scope}` };
  return {
    status: "fail",
    name,
    message: `${withoutTtlCount} of ${keyCount} keys of Holdfast have no time to live${scope}`,
    hint: "another program wrote or persisted them: no script of Holdfast leaves such a key",
  };
}

/** Null: the server refuses SCAN. */
async function scanKeys(query: Query, context: DiagnosticsContext): Promise<KeyScan | null> {
  const pattern = `${context.prefix.replace(/[\\*?[\]]/g, "\\$&")}*`;
  let cursor = "0";
  let keyCount = 0;
  let withoutTtlCount = 0;
  for (let scanCount = 0; scanCount < MAX_SCANS; scanCount++) {
    const reply = await query(["SCAN", cursor, "MATCH", pattern, "COUNT", String(KEYS_PER_SCAN)]);
    if (reply === null) return null;
    const [next, foundKeys] = reply as readonly [unknown, readonly unknown[]];
    const keys = foundKeys.map(String).filter((key) => !context.isPermanentKey(key));
    const ttls = await Promise.all(keys.map((key) => query(["PTTL", key])));
    cursor = String(next);
    keyCount += keys.length;
    withoutTtlCount += ttls.filter((ms) => Number(ms) === -1).length;
    if (cursor === "0") break;
  }
  return { isComplete: cursor === "0", keyCount, withoutTtlCount };
}

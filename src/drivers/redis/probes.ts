/** What of a Redis server matters to locks, in plain words: for `holdfast doctor`, and warnings when a driver opens. */

import type { Finding } from "../../spi/driver.ts";
import type { Connection } from "./connection.ts";
import { isRefusal } from "./trouble.ts";
import { ALL_BUCKETS, routeOf } from "./words.ts";

/** Sends a command; null: this user may not. */
export type Ask = (words: string[]) => Promise<unknown>;

export interface Probed {
  /** The beginning of the names of all our keys, "holdfast:", and of those that stay for ever on purpose. */
  readonly prefix: string;
  readonly stays: (key: string) => boolean;
  /** Does something promote replicas, as far as is known: Sentinels, or a Cluster? */
  readonly failsOver: boolean;
  /** Is guardDataLoss on? */
  readonly isGuarded: boolean;
  /** How many replicas are waited for; 0: none. */
  readonly replicas: number;
}

/** ZRANDMEMBER came with it. */
const LEAST = [6, 2];
/** What the scripts were tested with. */
const TESTED = "7.0";
/** Nearly full: claims, or connections, will be refused. */
const FULL = 0.9;
/** How much is looked through for keys without a time to live. */
const SCANS = 50;
const KEYS_A_SCAN = 1_000;

/** By a script: client libraries send a command that names no key to any node, and put prefixes of theirs before keys. */
const COMMAND = "return redis.call(unpack(ARGV))";

/** Commands to the server, or to each master; those this user has no right to answer null. */
export function asksOf(connection: Connection, root: string): readonly Ask[] {
  return connection.oneEach(ALL_BUCKETS.map((bucket) => routeOf(root, bucket))).map((route) => async (words) => {
    try {
      return await connection.send(["EVAL", COMMAND, "1", route, ...words], route);
    } catch (error) {
      if (isRefusal(error)) return null;
      throw error;
    }
  });
}

const warned = new Set<string>();

/** A process says it once, however many drivers it opens. */
export function warnOnce(warning: string): void {
  if (warned.has(warning)) return;
  if (warned.size < 100) warned.add(warning);
  process.emitWarning(warning, "HoldfastWarning");
}

/** What may be warned of when a driver opens, by the names that `silenceWarnings` takes: those of doctor's findings. */
export const WARNINGS = [
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
export type WarningName = (typeof WARNINGS)[number];

/** A finding that is warned of, unless it is good. */
interface Found extends Finding {
  readonly what: WarningName | "server";
}

/** From the best to the worst. */
const LEVELS: readonly Finding["level"][] = ["good", "unknown", "doubtful", "bad"];

/** What INFO tells of the server; of several masters the worst of each. */
export async function worstFound(asks: readonly Ask[], probed: Probed): Promise<Found[]> {
  const each = (await Promise.all(asks.map((ask) => settingsFound(ask, probed)))).flat();
  return [...new Set(each.map(({ what }) => what))].map((what) => {
    const said = each.filter((one) => one.what === what);
    const level = LEVELS[Math.max(...said.map((one) => LEVELS.indexOf(one.level)))];
    const alike = said.filter((one) => one.level === level);
    const [worst] = alike as [Found];
    if (asks.length === 1 || level === "good") return worst;
    return { ...worst, says: `${worst.says} (${alike.length} of ${asks.length} masters)` };
  });
}

/** What INFO tells of one server. */
export async function settingsFound(ask: Ask, probed: Probed): Promise<Found[]> {
  const info = await ask(["INFO"]);
  if (info === null) {
    const says = "this user has no right to INFO: version, role, memory and persistence are not known";
    return [{ level: "unknown", what: "server", says, advice: "grant +info" }];
  }
  const text = String(info);
  const of = (name: string): string => new RegExp(`^${name}:(.*?)\\r?$`, "m").exec(text)?.[1] ?? "";
  const found = [version(of), role(of, probed), failover(of, probed), clients(of), memory(of), persistence(of, probed)];
  return found.filter((one) => one !== null);
}

type Of = (name: string) => string;

function version(of: Of): Found {
  const said = of("redis_version");
  const [major = 0, minor = 0] = said.split(".").map(Number);
  const what = "version";
  const says = `Redis ${said}`;
  if (major > (LEAST[0] as number) || (major === LEAST[0] && minor >= (LEAST[1] as number))) {
    return { level: "good", what, says };
  }
  return { level: "bad", what, says, advice: `its scripts need ${LEAST.join(".")}; they are tested with ${TESTED}` };
}

function role(of: Of, { replicas: wanted }: Probed): Found {
  const what = "role";
  if (of("role") !== "master") {
    return { level: "bad", what, says: "this is a replica", advice: "connect to the master: locks live there" };
  }
  const replicas = Number(of("connected_slaves"));
  const having = replicas === 0 ? "without replicas" : `with ${replicas} ${replicas === 1 ? "replica" : "replicas"}`;
  const says = `master, ${having}`;
  if (replicas >= wanted) return { level: "good", what, says };
  const advice = `nobody is granted until ${wanted} have connected (option replicas)`;
  return { level: "bad", what, says, advice };
}

/** What a replica that is promoted means to locks; null: there is none that could be. */
function failover(of: Of, { failsOver, isGuarded, replicas: wanted }: Probed): Found | null {
  const what = "failover";
  const count = Number(of("connected_slaves"));
  if (of("role") !== "master" || !(failsOver || count > 0)) return null;
  if (wanted > 0) return { level: "good", what, says: `grants and renewals wait for ${wanted} of ${count} replicas` };
  // INFO has it only if both min-replicas-to-write and min-replicas-max-lag are set
  const stops = of("min_slaves_good_slaves") !== "";
  const bounded = "min-replicas-to-write ends a master that was replaced within min-replicas-max-lag";
  if (stops && isGuarded) return { level: "good", what, says: `guardDataLoss is on; ${bounded}` };
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
  if (stops) {
    const advice = `option replicas, for all of them, rules that out, guardDataLoss keeps it from being granted again; ${tokens}`;
    return { level: "doubtful", what, says: `${lost}; ${bounded}`, advice };
  }
  const advice = `option replicas, for all of them, rules out both; else guardDataLoss for the first, while ${bound}; ${tokens}`;
  return { level: "doubtful", what, says: `${lost}, and ${split}`, advice };
}

function clients(of: Of): Found | null {
  const what = "clients";
  const [count, most] = [Number(of("connected_clients")), Number(of("maxclients"))];
  if (!(most > 0)) return null;
  const says = `${count} of ${most} connections in use`;
  if (count < FULL * most) return { level: "good", what, says };
  const advice = "raise maxclients: a process that gets no connection to hear of grants waits for seconds at each lock";
  return { level: "doubtful", what, says, advice };
}

function memory(of: Of): Found {
  const what = "memory";
  const policy = of("maxmemory_policy");
  const most = Number(of("maxmemory"));
  if (policy !== "noeviction" && policy !== "") {
    return {
      level: "bad",
      what,
      says: `maxmemory-policy is ${policy}: locks that are held may be thrown away`,
      advice: "set maxmemory-policy noeviction, or give locks a server of their own",
    };
  }
  if (most === 0) return { level: "good", what, says: "no bound, nothing is evicted" };
  const part = Number(of("used_memory")) / most;
  if (part >= 1) {
    const advice =
      "raise maxmemory, or give locks a server of their own; held ones are renewed, handed over and released";
    return { level: "bad", what, says: "memory is full: no new lock is granted", advice };
  }
  const says = `${Math.round(part * 100)} % of maxmemory in use, nothing is evicted`;
  if (part < FULL) return { level: "good", what, says };
  return { level: "doubtful", what, says, advice: "when it is full new locks are refused; held ones can be released" };
}

function persistence(of: Of, { isGuarded }: Probed): Found {
  const isOn = of("aof_enabled") === "1";
  const failed = isOn ? of("aof_last_write_status") !== "ok" : of("rdb_last_bgsave_status") !== "ok";
  if (failed) {
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

interface Looked {
  readonly cursor: string;
  readonly ours: number;
  readonly leaking: number;
}

/** Every key of ours ends by itself, or it would stay for ever. Looks through a bounded part of all keys. */
export async function leaksFound(asks: readonly Ask[], probed: Probed): Promise<Finding> {
  const what = "keys";
  const each = await Promise.all(asks.map((ask) => looks(ask, probed, { cursor: "0", ours: 0, leaking: 0 }, SCANS)));
  const looked = each.filter((one) => one !== null);
  if (looked.length < asks.length) {
    return { level: "unknown", what, says: "this user has no right to SCAN, so keys were not looked at" };
  }
  const ours = looked.reduce((sum, one) => sum + one.ours, 0);
  const leaking = looked.reduce((sum, one) => sum + one.leaking, 0);
  const part = looked.every(({ cursor }) => cursor === "0") ? "" : " (of those looked at)";
  if (leaking === 0) return { level: "good", what, says: `${ours} of ours, each with a time to live${part}` };
  return {
    level: "bad",
    what,
    says: `${leaking} of ${ours} of ours have no time to live${part}`,
    advice: "something else wrote or persisted them: no script of ours leaves such a key",
  };
}

async function looks(ask: Ask, probed: Probed, before: Looked, scans: number): Promise<Looked | null> {
  const pattern = `${probed.prefix.replace(/[\\*?[\]]/g, "\\$&")}*`;
  const said = await ask(["SCAN", before.cursor, "MATCH", pattern, "COUNT", String(KEYS_A_SCAN)]);
  if (said === null) return null;
  const [next, found] = said as readonly [unknown, readonly unknown[]];
  const keys = found.map(String).filter((key) => !probed.stays(key));
  const left = await Promise.all(keys.map((key) => ask(["PTTL", key])));
  const looked: Looked = {
    cursor: String(next),
    ours: before.ours + keys.length,
    leaking: before.leaking + left.filter((ms) => Number(ms) === -1).length,
  };
  return looked.cursor === "0" || scans === 1 ? looked : looks(ask, probed, looked, scans - 1);
}

/** What is worth a warning when a driver opens, but for what is not to be warned of. */
export function warningsOf(findings: readonly Finding[], silenced: readonly string[] = []): string[] {
  return findings
    .filter(({ level, what }) => (level === "bad" || level === "doubtful") && !silenced.includes(what))
    .map(({ says, advice }) => `redis: ${says}${advice === undefined ? "" : `; ${advice}`}`);
}

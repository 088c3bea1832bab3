/** The options of the Redis driver. */

import type { Clock } from "../../util/clock.ts";
import type { Duration } from "../../util/duration.ts";
import type { OptionRules } from "../../util/validate.ts";
import {
  booleanRule,
  clockRule,
  countRule,
  functionRule,
  isObject,
  millisecondsRule,
  noProblem,
  stringRule,
  timeoutRule,
  validateOptions,
} from "../../util/validate.ts";
import type { GuardDataLossOptions } from "../data-loss-guard.ts";
import { guardDataLossRule } from "../data-loss-guard.ts";
import { warningNamesRule } from "../warnings.ts";

/** Options of `redis()`. */
export interface RedisOptions {
  /**
   * The prefix of all keys and channels. Clients with the same prefix see each other's locks. The option `keyPrefix` of
   * ioredis has no effect. Default "holdfast".
   */
  readonly prefix?: string;
  /** How long `open()` tries to reach the server. Default 5 s. */
  readonly connectTimeout?: Duration;
  /** Timeout of a command in milliseconds. Its outcome is then unknown, and a retry finds it out. Default 5 s. */
  readonly commandTimeoutMs?: number;
  /**
   * Allow a server that evicts keys when memory is full (any `maxmemory-policy` except noeviction). An evicted lock is
   * granted to another client while it is held. Default false: open() refuses such a server.
   */
  readonly allowEviction?: boolean;
  /**
   * After a loss of data (a flush, an empty restart, the promotion of a replica that missed the last writes), grant
   * nothing new for the longest ttl, while holders restore their claims. So no lock of a live holder is granted to
   * another client. Needs permission for INFO. The first use of a prefix waits as long, too. All clients of a prefix
   * need the same setting. Default false: holders are notified of a loss at once, and `warn` receives how many locks
   * were lost.
   */
  readonly guardDataLoss?: boolean | GuardDataLossOptions;
  /**
   * A grant or a renewal counts only after so many replicas have acknowledged it. While too few do, no lock is granted,
   * and holders lose their locks when their leases end. A fail-over to a replica that has acknowledged loses no lock.
   * Costs two more round trips and needs permission for WAIT. Default: no replicas.
   */
  readonly replicas?: ReplicaOptions;
  /**
   * Receives warnings about what endangers locks: settings of the server, locks that it lost. Default: a process
   * warning.
   */
  readonly warn?: (warning: string) => void;
  /**
   * Warnings that `open()` leaves out, by the names that `holdfast doctor` shows: "version", "role", "failover",
   * "clients", "memory", "disk", "appendonly", and "guardDataLoss" for a grace period that has not ended. Later
   * warnings, such as about lost locks, are not affected. Default: none.
   */
  readonly silenceWarnings?: readonly WarningName[];
  /** The label of claims that have none of their own. */
  readonly label?: string;
  /** The clock, for tests. */
  readonly clock?: Clock;
}

/** The warnings of open(): the names that `silenceWarnings` takes and `holdfast doctor` shows. */
const WARNING_NAMES = [
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

/** How many replicas must acknowledge, and how long the driver waits for them. */
export interface ReplicaOptions {
  /** How many replicas must acknowledge; in a Cluster, replicas of each master. */
  readonly minAcks: number;
  /** How long the driver waits for them, in milliseconds; less than `commandTimeoutMs`. Default 1 s. */
  readonly timeoutMs?: number;
}

const OPTION_RULES: OptionRules<RedisOptions> = {
  prefix: (value) => noProblem(validatePrefix(value)),
  connectTimeout: timeoutRule("connectTimeout"),
  commandTimeoutMs: millisecondsRule(),
  allowEviction: booleanRule,
  guardDataLoss: guardDataLossRule,
  replicas(value) {
    if (!isObject(value)) return "{ minAcks, timeoutMs }";
    const rules = { minAcks: countRule(100), timeoutMs: millisecondsRule(1, 60_000) };
    return noProblem(validateOptions("replicas", value, rules, { required: ["minAcks"], prefix: "replicas." }));
  },
  warn: functionRule,
  silenceWarnings: warningNamesRule(WARNING_NAMES),
  label: stringRule,
  clock: clockRule,
};

/** @throws TypeError naming the invalid option */
export function validateRedisOptions(options: RedisOptions): void {
  validateOptions("redis", options, OPTION_RULES);
}

/** @throws TypeError */
function validatePrefix(prefix: unknown): string {
  // braces are for the driver's hash tags: Redis Cluster derives a key's slot from them
  if (typeof prefix === "string" && /^[^{}\s\p{Cc}]{1,64}$/u.test(prefix)) return prefix;
  throw new TypeError("prefix must be 1 to 64 characters without spaces, braces or control characters");
}

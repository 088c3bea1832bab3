/** What a user may say of a Redis store. */

import { safeListener } from "../../errors.ts";
import { describeValue } from "../../util/duration.ts";
import type { OptionRules } from "../../util/validate.ts";
import {
  booleanRule,
  functionRule,
  isIntegerBetween,
  isObject,
  millisecondsRule,
  noProblem,
  stringRule,
  validateOptions,
} from "../../util/validate.ts";
import type { GuardDataLossOptions } from "./data-loss-guard.ts";
import type { WarningName } from "./diagnostics.ts";
import { WARNING_NAMES, warnOnce } from "./diagnostics.ts";
import type { ReplicaSettings } from "./replica-acks.ts";

/** What may be said of a Redis store. */
export interface RedisOptions {
  /**
   * The beginning of the names of our keys and channels. Clients with the same prefix see each other's locks. The prefix
   * that a client of ioredis may have (`keyPrefix`) does not count. Default "holdfast".
   */
  readonly prefix?: string;
  /** How long the server may take to be reached for the first time, in milliseconds. Default 5 s. */
  readonly connectTimeoutMs?: number;
  /** After how many milliseconds a command is given up on; its outcome is found out by asking again. Default 5 s. */
  readonly commandTimeoutMs?: number;
  /**
   * Use a server that throws keys away when memory is full (any `maxmemory-policy` but noeviction): a lock that it throws
   * away is granted to somebody else while it is held. Default false: open() refuses such a server.
   */
  readonly allowEviction?: boolean;
  /**
   * After a loss of data (a flush, an empty restart, a replica promoted without the last writes) grant nothing new for as
   * long as the longest ttl, while those who hold place their claims anew: so nobody is granted over a live holder. It
   * needs the right to INFO, the first use of a prefix waits as long, too, and all clients of a prefix must have it alike.
   * Default false: a loss is noticed, its holders are told at once, and `warn` tells how many.
   */
  readonly guardDataLoss?: boolean | GuardDataLossOptions;
  /**
   * No lock is told to be held before so many replicas have acknowledged it, and no renewal of it counts before. While too
   * few do, nobody is granted, and holders are told of the loss when their leases end. A fail-over to a replica that has
   * acknowledged then loses no lock. It costs two more round trips and needs the right to WAIT. Default: none.
   */
  readonly replicas?: ReplicaOptions;
  /**
   * Told in plain words of what endangers locks: settings of the server, locks that it lost. Default: a warning of the
   * process.
   */
  readonly warn?: (warning: string) => void;
  /**
   * Which warnings `open()` does not give, by the names that `holdfast doctor` shows: "version", "role", "failover",
   * "clients", "memory", "disk", "appendonly", and "guardDataLoss" for the grace period that it begins with. What happens
   * later, such as locks that the server lost, is told all the same. Default: none.
   */
  readonly silenceWarnings?: readonly WarningName[];
  /** For claims that bring no label of their own. */
  readonly label?: string;
}

/** Replicas that are waited for. */
export interface ReplicaOptions {
  /** How many must have acknowledged, in a Cluster of each master. */
  readonly minAcks: number;
  /** How long they are waited for, in milliseconds; less than `commandTimeoutMs`. Default 1 s. */
  readonly timeoutMs?: number;
}

const OPTION_RULES: OptionRules<RedisOptions> = {
  prefix: (value) => noProblem(validatePrefix(value)),
  connectTimeoutMs: millisecondsRule(),
  commandTimeoutMs: millisecondsRule(),
  allowEviction: booleanRule,
  guardDataLoss(value) {
    if (typeof value === "boolean") return null;
    if (!isObject(value)) return "true, false or { maxTtlMs }";
    const maxTtlMs = millisecondsRule(100, 86_400_000);
    return noProblem(
      validateOptions<GuardDataLossOptions>("guardDataLoss", value, { maxTtlMs }, { prefix: "guardDataLoss." }),
    );
  },
  replicas(value) {
    if (!isObject(value)) return "{ minAcks, timeoutMs }";
    const minAcks = (count: unknown): string | null =>
      isIntegerBetween(count, 1, 100) ? null : "a whole number from 1 to 100";
    const rules = { minAcks, timeoutMs: millisecondsRule(1, 60_000) };
    return noProblem(validateOptions("replicas", value, rules, { required: ["minAcks"], prefix: "replicas." }));
  },
  warn: functionRule,
  silenceWarnings(value) {
    const names = WARNING_NAMES.join(", ");
    if (!Array.isArray(value)) return `a list of ${names}`;
    const unknownName: unknown = value.find((name: unknown) => !(WARNING_NAMES as readonly unknown[]).includes(name));
    if (unknownName === undefined) return null;
    throw new TypeError(`silenceWarnings knows no warning ${describeValue(unknownName)}, but ${names}`);
  },
  label: stringRule,
};

/** @throws TypeError naming the option that is wrong, or none */
export function validateRedisOptions(options: RedisOptions): void {
  validateOptions("redis", options, OPTION_RULES);
}

export function resolveReplicaSettings(option: ReplicaOptions | undefined): ReplicaSettings | null {
  return option === undefined ? null : { minAcks: option.minAcks, timeoutMs: option.timeoutMs ?? 1_000 };
}

/** @throws TypeError */
function validatePrefix(prefix: unknown): string {
  // braces are what Redis Cluster finds a key's slot by, and we put them where we need them
  if (typeof prefix === "string" && /^[^{}\s\p{Cc}]{1,64}$/u.test(prefix)) return prefix;
  throw new TypeError("prefix must be 1 to 64 characters without spaces, braces and control characters");
}

/** Whom to tell what makes locks less safe. */
export function resolveWarn({ warn = warnOnce }: RedisOptions): (warning: string) => void {
  return safeListener(warn);
}

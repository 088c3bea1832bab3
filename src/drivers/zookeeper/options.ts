/** The options of the ZooKeeper driver, validated first, since they may come from JavaScript. */

import type { Clock } from "../../util/clock.ts";
import type { Duration } from "../../util/duration.ts";
import type { OptionRules } from "../../util/validate.ts";
import {
  booleanRule,
  clockRule,
  isIntegerBetween,
  isObject,
  millisecondsRule,
  noProblem,
  timeoutRule,
  validateOptions,
} from "../../util/validate.ts";
import { serversRule, tlsRule } from "../cluster-options.ts";
import { tokenBaseRule } from "../revision-tokens.ts";
import { validatePath } from "./client/paths.ts";
import type { Acl } from "./client/records.ts";
import type { SaslOptions } from "./client/sasl.ts";
import type { RetryPolicy, ServerAddress } from "./client/server-list.ts";
import type { TlsOptions } from "./client/zookeeper.ts";
import type { Family } from "./node-names.ts";

/** How to reach an ensemble, and where its locks are. */
export interface ZooKeeperDriverOptions {
  /** At least one server; all must belong to one ensemble. */
  readonly servers: readonly ServerAddress[];
  /** A node that is prepended to every path, like Curator's namespace; created if necessary. Default: none. */
  readonly chroot?: string;
  /**
   * The parent node of all keys; created if necessary. A key that begins with "/" is itself a path. Default
   * "/holdfast".
   */
  readonly root?: string;
  /** How long the servers keep the claims of a silent client, in milliseconds; the servers limit it. Default 30 s. */
  readonly sessionMs?: number;
  /** How long the first connection may take. Default 5 s. */
  readonly connectTimeout?: Duration;
  /** Added to every token: for locks that were moved here from a store with higher tokens. Default 0n. */
  readonly tokenBase?: bigint;
  /** Credentials of ZooKeeper's own schemes, for instance digest and "user:password". Secrets. */
  readonly auth?: readonly { readonly scheme: string; readonly auth: string }[];
  /** SASL with DIGEST-MD5. */
  readonly sasl?: SaslOptions;
  /**
   * Connects over TLS with these options of node:tls. A function is called before each connection, so that certificates
   * can be renewed.
   */
  readonly tls?: TlsOptions;
  /**
   * The format of node names, so that locks of Java programs and of Holdfast exclude each other on one path: that of
   * Curator's InterProcessMutex, or that of its InterProcessReadWriteLock. Default "mutex".
   */
  readonly family?: Family;
  /**
   * false: a waiting claim keeps no queue entry. It tries again, after a short random time, when the claim that blocks
   * it has ended, and a later claim may be first. Default true.
   */
  readonly fair?: boolean;
  /** The delay before the next attempt to connect. Default: exponential(20, 1_000). */
  readonly retry?: RetryPolicy;
  /**
   * The ACL of created nodes. Default: if the client has credentials or an accepted certificate, only that identity;
   * otherwise open to all.
   */
  readonly acl?: readonly Acl[];
  /** The clock, for tests. */
  readonly clock?: Clock;
}

/** A shorter session would end before its first answer. The protocol has 32 bits for the session's length. */
const MIN_SESSION_MS = 100;

/** Each rule returns what the option must be, or null. */
const OPTION_RULES: OptionRules<ZooKeeperDriverOptions> = {
  servers: serversRule,
  chroot: (value) => noProblem(value === "" || validatePath(value, "chroot")),
  root: (value) => noProblem(validatePath(value, "root")),
  sessionMs: millisecondsRule(MIN_SESSION_MS),
  connectTimeout: timeoutRule("connectTimeout"),
  tokenBase: tokenBaseRule,
  auth: (value) => (isListOf(value, isCredential, 0) ? null : "a list of { scheme, auth }, both strings"),
  sasl: (value) => (hasStrings(value, "user", "password") ? null : "{ user, password }, both strings"),
  tls: tlsRule,
  family: (value) => (value === "mutex" || value === "readWrite" ? null : '"mutex" or "readWrite"'),
  fair: booleanRule,
  retry: (value) => (typeof value === "function" ? null : "a function of the number of failed rounds"),
  acl: (value) => (isListOf(value, isAcl) ? null : "a list of at least one { perms, scheme, id }"),
  clock: clockRule,
};

/** @throws TypeError naming the option that is wrong, missing or unknown; it shows no credential */
export function validateZooKeeperOptions(options: ZooKeeperDriverOptions): void {
  validateOptions("zookeeper", options, OPTION_RULES, { required: ["servers"], secret: ["auth", "sasl"] });
}

function isListOf(value: unknown, isItem: (item: unknown) => boolean, minLength = 1): boolean {
  return Array.isArray(value) && value.length >= minLength && value.every(isItem);
}

function hasStrings(value: unknown, ...names: readonly string[]): value is Readonly<Record<string, unknown>> {
  return isObject(value) && names.every((name) => typeof value[name] === "string");
}

function isCredential(value: unknown): boolean {
  return hasStrings(value, "scheme", "auth");
}

function isAcl(value: unknown): boolean {
  return hasStrings(value, "scheme", "id") && isIntegerBetween(value.perms, 1, 31);
}

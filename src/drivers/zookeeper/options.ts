/** How a driver of ZooKeeper is made: its options, checked before anything else, since they may come from JavaScript. */

import type { Clock } from "../../util/clock.ts";
import type { OptionRules } from "../../util/validate.ts";
import {
  booleanRule,
  clockRule,
  isIntegerBetween,
  isObject,
  millisecondsRule,
  noProblem,
  validateOptions,
} from "../../util/validate.ts";
import { validatePath } from "./client/paths.ts";
import type { Acl } from "./client/records.ts";
import type { RetryPolicy } from "./client/retry-policy.ts";
import type { SaslOptions } from "./client/sasl.ts";
import type { ServerAddress } from "./client/server-list.ts";
import type { TlsOptions } from "./client/transport.ts";
import type { Family } from "./node-names.ts";

/** How to reach an ensemble, and where locks stand in it. */
export interface ZooKeeperDriverOptions {
  /** At least one server; all of one ensemble. */
  readonly servers: readonly ServerAddress[];
  /** A node that stands before every path, as Curator's namespace does; made if need be. Default: none. */
  readonly chroot?: string;
  /** The node below which keys stand; made if need be. Keys that begin with "/" are paths themselves. Default "/holdfast". */
  readonly root?: string;
  /** How long the servers keep a client's claims without hearing of it, in milliseconds; they have bounds of their own. Default 30 s. */
  readonly sessionMs?: number;
  /** How long the first connection may take, in milliseconds. Default 5 s. */
  readonly connectTimeoutMs?: number;
  /** Added to every token: for locks that were moved here from a store with higher ones. Default 0n. */
  readonly tokenBase?: bigint;
  /** Credentials of ZooKeeper's own schemes, for instance digest and "user:password". Secrets. */
  readonly auth?: readonly { readonly scheme: string; readonly auth: string }[];
  /** SASL with DIGEST-MD5. */
  readonly sasl?: SaslOptions;
  /** Over TLS, with these options of node:tls; a function is asked for them before each connection: certificates are renewed. */
  readonly tls?: TlsOptions;
  /**
   * Whose names nodes bear, so that the locks of Java programs and ours exclude each other on one path: those of Curator's
   * InterProcessMutex, or those of its InterProcessReadWriteLock. Default "mutex".
   */
  readonly family?: Family;
  /**
   * false: a waiting claim keeps no place in line; it tries again, after a short random time, when whoever is in its way
   * has gone, and who comes later may be first. Default true.
   */
  readonly fair?: boolean;
  /** How long to rest before another connection is tried. Default: exponential(20, 1_000). */
  readonly retry?: RetryPolicy;
  /** Who may do what with our nodes. Default: if the servers know who we are, only we; else everybody. */
  readonly acl?: readonly Acl[];
  /** Time, for tests. */
  readonly clock?: Clock;
}

/** One that is shorter is over before its first answer; the servers take its length as 32 bits. */
const MIN_SESSION_MS = 100;
/** Tokens fit signed 64 bits, with room for those of the store itself. */
const MAX_TOKEN_BASE = 2n ** 62n;

/** Says what each must be, where it is not that. */
const OPTION_RULES: OptionRules<ZooKeeperDriverOptions> = {
  servers: (value) => (isListOf(value, isServer) ? null : "a list of at least one { host, port }"),
  chroot: (value) => noProblem(value === "" || validatePath(value, "chroot")),
  root: (value) => noProblem(validatePath(value, "root")),
  sessionMs: millisecondsRule(MIN_SESSION_MS),
  connectTimeoutMs: millisecondsRule(0),
  tokenBase: (value) =>
    typeof value === "bigint" && value >= 0n && value < MAX_TOKEN_BASE
      ? null
      : `a bigint from 0n to ${MAX_TOKEN_BASE}n`,
  auth: (value) => (isListOf(value, isCredential, 0) ? null : "a list of { scheme, auth }, two texts each"),
  sasl: (value) => (hasStrings(value, "user", "password") ? null : "{ user, password }, two texts"),
  tls: (value) =>
    isObject(value) || typeof value === "function" ? null : "options of node:tls, or a function that gives them",
  family: (value) => (value === "mutex" || value === "readWrite" ? null : '"mutex" or "readWrite"'),
  fair: booleanRule,
  retry: (value) => (typeof value === "function" ? null : "a function of the rounds that have failed"),
  acl: (value) => (isListOf(value, isAcl) ? null : "a list of at least one { perms, scheme, id }"),
  clock: clockRule,
};

/** @throws TypeError naming the option that is wrong, or missing, or none; it shows no credential */
export function validateZooKeeperOptions(options: ZooKeeperDriverOptions): void {
  validateOptions("zookeeper", options, OPTION_RULES, { required: ["servers"], secret: ["auth", "sasl"] });
}

function isListOf(value: unknown, isItem: (item: unknown) => boolean, minLength = 1): boolean {
  return Array.isArray(value) && value.length >= minLength && value.every(isItem);
}

function hasStrings(value: unknown, ...names: readonly string[]): value is Readonly<Record<string, unknown>> {
  return isObject(value) && names.every((name) => typeof value[name] === "string");
}

function isServer(value: unknown): boolean {
  return hasStrings(value, "host") && value.host !== "" && isIntegerBetween(value.port, 1, 65_535);
}

function isCredential(value: unknown): boolean {
  return hasStrings(value, "scheme", "auth");
}

function isAcl(value: unknown): boolean {
  return hasStrings(value, "scheme", "id") && isIntegerBetween(value.perms, 1, 31);
}

/** How a driver of ZooKeeper is made: its options, checked before anything else, since they may come from JavaScript. */

import type { Checks } from "../../checks.ts";
import { checkOptions, isClock, isFlag, isObject, isWhole, milliseconds, right } from "../../checks.ts";
import type { Clock } from "../../clock.ts";
import { checkedPath } from "./client/paths.ts";
import type { Acl } from "./client/records.ts";
import type { RetryPolicy } from "./client/retry.ts";
import type { SaslOptions } from "./client/sasl.ts";
import type { ServerAddress } from "./client/servers.ts";
import type { TlsOptions } from "./client/wire.ts";
import type { Family } from "./names.ts";

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
const LEAST_SESSION_MS = 100;
/** Tokens fit signed 64 bits, with room for those of the store itself. */
const MOST_TOKEN_BASE = 2n ** 62n;

/** Says what each must be, where it is not that. */
const CHECKS: Checks<ZooKeeperDriverOptions> = {
  servers: (value) => (isListOf(value, isServer) ? null : "a list of at least one { host, port }"),
  chroot: (value) => right(value === "" || checkedPath(value, "chroot")),
  root: (value) => right(checkedPath(value, "root")),
  sessionMs: milliseconds(LEAST_SESSION_MS),
  connectTimeoutMs: milliseconds(0),
  tokenBase: (value) =>
    typeof value === "bigint" && value >= 0n && value < MOST_TOKEN_BASE
      ? null
      : `a bigint from 0n to ${MOST_TOKEN_BASE}n`,
  auth: (value) => (isListOf(value, isCredential, 0) ? null : "a list of { scheme, auth }, two texts each"),
  sasl: (value) => (hasTexts(value, "user", "password") ? null : "{ user, password }, two texts"),
  tls: (value) =>
    isObject(value) || typeof value === "function" ? null : "options of node:tls, or a function that gives them",
  family: (value) => (value === "mutex" || value === "readWrite" ? null : '"mutex" or "readWrite"'),
  fair: isFlag,
  retry: (value) => (typeof value === "function" ? null : "a function of the rounds that have failed"),
  acl: (value) => (isListOf(value, isAcl) ? null : "a list of at least one { perms, scheme, id }"),
  clock: isClock,
};

/** @throws TypeError naming the option that is wrong, or missing, or none; it shows no credential */
export function checkZooKeeperOptions(options: ZooKeeperDriverOptions): void {
  checkOptions("zookeeper", options, CHECKS, { needed: ["servers"], secret: ["auth", "sasl"] });
}

function isListOf(value: unknown, isOne: (one: unknown) => boolean, least = 1): boolean {
  return Array.isArray(value) && value.length >= least && value.every(isOne);
}

function hasTexts(value: unknown, ...names: readonly string[]): value is Readonly<Record<string, unknown>> {
  return isObject(value) && names.every((name) => typeof value[name] === "string");
}

function isServer(value: unknown): boolean {
  return hasTexts(value, "host") && value.host !== "" && isWhole(value.port, 1, 65_535);
}

function isCredential(value: unknown): boolean {
  return hasTexts(value, "scheme", "auth");
}

function isAcl(value: unknown): boolean {
  return hasTexts(value, "scheme", "id") && isWhole(value.perms, 1, 31);
}

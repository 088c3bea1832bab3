/** The options of the etcd driver, validated first, since they may come from JavaScript. */

import type { ConnectionOptions } from "node:tls";
import type { Clock } from "../../util/clock.ts";
import type { Duration } from "../../util/duration.ts";
import type { OptionRules } from "../../util/validate.ts";
import {
  booleanRule,
  clockRule,
  millisecondsRule,
  stringRule,
  timeoutRule,
  validateOptions,
} from "../../util/validate.ts";
import { serversRule, tlsRule } from "../cluster-options.ts";
import type { ServerAddress } from "../cluster-url.ts";
import { tokenBaseRule } from "../revision-tokens.ts";

/** How to reach a cluster, and where its locks are. */
export interface EtcdOptions {
  /** The client addresses of at least one member; all must belong to one cluster. */
  readonly servers: readonly ServerAddress[];
  /** The user, if the servers authenticate. They do not take a certificate for a user over the JSON gateway. */
  readonly user?: string;
  /** The password of the user. A secret. */
  readonly password?: string;
  /**
   * Connects over TLS with these options of node:tls. A function is called before each connection, so that certificates
   * can be renewed.
   */
  readonly tls?: ConnectionOptions | (() => ConnectionOptions);
  /**
   * Precedes every key. With "" the name that `etcdctl lock` uses is the key itself. Default "holdfast/".
   */
  readonly prefix?: string;
  /**
   * true: locks of `etcdctl lock` and of the official Go client on the name `<prefix><key>` and locks of Holdfast exclude each other. These
   * programs take the entries of the key "a/b" for entries of "a", too. false: slashes of keys are escaped, so that they do not, and other
   * programs do not find a key that has one. Default true.
   */
  readonly compatible?: boolean;
  /** How long the first connection may take. Default 5 s. */
  readonly connectTimeout?: Duration;
  /** Timeout of a call in milliseconds. Its outcome is then unknown, and a retry finds it out. Default 2 s. */
  readonly commandTimeoutMs?: number;
  /** Added to every token: for locks that were moved here from a store with higher tokens. Default 0n. */
  readonly tokenBase?: bigint;
  /** The clock, for tests. */
  readonly clock?: Clock;
}

/** Each rule returns what the option must be, or null. */
const OPTION_RULES: OptionRules<EtcdOptions> = {
  servers: serversRule,
  user: (value) => (typeof value === "string" && value !== "" ? null : "a name"),
  password: stringRule,
  tls: tlsRule,
  prefix: (value) =>
    typeof value === "string" && !value.includes("\u0000") ? null : "a text without control characters",
  compatible: booleanRule,
  connectTimeout: timeoutRule("connectTimeout"),
  commandTimeoutMs: millisecondsRule(),
  tokenBase: tokenBaseRule,
  clock: clockRule,
};

/** @throws TypeError naming the option that is wrong, missing or unknown; it shows no password */
export function validateEtcdOptions(options: EtcdOptions): void {
  validateOptions("etcd", options, OPTION_RULES, { required: ["servers"], secret: ["password"] });
  if ((options.user === undefined) !== (options.password === undefined))
    throw new TypeError("etcd needs both user and password, or neither");
}

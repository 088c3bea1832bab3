/** fenceEtcd(): a transaction of the user in etcd, where the lock is, that cannot commit if the lock was lost. */

import type { Compare } from "../drivers/etcd/client/messages.ts";
import { wasCreatedAt } from "../drivers/etcd/client/messages.ts";
import { DEFAULT_PREFIX, Names } from "../drivers/etcd/names.ts";
import { RevisionTokens } from "../drivers/revision-tokens.ts";
import { isObject, validateOptions } from "../util/validate.ts";
import type { FencedLock } from "./locks.ts";
import { readGrants } from "./locks.ts";

/** The options of the etcd driver that decide where an entry is, as the driver has them. */
export interface EtcdFenceOptions {
  /** Default "holdfast/". */
  readonly prefix?: string;
  /** Default true. */
  readonly compatible?: boolean;
  /** Default 0n. */
  readonly tokenBase?: bigint;
}

/** A transaction of the package etcd3: a client, or what its `if` returns. */
interface TransactionBuilder {
  if?(key: string, column: "Create", comparison: "==", value: string): unknown;
  and?(key: string, column: "Create", comparison: "==", value: string): unknown;
}

/**
 * Adds to a transaction of etcd the conditions that the lock is still held: the entry of each of its keys exists, with the revision that has
 * created it. Without them, the transaction does nothing.
 * @param txn a transaction in the form of etcd's JSON gateway: `{ compare, success, failure }`; or a client of the package etcd3, or what its
 *   `if()` returns
 * @param lock a lock of the etcd driver, in the same cluster
 * @returns the transaction with the conditions, to which operations can be added; the one that was passed in is not changed
 * @throws LockLostError if the lock is known to be lost; TypeError if an argument is wrong
 */
export function fenceEtcd<T extends object>(txn: T, lock: FencedLock, options: EtcdFenceOptions = {}): T {
  validateOptions("fenceEtcd", options, {
    prefix: (value) => (typeof value === "string" ? null : "a string"),
    compatible: (value) => (typeof value === "boolean" ? null : "true or false"),
    tokenBase: (value) => (typeof value === "bigint" ? null : "a bigint"),
  });
  if (!isObject(txn)) throw new TypeError("txn must be a transaction of etcd");
  const { prefix = DEFAULT_PREFIX, compatible = true, tokenBase = 0n } = options;
  const names = new Names(prefix, compatible);
  const tokens = new RevisionTokens(tokenBase);
  const entries = readGrants(lock).map(({ storeKey, token, tag }) => ({
    name: `${names.toQueueName(storeKey)}${tag}`,
    revision: tokens.toRevision(token),
  }));
  if (isBuilder(txn)) {
    let builder: TransactionBuilder = txn;
    for (const { name, revision } of entries) {
      const add = (builder.and ?? builder.if)?.bind(builder);
      builder = add?.(name, "Create", "==", String(revision)) as TransactionBuilder;
    }
    return builder as T;
  }
  const { compare = [] } = txn as { readonly compare?: readonly Compare[] };
  if (!Array.isArray(compare)) throw new TypeError("txn.compare must be a list");
  const conditions = entries.map(({ name, revision }) => wasCreatedAt(name, revision));
  return Object.assign({}, txn, { compare: [...compare, ...conditions] });
}

function isBuilder(txn: object): txn is TransactionBuilder {
  const { if: begin, and } = txn as TransactionBuilder;
  return typeof begin === "function" || typeof and === "function";
}

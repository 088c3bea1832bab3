/** How PostgreSQL names the advisory lock of a key. */

import { StoreRefusedError } from "../../../errors.ts";
import { isIntegerBetween } from "../../../util/validate.ts";

/** A bigint of 64 bits, or a pair of integers of 32 bits: PostgreSQL keeps the two kinds apart. */
export type LockNumber = bigint | readonly [number, number];

const MAX_INT = 2 ** 31 - 1;

/** The first 64 bits of the key's SHA-256. All clients must agree on it. */
export function hashKey(key: string): bigint {
  // fencing loads this file for one function that few programs call: an import would take it two milliseconds
  return process.getBuiltinModule("node:crypto").hash("sha256", key, "buffer").readBigInt64BE();
}

/**
 * The parameters of PostgreSQL's functions: one or two.
 * @throws StoreRefusedError if the number does not fit
 */
export function toParameters(key: string, lock: LockNumber): readonly string[] {
  if (typeof lock === "bigint" && BigInt.asIntN(64, lock) === lock) return [String(lock)];
  if (Array.isArray(lock) && lock.length === 2 && lock.every((part) => isIntegerBetween(part, -MAX_INT - 1, MAX_INT)))
    return lock.map(String);
  throw new StoreRefusedError(
    "postgres: the option keyToLock must return a bigint of 64 bits, or two integers of 32 bits",
    { keys: [key] },
  );
}

/** A call of one of PostgreSQL's functions with these parameters. */
export function toCall(name: string, parameters: readonly string[]): string {
  if (parameters.length === 1) return `pg_catalog.${name}($1::text::bigint)`;
  return `pg_catalog.${name}($1::text::int, $2::text::int)`;
}

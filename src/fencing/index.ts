/** holdfast/fencing: work that cannot commit, and writes that are refused, if the lock was lost. */

export { FenceConflictError, StaleLockError } from "./errors.ts";
export { type EtcdFenceOptions, fenceEtcd } from "./etcd-fence.ts";
export { fence, fenceSync } from "./fence.ts";
export { createFenceGuard, type FenceGuard, type FenceGuardOptions } from "./guard.ts";
export type { FencedLock } from "./locks.ts";
export { restoreIdleTimeout } from "./mysql-fence.ts";
export type { FenceOptions, TableOptions } from "./options.ts";
export { fenceRedis, type RedisFenceOptions } from "./redis-fence.ts";
export { createFenceTable, fenceMigration } from "./table.ts";
export { lockInTransaction, type TransactionLockOptions } from "./transaction-lock.ts";
export type { SqlDialect } from "./types.ts";

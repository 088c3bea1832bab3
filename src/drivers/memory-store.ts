/** What memory drivers share: a lock table and a clock. */

import type { Notification } from "../lock-table/table.ts";
import { LockTable } from "../lock-table/table.ts";
import type { ClaimId } from "../spi/driver.ts";
import type { Clock } from "../util/clock.ts";
import { systemClock } from "../util/clock.ts";

/** Receives the notifications of a driver's claims: one table serves several drivers. */
export type NotifyOwner = (id: ClaimId, answer: Notification<unknown>["answer"]) => void;

/** A store that several memory drivers share, so that their claims exclude each other. */
export interface MemoryStore {
  /** The clock of its leases and tokens. */
  readonly clock: Clock;
}

/** What a MemoryStore is inside. */
interface TableStore extends MemoryStore {
  readonly table: LockTable<NotifyOwner>;
}

/** Makes a store that several memory drivers of one process can share. */
export function memoryStore(clock: Clock = systemClock): MemoryStore {
  const store: TableStore = { table: new LockTable<NotifyOwner>(), clock };
  return store;
}

/** The lock table of a store that memoryStore() made. */
export function tableOf(store: MemoryStore): LockTable<NotifyOwner> {
  return (store as TableStore).table;
}

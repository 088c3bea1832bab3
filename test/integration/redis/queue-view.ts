/** What is alive in a snapshot of Redis, for the fuzzer and in the words of the model of the queues. */

import type { Snapshot, StoredQueue, StoredRecord } from "../../support/stores/redis-inspector.ts";
import { ENTRY_PATTERN } from "../../support/stores/redis-inspector.ts";
import { describeEntry } from "./queue-model.ts";

export interface View {
  readonly now: number;
  /** By id; also those whose leases have ended. */
  readonly records: ReadonlyMap<string, StoredRecord>;
  /** By key, ids of live claims in the order of arrival. */
  readonly waiting: ReadonlyMap<string, readonly string[]>;
  readonly admitted: ReadonlyMap<string, readonly string[]>;
}

export const EMPTY_VIEW: View = { now: 0, records: new Map(), waiting: new Map(), admitted: new Map() };

/** @param snapshot of one prefix in one database */
export function readView({ now, spaces }: Snapshot): View {
  const [space] = spaces.values();
  const records = new Map([...(space?.records ?? [])].map(([owner, record]) => [owner.slice(2), record]));
  const waiting = new Map<string, readonly string[]>();
  const admitted = new Map<string, readonly string[]>();
  const isLive = (id: string): boolean => (records.get(id)?.expiresAt ?? 0) > now;
  for (const [name, queue] of space?.queues ?? []) {
    const key = name.slice(2);
    const held = listHeld(queue, now).map(([member]) => readId(member));
    const queued = queue.waiting.map(([member]) => readId(member));
    admitted.set(key, held.filter(isLive));
    waiting.set(
      key,
      queued.filter((id) => isLive(id) && records.get(id)?.token === 0),
    );
  }
  return { now, records, waiting, admitted };
}

/** The state as `QueueModel.describe` has it. @param buckets those whose counters count */
export function describeSnapshot({ now, spaces }: Snapshot, buckets: ReadonlySet<string>): Record<string, unknown> {
  const [space] = spaces.values();
  const state: Record<string, unknown> = {};
  if (space === undefined) return state;
  const { queues, records, counters } = space;
  const ownerOf = (member: string): string => `${ENTRY_PATTERN.exec(member)?.[1]}${readId(member)}`;
  for (const [name, queue] of queues) {
    const held = listHeld(queue, now).map(([member, expires]) => `${readId(member)} ${expires}`);
    const queued = queue.waiting.filter(([member]) => (records.get(ownerOf(member))?.expiresAt ?? 0) > now);
    const key = name.slice(2);
    if (held.length > 0) state[`${key} admitted`] = held.sort();
    if (queued.length > 0) state[`${key} waiting`] = queued.map(([member]) => readId(member));
  }
  for (const [owner, record] of records) {
    const { expiresAt, ttl: ttlMs } = record;
    if (expiresAt > now) state[owner.slice(2)] = describeEntry({ ...record, ttlMs });
  }
  for (const [bucket, last] of counters) if (buckets.has(bucket)) state[`{${bucket}}`] = last;
  return state;
}

function listHeld({ form, admitted }: StoredQueue, now: number): StoredQueue["admitted"] {
  return form === "free" ? [] : admitted.filter(([, expires]) => expires > now);
}

function readId(member: string): string {
  return ENTRY_PATTERN.exec(member)?.[2] ?? member;
}

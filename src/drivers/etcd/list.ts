/** Lists for tools: the queues of keys, including the entries of other programs. */

import { countAdmitted } from "../../lock-table/admission.ts";
import type { Answer, ClaimView, ListOptions, ListQuery, Page } from "../../spi/driver.ts";
import type { RevisionTokens } from "../revision-tokens.ts";
import type { EtcdClient } from "./client/client.ts";
import { rangeOf } from "./client/messages.ts";
import type { Names, QueuedEntry } from "./names.ts";
import { compareRevisions, decodeEntry, toTag } from "./names.ts";

/** How many entries a request reads. */
const ENTRIES_PER_READ = 1_000;
/** The ttl of an entry whose lease does not say it. */
const UNKNOWN_TTL_MS = 60_000;

/** An entry with its place. */
export interface PlacedEntry extends QueuedEntry {
  readonly key: string;
  readonly isHeld: boolean;
}

/** A page of the claims that match the query, each queue from its front. @param now the wall clock, in milliseconds */
export async function listClaims(
  client: EtcdClient,
  names: Names,
  tokens: RevisionTokens,
  now: number,
  query: ListQuery,
  { max, after, signal }: ListOptions,
): Promise<Page<ClaimView>> {
  const entries = await readQueues(client, names, query, signal);
  // other programs name all their entries of one lease alike, so a tag is not a place
  const start = after === undefined ? 0 : entries.findIndex(({ name }) => name === after) + 1;
  const page = entries.slice(start, start + max);
  signal?.throwIfAborted();
  const remaining = await readRemaining(client, page);
  const items = page.map((entry) => toView(entry, tokens, remaining.get(entry.leaseId) ?? 0, now));
  const last = page.at(-1);
  return last !== undefined && entries.length > start + max ? { items, next: last.name } : { items };
}

/** The queues of the keys that match, each from its front. */
export async function readQueues(
  client: EtcdClient,
  names: Names,
  query: ListQuery,
  signal?: AbortSignal,
): Promise<PlacedEntry[]> {
  const { key: only, prefix = "" } = query;
  const queues = new Map<string, QueuedEntry[]>();
  const start = only !== undefined ? names.toQueueName(only) : `${names.prefix}${names.toKeyPrefix(prefix)}`;
  for (const entry of await readAll(client, start, signal)) {
    const key = names.parseKey(entry.name);
    // what has no lease is no lock, but the queue of its key waits for it
    const matches = only !== undefined ? key === only : key?.startsWith(prefix) === true && entry.leaseId !== "0";
    if (key === null || !matches) continue;
    const queue = queues.get(key);
    if (queue === undefined) queues.set(key, [entry]);
    else queue.push(entry);
  }
  return [...queues.keys()].sort().flatMap((key) => toPlaced(key, queues.get(key) as QueuedEntry[]));
}

/** All entries whose names begin with this text. */
async function readAll(client: EtcdClient, text: string, signal: AbortSignal | undefined): Promise<QueuedEntry[]> {
  const entries: QueuedEntry[] = [];
  let { key, range_end } = rangeOf(text);
  for (;;) {
    signal?.throwIfAborted();
    const { kvs = [] } = await client.range({ key, range_end, limit: ENTRIES_PER_READ });
    entries.push(...kvs.map(decodeEntry));
    const last = kvs.at(-1);
    if (last === undefined || kvs.length < ENTRIES_PER_READ) return entries;
    key = Buffer.concat([Buffer.from(last.key, "base64"), Buffer.of(0)]).toString("base64");
  }
}
function toPlaced(key: string, entries: readonly QueuedEntry[]): PlacedEntry[] {
  const queue = [...entries].sort(compareRevisions);
  const admitted = countAdmitted(queue);
  return queue.map((entry, index) => ({ ...entry, key, isHeld: index < admitted }));
}

/** What remains of the leases of these entries, in milliseconds. */
async function readRemaining(client: EtcdClient, entries: readonly QueuedEntry[]): Promise<Map<string, number>> {
  const ids = [...new Set(entries.map(({ leaseId }) => leaseId))].filter((id) => id !== "0");
  const seconds = await Promise.all(
    ids.map(async (ID) => (await client.call<{ TTL?: string }>("/v3/lease/timetolive", { ID })).TTL ?? "0"),
  );
  return new Map(ids.map((id, index) => [id, Math.max(Number(seconds[index]), 0) * 1_000]));
}

function toView(entry: PlacedEntry, allTokens: RevisionTokens, leaseMs: number, now: number): ClaimView {
  const { key, name, value, permits, limit, isHeld, createRevision } = entry;
  const ttlMs = value?.ttlMs ?? UNKNOWN_TTL_MS;
  const { tokens, floor, wait, label } = value ?? { tokens: 1, floor: 0n, wait: true, label: "(not Holdfast)" };
  const remainingMs = Math.min(leaseMs, ttlMs);
  const answer: Answer = isHeld
    ? { state: "held", token: allTokens.first(createRevision), tokenCount: allTokens.count(tokens), remainingMs }
    : { state: "waiting", remainingMs, recheckMs: ttlMs };
  return {
    tag: toTag(name),
    locks: [{ key, permits, limit }],
    ...{ ttlMs, floor, wait, answer },
    tokenCount: tokens,
    label: value?.isRevoked === true ? `(revoked) ${label}`.trimEnd() : label,
    ageMs: value === null ? 0 : Math.max(now - value.madeAt, 0),
  };
}

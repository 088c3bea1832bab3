/** Lists for tools: the queues of keys, including the entries of other programs. */

import { countAdmitted } from "../../lock-table/admission.ts";
import type { Answer, ClaimView, ListOptions, ListQuery, Page } from "../../spi/driver.ts";
import type { Gateway } from "./client/gateway.ts";
import type { RangeResponse } from "./client/messages.ts";
import { encodeText, rangeOf } from "./client/messages.ts";
import type { Names, QueuedEntry } from "./names.ts";
import { decodeEntry } from "./names.ts";
import type { EntryQueues } from "./queue.ts";
import { toTokenCount } from "./tokens.ts";

/** How many entries a request reads. */
const ENTRIES_PER_READ = 1_000;
/** The ttl of an entry whose lease does not say it. */
const UNKNOWN_TTL_MS = 60_000;

interface ListContext {
  readonly gateway: Gateway;
  readonly names: Names;
  readonly queues: EntryQueues;
  /** The wall clock, in milliseconds. */
  readonly wall: () => number;
}

/** An entry with its place. */
export interface PlacedEntry extends QueuedEntry {
  readonly isHeld: boolean;
}

/** A page of the claims that match the query, each queue from its front. */
export async function listClaims(
  { gateway, names, queues, wall }: ListContext,
  query: ListQuery,
  { max, after, signal }: ListOptions,
): Promise<Page<ClaimView>> {
  const entries =
    query.key !== undefined
      ? await readQueue(gateway, names.toQueueName(query.key), signal)
      : await readQueues(gateway, names, query.prefix, signal);
  // other programs name all their entries of one lease alike, so a tag is not a place
  const start = after === undefined ? 0 : entries.findIndex(({ name }) => name === after) + 1;
  const page = entries.slice(start, start + max + 1);
  signal?.throwIfAborted();
  const remaining = await readRemaining(gateway, page);
  const now = wall();
  const views = page.map((entry) => toView(entry, names, queues, remaining.get(entry.leaseId) ?? 0, now));
  const last = page[max - 1];
  return page.length > max && last !== undefined ? { items: views.slice(0, max), next: last.name } : { items: views };
}

/** The queue of one key, front first. */
export async function readQueue(gateway: Gateway, queueName: string, signal?: AbortSignal): Promise<PlacedEntry[]> {
  const entries = await readAll(gateway, queueName, signal);
  return toPlaced(entries.filter(({ name }) => !name.includes("/", queueName.length)));
}

async function readQueues(
  gateway: Gateway,
  names: Names,
  prefix: string,
  signal: AbortSignal | undefined,
): Promise<PlacedEntry[]> {
  const queues = new Map<string, QueuedEntry[]>();
  for (const entry of await readAll(gateway, `${names.prefix}${names.toKeyPrefix(prefix)}`, signal)) {
    const key = names.parseKey(entry.name);
    // what has no lease is no lock
    if (key === null || !key.startsWith(prefix) || entry.leaseId === "0") continue;
    const queue = queues.get(key);
    if (queue === undefined) queues.set(key, [entry]);
    else queue.push(entry);
  }
  return [...queues.keys()].sort().flatMap((key) => toPlaced(queues.get(key) as QueuedEntry[]));
}

/** All entries whose names begin with this text. */
async function readAll(gateway: Gateway, text: string, signal: AbortSignal | undefined): Promise<QueuedEntry[]> {
  const { range_end } = toTextRange(text);
  const entries: QueuedEntry[] = [];
  let key = text === "" ? encodeText("\u0000") : encodeText(text);
  for (;;) {
    signal?.throwIfAborted();
    const { kvs = [] } = await gateway.call<RangeResponse>("/v3/kv/range", { key, range_end, limit: ENTRIES_PER_READ });
    entries.push(...kvs.map(decodeEntry));
    const last = kvs.at(-1);
    if (last === undefined || kvs.length < ENTRIES_PER_READ) return entries;
    key = Buffer.concat([Buffer.from(last.key, "base64"), Buffer.of(0)]).toString("base64");
  }
}

/** The range of the keys that begin with any text. */
function toTextRange(text: string): { readonly range_end: string } {
  if (text === "" || text.charCodeAt(text.length - 1) < 0x7f) return rangeOf(text);
  return { range_end: Buffer.concat([Buffer.from(text, "utf8"), Buffer.of(0xff)]).toString("base64") };
}

function toPlaced(entries: readonly QueuedEntry[]): PlacedEntry[] {
  const queue = [...entries].sort((left, right) => (left.createRevision < right.createRevision ? -1 : 1));
  const admitted = countAdmitted(queue);
  return queue.map((entry, index) => ({ ...entry, isHeld: index < admitted }));
}

/** What remains of the leases of these entries, in milliseconds. */
async function readRemaining(gateway: Gateway, entries: readonly QueuedEntry[]): Promise<Map<string, number>> {
  const ids = [...new Set(entries.map(({ leaseId }) => leaseId))].filter((id) => id !== "0");
  const seconds = await Promise.all(
    ids.map(async (ID) => (await gateway.call<{ TTL?: string }>("/v3/lease/timetolive", { ID })).TTL ?? "0"),
  );
  return new Map(ids.map((id, index) => [id, Math.max(Number(seconds[index]), 0) * 1_000]));
}

function toTag(name: string): string {
  return name.slice(name.lastIndexOf("/") + 1);
}

function toView(entry: PlacedEntry, names: Names, queues: EntryQueues, leaseMs: number, now: number): ClaimView {
  const { name, value, permits, limit, isHeld, createRevision } = entry;
  const ttlMs = value?.ttlMs ?? UNKNOWN_TTL_MS;
  const { tokens, floor, wait, label } = value ?? { tokens: 1, floor: 0n, wait: true, label: "(not Holdfast)" };
  const remainingMs = Math.min(leaseMs, ttlMs);
  const answer: Answer = isHeld
    ? { state: "held", token: queues.toToken(createRevision), tokenCount: toTokenCount(tokens), remainingMs }
    : { state: "waiting", remainingMs, recheckMs: ttlMs };
  return {
    tag: toTag(name),
    locks: [{ key: names.parseKey(name) ?? name, permits, limit }],
    ...{ ttlMs, floor, wait, answer },
    tokenCount: tokens,
    label: value?.isRevoked === true ? `(revoked) ${label}`.trimEnd() : label,
    ageMs: value === null ? 0 : Math.max(now - value.madeAt, 0),
  };
}

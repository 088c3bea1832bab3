// A driver of one's own: locks in one document of a store that can change a document atomically (a row with a version,
// an object with an ETag, a transaction). docs/write-a-driver.md shows this file as it stands.

import type { Answer, Claim, ClaimView, Driver, ListOptions, LockSpec, Page, Traits } from "holdfast/driver";
import { acceptsFloor, countAdmitted, nextToken, publicTag, StoreRefusedError } from "holdfast/driver";

/** What the driver needs of its store. */
export interface DocumentStore {
  /**
   * Runs `work` on the document and stores the result; no other client changes it meanwhile. The time is the store's, and
   * at most MAX_CHANGE_MS old when the change is stored.
   */
  change<T>(work: (document: LockDocument, nowMs: number) => T): Promise<T>;
}

export interface LockDocument {
  /** The queue of each key, front first, and the last token of the key. */
  readonly queues: Map<string, { entries: QueueEntry[]; lastToken: number }>;
  /** Ids whose late `claim` calls are to be answered "none", until then. */
  readonly tombstones: Map<string, number>;
}

export interface QueueEntry extends LockSpec {
  readonly claim: Omit<Claim, "locks" | "floor">;
  readonly floor: string;
  readonly enqueuedAt: number;
  expiresAt: number;
  /** 0 while it waits. */
  token: number;
}

/** A change that takes longer is refused, so that its time is not older than a token that has been forgotten. */
export const MAX_CHANGE_MS = 1_000;

/** This store cannot speak first, so a claim that waits is asked about again. */
const RECHECK_MS = 10;

export const TRAITS: Traits = {
  lease: { claim: true },
  manyKeys: false, // the core then takes several keys one by one, in key order
  permits: "any",
  fencing: true,
  fifo: true,
  durability: "restart",
  recall: false,
};

export function documentDriver(store: DocumentStore): Driver {
  /** One change: what has run out ends, `work` is done, those at the front are admitted; then `work`'s answer is given. */
  const change = <T>(work: (document: LockDocument, now: number) => () => T): Promise<T> =>
    store.change((document, now) => {
      removeExpired(document, now);
      const answer = work(document, now);
      grantWaiters(document, now);
      return answer();
    });

  return {
    name: "document",
    open: async () => TRAITS,
    close: async () => undefined,

    claim: (claim) =>
      change((document, now) => {
        const entry = findEntry(document, claim);
        if (entry !== undefined) entry.expiresAt = now + Number(claim.ttlMs);
        else if (!document.tombstones.has(claim.id)) enqueue(document, claim, now);
        return () => answerFor(document, claim, now);
      }),

    renew: (claims) =>
      change((document, now) => {
        for (const claim of claims) {
          const entry = findEntry(document, claim);
          if (entry !== undefined) entry.expiresAt = now + Number(claim.ttlMs);
        }
        return () => claims.map((claim) => answerFor(document, claim, now));
      }),

    release: (releases) =>
      change((document, now) => {
        const there = releases.map(({ claim, hasUnansweredClaim }) => {
          if (hasUnansweredClaim) document.tombstones.set(claim.id, now + Number(claim.ttlMs));
          const entries = document.queues.get(claim.locks[0].key)?.entries ?? [];
          const index = entries.findIndex((entry) => entry.claim.id === claim.id);
          return index >= 0 && entries.splice(index, 1).length === 1;
        });
        return () => there;
      }),

    list: ({ prefix, key }, options) =>
      change(({ queues }, now) => () => {
        const keys = key !== undefined ? [key] : [...queues.keys()].filter((one) => one.startsWith(prefix)).sort();
        const views = keys.flatMap((key) => (queues.get(key)?.entries ?? []).map((entry) => toView(entry, now)));
        return toPage(views, options);
      }),
  };
}

function removeExpired({ queues, tombstones }: LockDocument, now: number): void {
  for (const [id, until] of tombstones) if (until <= now) tombstones.delete(id);
  for (const [key, queue] of queues) {
    queue.entries = queue.entries.filter((entry) => entry.expiresAt > now);
    // a clock that has passed the last token gives higher ones by itself
    if (queue.entries.length === 0 && queue.lastToken < (now - MAX_CHANGE_MS) * 1_000) queues.delete(key);
  }
}

function grantWaiters({ queues }: LockDocument, now: number): void {
  for (const queue of queues.values()) {
    for (const entry of queue.entries.slice(0, countAdmitted(queue.entries))) {
      if (entry.token !== 0) continue;
      entry.token = nextToken(queue.lastToken, BigInt(entry.floor), now * 1_000);
      queue.lastToken = entry.token + entry.claim.tokenCount - 1;
    }
  }
}

function enqueue({ queues }: LockDocument, { locks: [spec], floor, ...claim }: Claim, now: number): void {
  const entry = {
    ...spec,
    claim,
    floor: String(floor), // JSON has no bigint
    enqueuedAt: now,
    expiresAt: now + Number(claim.ttlMs),
    token: 0,
  };
  const queue = queues.get(spec.key) ?? { entries: [], lastToken: 0 };
  if (!acceptsFloor(queue.lastToken, floor, now * 1_000))
    throw new StoreRefusedError("document: the floor is ahead of time");
  const entries = [...queue.entries, entry];
  if (!claim.wait && countAdmitted(entries) < entries.length) return;
  queues.set(spec.key, { ...queue, entries });
}

function findEntry({ queues }: LockDocument, { id, locks }: Claim): QueueEntry | undefined {
  return queues.get(locks[0].key)?.entries.find((entry) => entry.claim.id === id);
}

function answerFor(document: LockDocument, claim: Claim, now: number): Answer {
  const entry = findEntry(document, claim);
  return entry === undefined ? { state: "none" } : toAnswer(entry, now);
}

function toAnswer({ claim, expiresAt, token }: QueueEntry, now: number): Answer {
  const remainingMs = expiresAt - now;
  if (token === 0) return { state: "waiting", remainingMs, recheckMs: RECHECK_MS };
  return { state: "held", token: BigInt(token), tokenCount: claim.tokenCount, remainingMs };
}

export function toPage(views: readonly ClaimView[], { max, after }: ListOptions): Page<ClaimView> {
  const start = views.findIndex(({ tag }) => tag === after) + 1; // 0 without a cursor
  const items = views.slice(start, start + max);
  const next = views.length > start + max ? items.at(-1)?.tag : undefined;
  return next === undefined ? { items } : { items, next };
}

/** What tools see: the public tag instead of the id, which is a secret. */
function toView(entry: QueueEntry, now: number): ClaimView {
  const { key, permits, limit, floor, enqueuedAt } = entry;
  const { id, ...claim } = entry.claim;
  return {
    ...claim,
    locks: [{ key, permits, limit }],
    floor: BigInt(floor),
    tag: publicTag(id),
    answer: toAnswer(entry, now),
    ageMs: now - enqueuedAt,
  };
}

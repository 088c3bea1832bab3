// A driver of one's own: locks in one document of a store that can change a document atomically (a row with a version,
// an object with an ETag, a transaction). docs/write-a-driver.md shows this file as it stands.

import { createHash } from "node:crypto";
import type { Answer, Claim, ClaimView, Driver, LockSpec, Traits } from "holdfast";
import { StoreRefusedError } from "holdfast";

/** What the driver needs of its store. */
export interface DocumentStore {
  /** Runs `work` on the document and keeps what it made of it; nobody else changes it meanwhile. The time is the store's. */
  change<T>(work: (document: LockDocument, nowMs: number) => T): Promise<T>;
}

export interface LockDocument {
  /** The line of each key, front first, and the last token given in it. */
  readonly queues: Map<string, { places: QueueEntry[]; last: number }>;
  /** Ids whose late `claim` calls are to be answered "none", until then. */
  readonly tombstones: Map<string, number>;
}

interface QueueEntry {
  readonly claim: Omit<Claim, "locks" | "floor"> & { readonly hold: LockSpec; readonly floor: number };
  readonly enqueuedAt: number;
  expiresAt: number;
  /** 0 while it waits. */
  token: number;
}

const DAY_MICROS = 86_400_000_000;
/** This store cannot speak first, so whoever waits asks again. */
const RECHECK_MS = 10;

const TRAITS: Traits = {
  lease: { claim: true },
  manyKeys: false, // the core then takes several keys one by one, in key order
  permits: "any",
  fencing: true,
  fifo: true,
  durability: "restart",
  recall: false,
};

export function documentDriver(store: DocumentStore): Driver {
  /** One change: what has run out ends, `work` is done, whoever is in front is granted; then `work`'s answer is given. */
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
        if (Number(claim.floor) > now * 1_000 + DAY_MICROS)
          throw new StoreRefusedError("document: the floor is ahead of time");
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
          const entries = document.queues.get(claim.locks[0].key)?.places ?? [];
          const index = entries.findIndex((entry) => entry.claim.id === claim.id);
          return index >= 0 && entries.splice(index, 1).length === 1;
        });
        return () => there;
      }),

    list: ({ prefix, key }, { max, after }) =>
      change(({ queues }, now) => () => {
        const keys = key !== undefined ? [key] : [...queues.keys()].filter((one) => one.startsWith(prefix)).sort();
        const views = keys.flatMap((key) => (queues.get(key)?.places ?? []).map((entry) => toView(entry, now)));
        const start = views.findIndex(({ tag }) => tag === after) + 1; // 0 without a cursor
        const items = views.slice(start, start + max);
        const next = views.length > start + max ? items.at(-1)?.tag : undefined;
        return next === undefined ? { items } : { items, next };
      }),
  };
}

/** The admission rule: from the front, as long as the permits in use and the place's own fit into its own limit. */
function countAdmitted(entries: readonly QueueEntry[]): readonly QueueEntry[] {
  let used = 0;
  const end = entries.findIndex(({ claim: { hold } }) => {
    used += hold.permits;
    return used > hold.limit;
  });
  return end === -1 ? entries : entries.slice(0, end);
}

function removeExpired({ queues, tombstones }: LockDocument, now: number): void {
  for (const [id, until] of tombstones) if (until <= now) tombstones.delete(id);
  for (const [key, line] of queues) {
    line.places = line.places.filter((entry) => entry.expiresAt > now);
    // a clock that has passed the last token gives higher ones by itself
    if (line.places.length === 0 && line.last < now * 1_000) queues.delete(key);
  }
}

/** Tokens: above the last one, not below the claim's floor, and else the store's clock in microseconds. */
function grantWaiters({ queues }: LockDocument, now: number): void {
  for (const line of queues.values()) {
    for (const entry of countAdmitted(line.places)) {
      if (entry.token !== 0) continue;
      entry.token = Math.max(line.last + 1, entry.claim.floor, now * 1_000);
      line.last = entry.token + entry.claim.tokenCount - 1;
    }
  }
}

function enqueue({ queues }: LockDocument, claim: Claim, now: number): void {
  const { locks, floor, ...rest } = claim;
  const [hold] = locks;
  const entry: QueueEntry = {
    claim: { ...rest, hold, floor: Number(floor) },
    enqueuedAt: now,
    expiresAt: now + Number(claim.ttlMs),
    token: 0,
  };
  const line = queues.get(hold.key) ?? { places: [], last: 0 };
  if (!claim.wait && !countAdmitted([...line.places, entry]).includes(entry)) return;
  line.places.push(entry);
  queues.set(hold.key, line);
}

function findEntry({ queues }: LockDocument, { id, locks }: Claim): QueueEntry | undefined {
  return queues.get(locks[0].key)?.places.find((entry) => entry.claim.id === id);
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

/** What tools see. The id is a secret; the tag is made of it by a one-way function. */
function toView(entry: QueueEntry, now: number): ClaimView {
  const { id, hold, floor, ...rest } = entry.claim;
  return {
    ...rest,
    locks: [hold],
    floor: BigInt(floor),
    tag: publicTag(id),
    answer: toAnswer(entry, now),
    ageMs: now - entry.enqueuedAt,
  };
}

function publicTag(id: string): string {
  const bits = [...createHash("sha256").update(id).digest()].map((byte) => byte.toString(2).padStart(8, "0")).join("");
  const letters = bits.slice(0, 50).match(/.{5}/g) ?? [];
  return letters.map((five) => "abcdefghijklmnopqrstuvwxyz234567".charAt(Number.parseInt(five, 2))).join("");
}

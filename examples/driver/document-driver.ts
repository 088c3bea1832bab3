// A driver of one's own: locks in one document of a store that can change a document atomically (a row with a version,
// an object with an ETag, a transaction). docs/write-a-driver.md shows this file as it stands.

import { createHash } from "node:crypto";
import type { Answer, Claim, ClaimView, Driver, Hold, Traits } from "holdfast";
import { FatalDriverError } from "holdfast";

/** What the driver needs of its store. */
export interface DocumentStore {
  /** Runs `work` on the document and keeps what it made of it; nobody else changes it meanwhile. The time is the store's. */
  change<T>(work: (document: LockDocument, nowMs: number) => T): Promise<T>;
}

export interface LockDocument {
  /** The line of each key, front first, and the last token given in it. */
  readonly lines: Map<string, { places: Place[]; last: number }>;
  /** Ids whose late `claim` calls are to be answered "none", until then. */
  readonly buried: Map<string, number>;
}

interface Place {
  readonly claim: Omit<Claim, "holds" | "floor"> & { readonly hold: Hold; readonly floor: number };
  readonly since: number;
  endsAt: number;
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
  survives: "restart",
};

export function documentDriver(store: DocumentStore): Driver {
  /** One change: what has run out ends, `work` is done, whoever is in front is granted; then `work`'s answer is given. */
  const change = <T>(work: (document: LockDocument, now: number) => () => T): Promise<T> =>
    store.change((document, now) => {
      tidy(document, now);
      const answer = work(document, now);
      grant(document, now);
      return answer();
    });

  return {
    name: "document",
    traits: TRAITS,
    open: async () => undefined,
    close: async () => undefined,

    claim: (claim) =>
      change((document, now) => {
        if (Number(claim.floor) > now * 1_000 + DAY_MICROS)
          throw new FatalDriverError("document: the floor is ahead of time");
        const place = placeOf(document, claim);
        if (place !== undefined) place.endsAt = now + Number(claim.ttlMs);
        else if (!document.buried.has(claim.id)) enter(document, claim, now);
        return () => answerOf(document, claim, now);
      }),

    renew: (claims) =>
      change((document, now) => {
        for (const claim of claims) {
          const place = placeOf(document, claim);
          if (place !== undefined) place.endsAt = now + Number(claim.ttlMs);
        }
        return () => claims.map((claim) => answerOf(document, claim, now));
      }),

    release: (claims, unanswered) =>
      change((document, now) => {
        const there = claims.map((claim) => {
          if (unanswered?.has(claim.id)) document.buried.set(claim.id, now + Number(claim.ttlMs));
          const places = document.lines.get(claim.holds[0].key)?.places ?? [];
          const index = places.findIndex((place) => place.claim.id === claim.id);
          return index >= 0 && places.splice(index, 1).length === 1;
        });
        return () => there;
      }),

    list: ({ prefix, key }, max, after) =>
      change(({ lines }, now) => () => {
        const keys = key !== undefined ? [key] : [...lines.keys()].filter((one) => one.startsWith(prefix)).sort();
        const views = keys.flatMap((key) => (lines.get(key)?.places ?? []).map((place) => viewOf(place, now)));
        const start = views.findIndex(({ tag }) => tag === after) + 1; // 0 without a cursor
        return views.slice(start, start + max);
      }),
  };
}

/** The admission rule: from the front, as long as the permits in use and the place's own fit into its own limit. */
function admitted(places: readonly Place[]): readonly Place[] {
  let used = 0;
  const end = places.findIndex(({ claim: { hold } }) => {
    used += hold.permits;
    return used > hold.limit;
  });
  return end === -1 ? places : places.slice(0, end);
}

function tidy({ lines, buried }: LockDocument, now: number): void {
  for (const [id, until] of buried) if (until <= now) buried.delete(id);
  for (const [key, line] of lines) {
    line.places = line.places.filter((place) => place.endsAt > now);
    // a clock that has passed the last token gives higher ones by itself
    if (line.places.length === 0 && line.last < now * 1_000) lines.delete(key);
  }
}

/** Tokens: above the last one, not below the claim's floor, and else the store's clock in microseconds. */
function grant({ lines }: LockDocument, now: number): void {
  for (const line of lines.values()) {
    for (const place of admitted(line.places)) {
      if (place.token !== 0) continue;
      place.token = Math.max(line.last + 1, place.claim.floor, now * 1_000);
      line.last = place.token + place.claim.tokens - 1;
    }
  }
}

function enter({ lines }: LockDocument, claim: Claim, now: number): void {
  const { holds, floor, ...rest } = claim;
  const [hold] = holds;
  const place: Place = {
    claim: { ...rest, hold, floor: Number(floor) },
    since: now,
    endsAt: now + Number(claim.ttlMs),
    token: 0,
  };
  const line = lines.get(hold.key) ?? { places: [], last: 0 };
  if (!claim.wait && !admitted([...line.places, place]).includes(place)) return;
  line.places.push(place);
  lines.set(hold.key, line);
}

function placeOf({ lines }: LockDocument, { id, holds }: Claim): Place | undefined {
  return lines.get(holds[0].key)?.places.find((place) => place.claim.id === id);
}

function answerOf(document: LockDocument, claim: Claim, now: number): Answer {
  const place = placeOf(document, claim);
  return place === undefined ? { state: "none" } : standing(place, now);
}

function standing({ claim, endsAt, token }: Place, now: number): Answer {
  const ttlMs = endsAt - now;
  if (token === 0) return { state: "waiting", ttlMs, recheckMs: RECHECK_MS };
  return { state: "held", token: BigInt(token), tokens: claim.tokens, ttlMs };
}

/** What tools see. The id is a secret; the tag is made of it by a one-way function. */
function viewOf(place: Place, now: number): ClaimView {
  const { id, hold, floor, ...rest } = place.claim;
  return {
    ...rest,
    holds: [hold],
    floor: BigInt(floor),
    tag: tagOf(id),
    answer: standing(place, now),
    ageMs: now - place.since,
  };
}

function tagOf(id: string): string {
  const bits = [...createHash("sha256").update(id).digest()].map((byte) => byte.toString(2).padStart(8, "0")).join("");
  const letters = bits.slice(0, 50).match(/.{5}/g) ?? [];
  return letters.map((five) => "abcdefghijklmnopqrstuvwxyz234567".charAt(Number.parseInt(five, 2))).join("");
}

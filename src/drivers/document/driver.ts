/**
 * Locks in any store with a conditional write. A store has a fixed number of documents (layout.ts); a key belongs to one of them, which
 * has the queues of its keys, and the last token.
 *
 * An operation (claim, renew, release, detach, revoke) of a process on a document (shared-document.ts):
 *
 *   pending   it waits for the calls of the operations before it; then all that are pending become one draft
 *             -> writing if the draft has changed
 *             -> done if it has not, and the document was read after the operation began; else -> reading
 *   reading   one read for all -> pending; an error: -> failed
 *   writing   one conditional write for all. It happened: -> done. A conflict: -> reading, after a short random pause.
 *             An error, or no answer in time: -> unknown
 *   unknown   -> reading. If the mark of the write is in the document: -> done. Else -> pending, and if the document has still
 *             the version that was to be replaced, the write may yet happen: only one of the two can, and the next read shows which
 *   done      answered from the document as it was written or read
 *   failed    the outcome is unknown, and the core calls again: operations are idempotent
 *
 * Invariants
 * - A document changes only by a conditional write on the version that the draft was made from. So decisions on an old document, or by a
 *   stopwatch that is behind, cause a conflict and no wrong grant.
 * - A lease ends for its holder `ttl` after the write was SENT that renewed it last; for others a `ttl` (and 1 %) after they SAW that
 *   renewal first, which was later (stopwatches.ts). An entry is removed as over only by a write on a document that has this renewal.
 *   So two never hold what one may, whatever the clocks say, if their rates differ by at most 1 %.
 * - Every grant of a document has tokens above all before it, of whatever key. So an idle key leaves nothing.
 * - A claim is found by its id, so that a repeated call makes no second entry; a released one leaves a tombstone if a call for it may
 *   still come.
 * - Bytes that this layout did not write (another program's, damaged, of another store or version), and a missing document, are refused:
 *   never believed, never overwritten.
 * - A document that would become too long refuses new claims only.
 */

import { StoreRefusedError } from "../../errors.ts";
import type { Claim, ClaimView, Driver, DriverEvents, Traits } from "../../spi/driver.ts";
import { toPage } from "../../util/chunk.ts";
import { systemClock } from "../../util/clock.ts";
import { createSuspendAwareTime } from "../../util/suspend-detector.ts";
import { DocumentClaims } from "./document-claims.ts";
import type { LockDocument } from "./format.ts";
import type { Layout } from "./layout.ts";
import { documentName, numberOf, openLayout, verifyDocument } from "./layout.ts";
import type { DocumentDriverOptions } from "./options.ts";
import { validateDocumentOptions } from "./options.ts";
import { SharedDocument } from "./shared-document.ts";
import type { DocumentStore } from "./store.ts";
import { StoreCalls } from "./store-calls.ts";

/** The shortest lease: a shorter one would cost a renewal every few seconds, and time out when the store is slow. */
const MIN_TTL_MS = 10_000;
const USUAL_DOCUMENTS = 16;
const POLL_MS = 1_000;
/** So that a renewal of the shortest lease can be tried three times. */
const CALL_TIMEOUT_MS = 2_000;

/**
 * Locks in a store that has a conditional write.
 * @throws TypeError naming the option that is wrong
 */
export function documentDriver(store: DocumentStore, options: DocumentDriverOptions = {}): Driver {
  return createDocumentDriver(store, options);
}

/** The same with another shortest lease and other randomness, for tests. */
export function createDocumentDriver(
  store: DocumentStore,
  options: DocumentDriverOptions,
  minTtlMs: number = MIN_TTL_MS,
  random: () => number = Math.random,
): Driver {
  validateDocumentOptions(store, options);
  const { clock = systemClock, callTimeoutMs = CALL_TIMEOUT_MS } = options;
  const calls = new StoreCalls(store, clock, callTimeoutMs);
  let documents: readonly DocumentClaims[] = [];
  let layout: Layout = { storeId: "", documents: 1 };

  const claimsOf = ({ locks: [{ key }] }: Claim): DocumentClaims => documentOf(key);
  const documentOf = (key: string): DocumentClaims => documents[numberOf(key, layout)] as DocumentClaims;

  return {
    name: store.name,

    async open(events): Promise<Traits> {
      await calls.open();
      layout = await openLayout(calls, options.documents, USUAL_DOCUMENTS);
      const readTime = createSuspendAwareTime(clock);
      const open = (number: number) =>
        openDocument({ store, calls, layout, options, events, readTime, random }, number);
      documents = Array.from({ length: layout.documents }, (_, number) => open(number));
      return traitsOf(store);
    },

    async claim(claim) {
      if (Number(claim.ttlMs) < minTtlMs)
        throw new StoreRefusedError(`${store.name}: the shortest ttl is ${minTtlMs} ms, not ${claim.ttlMs} ms`);
      return claimsOf(claim).claim(claim);
    },

    renew: (claims) => inDocuments(claims, claimsOf, (document, part) => document.renew(part)),

    // a document that is damaged, or that many write, delays no other
    shardOf: ({ locks: [{ key }] }) => documentName(numberOf(key, layout), layout),

    release: (releases) =>
      inDocuments(
        releases,
        ({ claim }) => claimsOf(claim),
        (document, part) => document.release(part),
      ),

    forget: (claim) => claimsOf(claim).forget(claim),

    detach: (claims, remainingMs = Number.POSITIVE_INFINITY) =>
      inDocuments(claims, claimsOf, (document, part) => document.detach(part, remainingMs)),

    revoke: (targets) =>
      inDocuments(
        targets,
        ({ key }) => documentOf(key),
        (document, part) => document.revoke(part),
      ),

    async list({ key, prefix }, { max, after, signal }) {
      const views =
        key === undefined
          ? await Promise.all(documents.map((document) => document.list((one) => one.startsWith(prefix), signal)))
          : [await documentOf(key).list((one) => one === key, signal)];
      const sorted = views.flat().sort((a, b) => compareKeys(a, b));
      const start = sorted.findIndex(({ tag }) => tag === after) + 1; // 0 without a cursor
      return toPage(sorted.slice(start), max);
    },

    async diagnose() {
      const claims = await Promise.all(documents.map((document) => document.list(() => true)));
      const most = Math.max(...claims.map(({ length }) => length));
      const documentsText = `${layout.documents} documents, with at most ${most} claims each`;
      return [
        ...((await store.diagnose?.()) ?? []),
        { status: "ok", name: "documents", message: documentsText },
        {
          status: "ok",
          name: "leases",
          message: "a process that has just started waits a whole ttl behind a dead holder",
        },
      ];
    },

    async close() {
      for (const document of documents) document.close();
      calls.end();
      await store.close?.();
    },
  };
}

interface OpenStore {
  readonly store: DocumentStore;
  readonly calls: StoreCalls;
  readonly layout: Layout;
  readonly options: DocumentDriverOptions;
  readonly events: DriverEvents;
  readonly readTime: () => number;
  readonly random: () => number;
}

function openDocument(open: OpenStore, number: number): DocumentClaims {
  const { store, calls, layout, options, events, readTime, random } = open;
  const { clock = systemClock, pollMs = POLL_MS, tokenBase = 0n } = options;
  const name = documentName(number, layout);
  const shared = new SharedDocument({
    ...{ name, calls, clock, readTime, random },
    verify: (stored) => verifyDocument(calls, layout, number, stored),
    onDocument: (document: LockDocument) => claims.onDocument(document),
  });
  const claims = new DocumentClaims({
    ...{ name: `${store.name}: the document ${name}`, shared, events, readTime, pollMs, tokenBase },
    now: () => clock.now(),
    watch: store.watch && ((changed) => store.watch?.(name, changed) ?? (() => undefined)),
  });
  return claims;
}

function traitsOf({ watch }: DocumentStore): Traits {
  return {
    lease: { claim: true, observed: true },
    manyKeys: false,
    permits: "any",
    fencing: true,
    fifo: true,
    durability: "failover",
    recall: watch === undefined ? "recheck" : "push",
  };
}

/** Does the work in the documents of the items, and returns the results in the order of the items. */
async function inDocuments<T, R>(
  items: readonly T[],
  documentOf: (item: T) => DocumentClaims,
  work: (document: DocumentClaims, part: readonly T[]) => Promise<readonly R[]>,
): Promise<readonly R[]> {
  const parts = new Map<DocumentClaims, T[]>();
  for (const item of items) {
    const document = documentOf(item);
    parts.set(document, [...(parts.get(document) ?? []), item]);
  }
  const results = new Map<T, R>();
  await Promise.all(
    [...parts].map(async ([document, part]) => {
      const answers = await work(document, part);
      for (const [index, item] of part.entries()) results.set(item, answers[index] as R);
    }),
  );
  return items.map((item) => results.get(item) as R);
}

function compareKeys({ locks: [a] }: ClaimView, { locks: [b] }: ClaimView): number {
  return a.key === b.key ? 0 : a.key < b.key ? -1 : 1;
}

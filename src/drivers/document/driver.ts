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
 *   renewal first, which was later (Stopwatches in draft.ts). An entry is removed as over only by a write on a document that has this renewal.
 *   So two never hold what one may, whatever the clocks say, if their rates differ by at most 1 %.
 * - A grant has tokens above all that earlier writes gave in the document, of whatever key. So an idle key leaves nothing.
 * - A claim is found by its id, so that a repeated call makes no second entry; a released one leaves a tombstone if a call for it may
 *   still come.
 * - Bytes that this layout did not write (another program's, damaged, of another store or version), and a missing document, are refused:
 *   never believed, never overwritten.
 * - A document that would become too long refuses new claims only.
 */

import { StoreRefusedError } from "../../errors.ts";
import { listTable } from "../../lock-table/listing.ts";
import { LockTable } from "../../lock-table/table.ts";
import type { Claim, Driver, DriverEvents, Traits } from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";
import { systemClock } from "../../util/clock.ts";
import { publicTag } from "../../util/ids.ts";
import { createSuspendAwareTime } from "../../util/suspend-detector.ts";
import { keepProcessAlive } from "../../util/timeout.ts";
import { isObject, requireValid, validateOptions } from "../../util/validate.ts";
import { CallTimeouts } from "../call-timeouts.ts";
import { openWithRetries, toConnectTimeoutMs } from "../connect-timeout.ts";
import { DocumentClaims } from "./claims.ts";
import type { Layout } from "./layout.ts";
import { documentName, numberOf, openLayout } from "./layout.ts";
import type { DocumentDriverOptions } from "./options.ts";
import { DOCUMENT_OPTION_RULES } from "./options.ts";
import type { DocumentStore } from "./store.ts";

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
  requireValid(store, "store", (value) =>
    isObject(value) && typeof value.read === "function" && typeof value.write === "function"
      ? null
      : "a store with read() and write()",
  );
  validateOptions("document", options, DOCUMENT_OPTION_RULES);
  return createDocumentDriver(store, options);
}

/** The same for options that are valid, whatever else they are for; with another shortest lease and other randomness, for tests. */
export function createDocumentDriver(
  store: DocumentStore,
  options: DocumentDriverOptions,
  minTtlMs: number = MIN_TTL_MS,
  random: () => number = Math.random,
): Driver {
  const { clock = systemClock, callTimeoutMs = CALL_TIMEOUT_MS, pollMs = POLL_MS, tokenBase = 0n } = options;
  const timeouts = new CallTimeouts(clock, callTimeoutMs, store.name);
  const access = { store, timeouts };
  let documents: readonly DocumentClaims[] = [];
  let layout: Layout = { storeId: "", documents: 1 };

  const documentOf = (key: string): DocumentClaims => documents[numberOf(key, layout)] as DocumentClaims;
  const claimsOf = ({ locks: [{ key }] }: Claim): DocumentClaims => documentOf(key);

  async function open(events: DriverEvents): Promise<Traits> {
    await timeouts.call(async (signal) => store.open?.(signal), "connection");
    layout = await openLayout(access, options.documents, USUAL_DOCUMENTS);
    const readTime = createSuspendAwareTime(clock);
    const opened = { ...access, layout, clock, readTime, random, tokenBase: Number(tokenBase) };
    const createClaims = (_: unknown, number: number) => new DocumentClaims(opened, number, events, pollMs);
    documents = Array.from({ length: layout.documents }, createClaims);
    return traitsOf(store);
  }

  return {
    name: store.name,

    open(events) {
      const timeoutMs = toConnectTimeoutMs(options.connectTimeout);
      // one attempt lasts at most as long as a call: a library that takes longer to load is there for the next one
      return keepProcessAlive(clock, () => openWithRetries(clock, timeoutMs, () => open(events)));
    },

    async claim(claim) {
      if (Number(claim.ttlMs) < minTtlMs)
        throw new StoreRefusedError(`${store.name}: the shortest ttl is ${minTtlMs} ms, not ${claim.ttlMs} ms`);
      return claimsOf(claim).claim(claim);
    },

    renew: (claims) => Promise.all(claims.map((claim) => claimsOf(claim).renew(claim))),

    // a document that is damaged, or that many write, delays no other
    shardOf: ({ locks: [{ key }] }) => documentName(numberOf(key, layout), layout),

    release: (releases) =>
      Promise.all(
        releases.map((release) => {
          claimsOf(release.claim).forget(release.claim);
          return claimsOf(release.claim).change((draft) => draft.release(release));
        }),
      ),

    forget: (claim) => claimsOf(claim).forget(claim),

    detach: (claims, remainingMs) =>
      Promise.all(claims.map((claim) => claimsOf(claim).change((draft) => draft.detach(claim.id, remainingMs)))),

    revoke: (targets) =>
      Promise.all(targets.map((target) => documentOf(target.key).change((draft) => draft.revoke(target)))),

    async list(query, options) {
      const table = await readTable(
        clock,
        query.key === undefined ? documents : [documentOf(query.key)],
        options.signal,
      );
      const page = listTable(table, publicTag, { query, ...options }, clock.now());
      // a document does not say since when a claim is held
      return { ...page, items: page.items.map(({ heldMs: _heldMs, ...view }) => view) };
    },

    async diagnose() {
      const tables = await Promise.all(documents.map((document) => readTable(clock, [document])));
      const most = Math.max(...tables.map(({ records }) => records.size));
      return [
        ...((await store.diagnose?.()) ?? []),
        { status: "ok", name: "documents", message: `${layout.documents} documents, with at most ${most} claims each` },
        {
          status: "ok",
          name: "leases",
          message: "a process that has just started waits a whole ttl behind a dead holder",
        },
      ];
    },

    async close() {
      for (const document of documents) document.close();
      timeouts.expireAll();
      await store.close?.();
    },
  };
}

/** The claims of some documents, in a table that grants nothing. */
async function readTable(clock: Clock, parts: readonly DocumentClaims[], signal?: AbortSignal): Promise<LockTable> {
  const table = new LockTable();
  table.pauseGrants();
  await Promise.all(parts.map(({ document }) => document.addTo(table, signal)));
  table.advance({ now: clock.now(), micros: 1 }); // ends what is over
  return table;
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

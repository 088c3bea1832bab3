/** The claims of one process in one document: its calls for them, and the events that the driver reports about them. */

import type { ClaimRecord, QueueEntry } from "../../lock-table/key-queue.ts";
import { findEndAhead } from "../../lock-table/lease-expiry.ts";
import { isFrontWaiter, recallRecheckMs } from "../../lock-table/recall.ts";
import type { Answer, Claim, ClaimId, DriverEvents } from "../../spi/driver.ts";
import type { Draft } from "./draft.ts";
import { documentName } from "./layout.ts";
import type { OpenStore, Outcome } from "./shared-document.ts";
import { SharedDocument } from "./shared-document.ts";

/** While more of its lease is left, a held claim is looked up and not renewed. */
const UNRENEWED_SHARE = 7 / 8;
/** The same for one that waits, which asks often: reads are cheaper than writes. */
const UNRENEWED_WAITING_SHARE = 2 / 3;
/** A waiting claim reads so many times as seldom as the first one at most. */
const MAX_POLL_FACTOR = 10;

interface OwnClaim {
  readonly claim: Claim;
  /** By the last answer or push; null: none that still counts. */
  state: "waiting" | "held" | null;
  /** While it waits: when it asks again. */
  recheckAt: number;
  /** The number of the write for which it was recalled last: it placed or renewed the first claim that waits. */
  recalledBy: number;
  /** When the write was sent that this process has renewed it with last, by a time that counts suspensions. */
  sentAt: number;
}

export class DocumentClaims {
  readonly document: SharedDocument;
  readonly #open: OpenStore;
  readonly #events: DriverEvents;
  readonly #pollMs: number;
  readonly #name: string;
  readonly #own = new Map<ClaimId, OwnClaim>();
  #endWatch: (() => void) | null = null;

  constructor(open: OpenStore, number: number, events: DriverEvents, pollMs: number) {
    this.#open = open;
    this.#events = events;
    this.#pollMs = pollMs;
    this.#name = documentName(number, open.layout);
    this.document = new SharedDocument(open, number, (draft) => this.#onDocument(draft));
  }

  claim(claim: Claim): Promise<Answer> {
    return this.#ask(claim, (draft) => draft.claim(claim));
  }

  renew(claim: Claim): Promise<Answer> {
    return this.#ask(claim, (draft, own) => {
      if (this.#needsRenewal(own, draft)) draft.renew(claim.id);
    });
  }

  /** Changes the document, and returns what the work returned when it did. */
  change<T>(work: (draft: Draft) => T): Promise<T> {
    return this.document.run((draft) => {
      const result = work(draft);
      return () => result;
    });
  }

  /** This process gives the claim up. */
  forget({ id }: Claim): void {
    this.#own.delete(id);
  }

  close(): void {
    this.#own.clear();
    this.#endWatch?.();
  }

  #ask(claim: Claim, change: (draft: Draft, own: OwnClaim) => void): Promise<Answer> {
    const unknown = { state: null, recheckAt: 0, recalledBy: 0, sentAt: Number.NEGATIVE_INFINITY };
    const own = this.#own.get(claim.id) ?? { claim, ...unknown };
    this.#own.set(claim.id, own);
    const startedAt = this.#open.readTime();
    return this.document.run((draft) => {
      change(draft, own);
      return (outcome) => this.#answer(own, startedAt, outcome);
    });
  }

  #needsRenewal({ claim: { id, ttlMs }, sentAt }: OwnClaim, draft: Draft): boolean {
    const record = draft.table.records.get(id);
    if (record === undefined) return false;
    const share = record.isHeld ? UNRENEWED_SHARE : UNRENEWED_WAITING_SHARE;
    const [, leaseMs] = draft.renewalOf(id);
    if (leaseMs !== ttlMs || this.#open.readTime() - sentAt >= (1 - share) * leaseMs) return true;
    // its renewal recalls the holders once more, who may have missed the first push
    const isRecalling = recallRecheckMs(record, entryOf(record), 0) < Number.POSITIVE_INFINITY;
    return isRecalling && this.#open.store.watch !== undefined;
  }

  /** @param startedAt when the call began: from then on the core counts what remains */
  #answer(own: OwnClaim, startedAt: number, { draft, sentAt }: Outcome): Answer {
    const { id, recall = false } = own.claim;
    const record = draft.table.records.get(id);
    const answer = draft.answerFor(id);
    const isTracked = this.#own.get(id) === own;
    if (record === undefined || answer.state === "none") {
      if (isTracked) this.#own.delete(id);
      return answer;
    }
    const [renewedBy, leaseMs] = draft.renewalOf(id);
    if (sentAt !== null && renewedBy === draft.writeNumber) own.sentAt = sentAt;
    own.state = answer.state;
    if (isTracked && (answer.state === "waiting" || recall)) this.#startWatch();
    const remainingMs = Math.max(leaseMs - Math.max(startedAt - own.sentAt, 0), 0);
    if (answer.state === "held") return { ...answer, remainingMs };
    own.recheckAt = draft.time.now + answer.recheckMs;
    return { ...answer, remainingMs, recheckMs: Math.min(Math.ceil(answer.recheckMs), this.#pollIntervalMs(record)) };
  }

  /** How often it asks if nothing tells of changes. */
  #pollIntervalMs(record: ClaimRecord): number {
    if (this.#open.store.watch !== undefined) return Number.POSITIVE_INFINITY;
    let [place, ahead] = [1, entryOf(record)];
    for (; place < MAX_POLL_FACTOR && !isFrontWaiter(ahead); place++) ahead = ahead.previous as QueueEntry;
    return this.#pollMs * place;
  }

  /** A newer document is known. */
  #onDocument(draft: Draft): void {
    const { readTime, store } = this.#open;
    for (const [id, own] of this.#own) {
      const record = draft.table.records.get(id);
      const answer = draft.answerFor(id);
      if (own.state === null) continue; // its first call will be answered
      if (record === undefined || answer.state === "none") {
        own.state = null;
        this.#events.recheck(id);
      } else if (answer.state !== own.state) {
        this.#events.pushed(id, this.#answer(own, readTime(), { draft, sentAt: null }));
      } else if (answer.state === "waiting") {
        // a lease ahead was cut short: the first claim that waits asks again, and learns when
        if (isFrontWaiter(entryOf(record)) && findEndAhead(record) < own.recheckAt - 1) this.#events.recheck(id);
      } else if (answer.recalled && store.watch !== undefined) {
        const front = entryOf(record).queue.lastAdmitted?.next?.record.claim.id;
        const [renewedBy] = draft.renewalOf(front as ClaimId);
        if (renewedBy > own.recalledBy) this.#events.recalled(id);
        own.recalledBy = renewedBy;
      }
    }
  }

  #startWatch(): void {
    const { store } = this.#open;
    if (store.watch === undefined || this.#endWatch !== null) return;
    const isInterested = ({ state, claim }: OwnClaim): boolean => state === "waiting" || claim.recall === true;
    this.#endWatch = store.watch(this.#name, () => {
      if ([...this.#own.values()].some(isInterested)) this.document.refresh();
    });
    this.document.refresh(); // it may have changed before the watch began
  }
}

/** A claim in a document has one key. */
function entryOf({ entries: [entry] }: ClaimRecord): QueueEntry {
  return entry as QueueEntry;
}

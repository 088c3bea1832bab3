/** The claims of one process in one document: what is asked of the document for them, and what is told of them. */

import type { Answer, Claim, ClaimId, ClaimView, DriverEvents, Release, RevokeTarget } from "../../spi/driver.ts";
import { publicTag } from "../../util/ids.ts";
import type { Draft } from "./draft.ts";
import type { Entry, LockDocument } from "./format.ts";
import type { Outcome, SharedDocument } from "./shared-document.ts";

/** While more of its lease is left, a held claim is looked up and not renewed. */
const UNRENEWED_SHARE = 7 / 8;
/** The same for one that waits, which asks often: reads are cheaper than writes. */
const UNRENEWED_WAITING_SHARE = 2 / 3;
/** A waiting claim reads so many times as seldom as the first one at most. */
const MAX_POLL_FACTOR = 10;
/** So many claims ahead of one that waits are looked at to find when one may be over. */
const MAX_AHEAD = 32;
/** The first waiting claim behind a holder that can be recalled asks again so soon at first: the push may be lost. */
const FIRST_RECALL_MS = 500;

interface OwnClaim {
  readonly claim: Claim;
  /** By the last answer or push; null: none that still counts. */
  state: "waiting" | "held" | null;
  /** When the write was sent that this process has renewed it with last, by a time that counts suspensions. */
  sentAt: number;
  /** While it waits: when something ahead of it may be over, as its last answer says. */
  endAhead: number;
  /** The waiting claim, and its renewal, that it was recalled for last. */
  recalledFor: string;
}

interface Queues {
  readonly document: LockDocument | null;
  readonly byKey: ReadonlyMap<string, readonly Entry[]>;
}

export interface DocumentClaimsSettings {
  readonly name: string;
  readonly shared: SharedDocument;
  readonly events: DriverEvents;
  readonly readTime: () => number;
  readonly now: () => number;
  readonly pollMs: number;
  readonly tokenBase: bigint;
  /** Tells of changes; undefined: the store cannot, and claims poll. */
  readonly watch: ((changed: () => void) => () => void) | undefined;
}

export class DocumentClaims {
  readonly #settings: DocumentClaimsSettings;
  readonly #own = new Map<ClaimId, OwnClaim>();
  #endWatch: (() => void) | null = null;
  /** The queues of the document that was looked at last. */
  #queues: Queues = { document: null, byKey: new Map() };

  constructor(settings: DocumentClaimsSettings) {
    this.#settings = settings;
  }

  claim(claim: Claim): Promise<Answer> {
    const { name, shared, readTime, tokenBase } = this.#settings;
    const [own, startedAt] = [this.#track(claim), readTime()];
    return shared.run((draft, now) => {
      const entry = draft.find(claim.id);
      if (entry === undefined) draft.place(toNewEntry(claim, tokenBase), name);
      else if (!entry.isRevoked) draft.renew(entry, shared.stopwatches.ageOf(entry, now));
      return (outcome) => this.#answer(own, startedAt, outcome);
    });
  }

  renew(claims: readonly Claim[]): Promise<readonly Answer[]> {
    const { shared, readTime } = this.#settings;
    const [owns, startedAt] = [claims.map((claim) => this.#track(claim)), readTime()];
    return shared.run((draft, now) => {
      for (const own of owns) {
        const entry = draft.find(own.claim.id);
        if (entry !== undefined && this.#needsRenewal(own, entry, draft))
          draft.renew(entry, shared.stopwatches.ageOf(entry, now));
      }
      return (outcome) => owns.map((own) => this.#answer(own, startedAt, outcome));
    });
  }

  release(releases: readonly Release[]): Promise<readonly boolean[]> {
    for (const { claim } of releases) this.forget(claim);
    return this.#settings.shared.run((draft) => {
      const existed = releases.map(({ claim, hasUnansweredClaim }) => {
        const entry = draft.find(claim.id);
        if (entry !== undefined) draft.remove(entry, entry.isDetached ? "released" : null);
        if (hasUnansweredClaim) draft.bury(claim.id, "released", Number(claim.ttlMs));
        return entry !== undefined && !entry.isRevoked;
      });
      return () => existed;
    });
  }

  detach(claims: readonly Claim[], remainingMs: number): Promise<readonly boolean[]> {
    const { shared } = this.#settings;
    return shared.run((draft, now) => {
      const wereHeld = claims.map(({ id }) => {
        const entry = draft.find(id);
        if (entry === undefined || entry.token === 0 || entry.isRevoked) return false;
        const leaseMs = Math.min(entry.ttlMs, Math.ceil(remainingMs));
        draft.detach(entry, leaseMs, shared.stopwatches.ageOf(entry, now));
        return true;
      });
      return () => wereHeld;
    });
  }

  revoke(targets: readonly RevokeTarget[]): Promise<readonly boolean[]> {
    return this.#settings.shared.run((draft) => {
      const existed = targets.map(({ key, token, now: isRemoval }) => {
        const entry = draft.queueOf(key).find((one) => this.#hasToken(one, token));
        if (entry === undefined || (entry.isRevoked && !isRemoval)) return false;
        if (isRemoval) draft.remove(entry, "revoked");
        else draft.revoke(entry);
        return true;
      });
      return () => existed;
    });
  }

  /** This process gives the claim up. */
  forget({ id }: Claim): void {
    this.#own.delete(id);
  }

  /** The claims with such keys, front first. */
  async list(isListed: (key: string) => boolean, signal?: AbortSignal): Promise<readonly ClaimView[]> {
    const { shared, now } = this.#settings;
    const document = await shared.look(signal);
    const listed = [...document.entries.values()].filter((entry) => isListed(entry.key));
    return listed
      .filter((entry) => !shared.stopwatches.isOver(entry.id, entry, now()))
      .map((entry) => this.#toView(entry, document));
  }

  /** A newer document is known. */
  readonly onDocument = (document: LockDocument): void => {
    const { events, readTime } = this.#settings;
    for (const [id, own] of this.#own) {
      const entry = document.entries.get(id);
      if (own.state === null) continue;
      if (entry === undefined || entry.isRevoked) {
        own.state = null;
        events.recheck(id);
      } else if (own.state === "waiting" && entry.token !== 0) {
        events.pushed(id, this.#answer(own, readTime(), { document, sentAt: null }));
      } else if (own.state === "held") this.#recall(own, entry, this.#queueOf(entry, document));
      // a lease ahead was cut short: the first claim that waits asks again, and learns when
      else if (this.#endsSooner(own, entry, this.#queueOf(entry, document))) events.recheck(id);
    }
  };

  close(): void {
    this.#own.clear();
    this.#endWatch?.();
  }

  #track(claim: Claim): OwnClaim {
    const unknown = { state: null, sentAt: Number.NEGATIVE_INFINITY, endAhead: 0, recalledFor: "" };
    const own = this.#own.get(claim.id) ?? { claim, ...unknown };
    this.#own.set(claim.id, own);
    return own;
  }

  #needsRenewal({ sentAt }: OwnClaim, entry: Entry, draft: Draft): boolean {
    const { readTime, watch } = this.#settings;
    if (entry.isRevoked) return false;
    const share = entry.token === 0 ? UNRENEWED_WAITING_SHARE : UNRENEWED_SHARE;
    if (entry.leaseMs !== entry.ttlMs || readTime() - sentAt >= (1 - share) * entry.ttlMs) return true;
    // its renewal recalls the holders once more, who may have missed the first push
    const queue = draft.queueOf(entry.key);
    return watch !== undefined && frontWaiter(queue)?.id === entry.id && queue.some(isRecallable);
  }

  /** @param startedAt when the call began: from then on the core counts what remains */
  #answer(own: OwnClaim, startedAt: number, { document, sentAt }: Outcome): Answer {
    const { id, recall = false } = own.claim;
    const entry = document.entries.get(id);
    const isTracked = this.#own.get(id) === own;
    if (entry === undefined || entry.isRevoked) {
      if (isTracked) this.#own.delete(id);
      const reason = entry === undefined ? document.tombstones.get(id)?.reason : "revoked";
      return reason === undefined ? { state: "none" } : { state: "none", reason };
    }
    if (sentAt !== null && entry.renewedBy === document.writeNumber) own.sentAt = sentAt;
    own.state = entry.token === 0 ? "waiting" : "held";
    if (isTracked && (own.state === "waiting" || recall)) this.#startWatch();
    const remainingMs = Math.max(entry.leaseMs - Math.max(startedAt - own.sentAt, 0), 0);
    const queue = this.#queueOf(entry, document);
    own.endAhead = this.#endAhead(entry, queue);
    const isRecalled = recall && !entry.isDetached && frontWaiter(queue) !== undefined;
    return { ...this.#toAnswer(entry, queue, remainingMs), ...(isRecalled && { recalled: true }) } as Answer;
  }

  #toAnswer(entry: Entry, queue: readonly Entry[], remainingMs: number): Answer {
    const { token, tokenCount } = entry;
    if (token === 0) return { state: "waiting", remainingMs, recheckMs: this.#recheckMs(entry, queue) };
    return { state: "held", token: BigInt(token) + this.#settings.tokenBase, tokenCount, remainingMs };
  }

  /** Until something ahead of it may be over; sooner if nothing else tells of changes. */
  #recheckMs(entry: Entry, queue: readonly Entry[]): number {
    const { shared, now, pollMs, watch } = this.#settings;
    const times = [entry.ttlMs, this.#endAhead(entry, queue) - now()];
    const place = queue.indexOf(entry) - queue.findIndex(({ token }) => token === 0) + 1;
    if (watch === undefined) times.push(pollMs * Math.min(place, MAX_POLL_FACTOR));
    else if (place === 1 && queue.some(isRecallable))
      times.push(Math.max(FIRST_RECALL_MS, shared.stopwatches.ageOf(entry, now())));
    return Math.max(Math.ceil(Math.min(...times)), 1);
  }

  /** When the first of the claims ahead of it may be over. */
  #endAhead(entry: Entry, queue: readonly Entry[]): number {
    const { shared, now } = this.#settings;
    const ahead = queue.slice(0, Math.min(queue.indexOf(entry), MAX_AHEAD));
    return Math.min(...ahead.map((one) => shared.stopwatches.endsAt(one.id, one, now())));
  }

  #endsSooner(own: OwnClaim, entry: Entry, queue: readonly Entry[]): boolean {
    return frontWaiter(queue) === entry && this.#endAhead(entry, queue) < own.endAhead - 1;
  }

  #recall(own: OwnClaim, entry: Entry, queue: readonly Entry[]): void {
    const { events, watch } = this.#settings;
    if (watch === undefined || !isRecallable(entry)) return;
    const front = frontWaiter(queue);
    const recalledFor = front === undefined ? "" : `${front.id} ${front.renewedBy}`;
    const isNew = recalledFor !== own.recalledFor;
    own.recalledFor = recalledFor;
    if (isNew && front !== undefined) events.recalled(entry.id);
  }

  #startWatch(): void {
    const { watch, shared } = this.#settings;
    if (watch === undefined || this.#endWatch !== null) return;
    const isInterested = ({ state, claim }: OwnClaim): boolean => state === "waiting" || claim.recall === true;
    this.#endWatch = watch(() => {
      if ([...this.#own.values()].some(isInterested)) shared.refresh();
    });
    shared.refresh(); // it may have changed before the watch began
  }

  #hasToken({ token, tokenCount }: Entry, wanted: bigint): boolean {
    const offset = wanted - this.#settings.tokenBase - BigInt(token);
    return token !== 0 && offset >= 0n && offset < BigInt(tokenCount);
  }

  #queueOf({ key }: Entry, document: LockDocument): readonly Entry[] {
    if (this.#queues.document !== document) {
      const byKey = new Map<string, Entry[]>();
      for (const entry of document.entries.values()) {
        const queue = byKey.get(entry.key);
        if (queue === undefined) byKey.set(entry.key, [entry]);
        else queue.push(entry);
      }
      this.#queues = { document, byKey };
    }
    return this.#queues.byKey.get(key) ?? [];
  }

  #toView(entry: Entry, document: LockDocument): ClaimView {
    const { shared, now, tokenBase } = this.#settings;
    const { id, key, permits, limit, label, ttlMs, tokenCount, wait } = entry;
    const queue = this.#queueOf(entry, document);
    const remainingMs = Math.max(shared.stopwatches.endsAt(id, entry, now()) - now(), 0);
    return {
      ...{ label, ttlMs, tokenCount, wait },
      locks: [{ key, permits, limit }],
      floor: entry.floor === 0 ? 0n : BigInt(entry.floor) + tokenBase,
      tag: publicTag(id),
      answer: this.#toAnswer(entry, queue, Math.min(remainingMs, entry.leaseMs)),
      ageMs: shared.stopwatches.ageOf(entry, now()),
    };
  }
}

function frontWaiter(queue: readonly Entry[]): Entry | undefined {
  return queue.find(({ token }) => token === 0);
}

function isRecallable({ token, recall, isDetached, isRevoked }: Entry): boolean {
  return token !== 0 && recall && !isDetached && !isRevoked;
}

function toNewEntry({ id, locks: [spec], floor, recall = false, ...claim }: Claim, tokenBase: bigint) {
  const { label, tokenCount, wait } = claim;
  const documentFloor = floor > tokenBase ? Number(floor - tokenBase) : 0;
  return { ...spec, id, label, tokenCount, wait, recall, ttlMs: Number(claim.ttlMs), floor: documentFloor };
}

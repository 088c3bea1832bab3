/** What the driver knows of its claims: their entries in etcd, and the leases to which these belong. */

import type { Answer, Claim, ClaimId, EndReason } from "../../spi/driver.ts";
import { publicTag } from "../../util/ids.ts";
import type { Watch } from "./client/watch-stream.ts";
import type { Names } from "./names.ts";

/**
 * One claim's entry.
 *
 *   unplaced  no entry is known: not created yet, or its creation was not answered
 *   present   an entry is known
 *   ended     released, deleted by another client, or ended with its lease: final
 */
export class Entry {
  readonly claim: Claim;
  /** The beginning of the names of all entries of its key. */
  readonly queueName: string;
  readonly name: string;
  status: "unplaced" | "present" | "ended" = "unplaced";
  /** revoked: the entry stays until the holder releases it. */
  grant: "waiting" | "held" | "revoked" = "waiting";
  endReason: EndReason | null = null;
  /** null: none is known, or another client has extended it since. */
  lease: Lease | null = null;
  createRevision = 0n;
  /** The revision at which its queue was last read through the log. */
  seenAt = 0n;
  /** When its claim has not been renewed for its ttl. */
  dueAt = 0;
  /** A waiting claim: on what must go first. A held claim: on its own entry. */
  watch: Watch | null = null;
  /** The name of what is watched, or will be soon: an entry, or the queue; "": nothing. */
  watched = "";
  /** On its own entry, while it waits behind a single one: what ends that one may have ended this one before. */
  ownWatch: Watch | null = null;
  /** Another claim waits for it; only known if the claim asks to be recalled. */
  isWanted = false;
  /** Other clients may ask about it: it was detached. */
  isShared = false;
  /** Its creation was not answered, and may still be under way. */
  mayArrive = false;
  /** It is released, and its deletion was not answered, or its tombstone could not be written. */
  isDeletePending = false;
  /** The latter: it existed. */
  isDeleted = false;
  /** A claim call that was not sent yet. */
  pendingTurn: Promise<Answer> | null = null;

  readonly #onEnded: () => void;

  constructor(claim: Claim, queueName: string, name: string, onEnded: () => void) {
    this.claim = claim;
    this.queueName = queueName;
    this.name = name;
    this.#onEnded = onEnded;
  }

  /** The claim takes all permits: it waits for whatever stands before it. */
  get isExclusive(): boolean {
    const [{ permits, limit }] = this.claim.locks;
    return permits >= limit;
  }

  /** It asks to be recalled, and was not detached. */
  get isRecallable(): boolean {
    return this.claim.recall === true && !this.isShared;
  }

  /** Its watch reports whatever has changed since its queue was read. */
  get isCovered(): boolean {
    const { watch, seenAt } = this;
    return watch !== null && watch.since !== null && watch.since <= seenAt;
  }

  get ttlMs(): number {
    return Number(this.claim.ttlMs);
  }

  setLease(lease: Lease | null): void {
    if (this.lease === lease) return;
    this.lease?.entries.delete(this);
    this.lease = lease;
    lease?.entries.add(this);
  }

  setWatch(watch: Watch | null, watched = ""): void {
    const previous = this.watch;
    this.watch = watch;
    this.watched = watched;
    if (previous !== watch) previous?.cancel();
  }

  /** The entry is gone, or it was never there. */
  end(reason: EndReason | null): void {
    this.status = "ended";
    this.endReason ??= reason;
    this.isDeletePending = false;
    this.setLease(null);
    this.endWatches();
    this.#onEnded();
  }

  endWatches(): void {
    this.setWatch(null);
    this.ownWatch?.cancel();
    this.ownWatch = null;
  }

  get noneAnswer(): Answer {
    const reason = this.grant === "revoked" ? "revoked" : this.endReason;
    return reason === null ? { state: "none" } : { state: "none", reason };
  }
}

/** A lease of the driver. */
export class Lease {
  readonly id: string;
  readonly seconds: number;
  readonly entries: Set<Entry> = new Set();
  /** When the request was sent that has last extended it. */
  provenAt: number;
  pendingKeepAlive: Promise<void> | null = null;

  constructor(id: string, seconds: number, provenAt: number) {
    this.id = id;
    this.seconds = seconds;
    this.provenAt = provenAt;
  }

  /** What remains at least, in milliseconds. */
  remainingMs(now: number): number {
    return this.provenAt + this.seconds * 1_000 - now;
  }
}

export class Entries {
  readonly #byId = new Map<ClaimId, Entry>();
  readonly #names: Names;

  constructor(names: Names) {
    this.#names = names;
  }

  /** The entry of the claim: a new one if it has ended. */
  getOrCreate(claim: Claim): Entry {
    const existing = this.#byId.get(claim.id);
    if (existing !== undefined) return existing;
    const queueName = this.#names.toQueueName(claim.locks[0].key);
    const entry: Entry = new Entry(claim, queueName, `${queueName}${publicTag(claim.id)}`, () => {
      if (this.#byId.get(claim.id) === entry) this.#byId.delete(claim.id);
    });
    this.#byId.set(claim.id, entry);
    return entry;
  }

  /** Drops what is kept of the claim; its entry remains with its lease, until that is overdue. */
  forget({ id }: Claim): void {
    const entry = this.#byId.get(id);
    entry?.endWatches();
    if (entry === undefined || entry.lease === null) this.#byId.delete(id);
    else {
      // if the claim is attached again, it must be this one that is no longer overdue
      entry.status = "unplaced";
      entry.isShared = true;
    }
  }
}

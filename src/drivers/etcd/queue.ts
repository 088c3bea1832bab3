/** Queues of entries: creates the entry of a claim, finds its place, and derives the claim's answer. */

import { countAdmitted } from "../../lock-table/admission.ts";
import type { Answer, EndReason } from "../../spi/driver.ts";
import { StoreRefusedError } from "../../spi/driver.ts";
import { chunk } from "../../util/chunk.ts";
import type { Clock } from "../../util/clock.ts";
import type { Operation, OperationResponse, RangeResponse, Txn, TxnResponse } from "./client/messages.ts";
import {
  belongsTo,
  countDeleted,
  decodeText,
  deleteKey,
  encodeText,
  isAbsent,
  MAX_TXN_OPERATIONS,
  rangeOf,
  readKey,
  wasCreatedAt,
} from "./client/messages.ts";
import type { Entry, Lease } from "./entry.ts";
import type { Leases } from "./leases.ts";
import { isLeaseMissing, toCallTimeoutMs } from "./leases.ts";
import type { EntryValue, Names, QueuedEntry } from "./names.ts";
import { decodeEntry, encodeRevoked, encodeValue, toQueue } from "./names.ts";
import { toToken, toTokenCount } from "./tokens.ts";
import type { EntryWatches, QueueView } from "./watches.ts";

/** How many entries before an exclusive claim, its own included, are read, and behind it: those that wait are soon the nearest. */
const NEIGHBOURS = 3;
/** A waiting claim is asked about after this time at the latest, should its watch report nothing. */
const MAX_RECHECK_MS = 5_000;
/** How long a tombstone of an entry of another program stays. */
const TOMBSTONE_MS = 10_000;
/** How many occupied queues are remembered. */
const MAX_OCCUPIED = 1_000;
/** How many names are read to see whether a key is in use. */
const NAMES_OF_INTEREST = 8;

interface EntryQueuesOptions {
  readonly leases: Leases;
  readonly names: Names;
  readonly watches: EntryWatches;
  readonly clock: Clock;
  readonly tokenBase: bigint;
  readonly onEnd: (entry: Entry, reason: EndReason | null) => void;
  /** Another claim waits for this one, which is held, since now. */
  readonly onWanted: (entry: Entry) => void;
}

export class EntryQueues {
  readonly #options: EntryQueuesOptions;
  /** Queues that were not empty when a claim of this client came. */
  readonly #occupied = new Set<string>();

  constructor(options: EntryQueuesOptions) {
    this.#options = options;
  }

  /** Creates the entry of the claim, or finds it by its name, and derives the claim's answer. */
  async place(entry: Entry): Promise<Answer> {
    const lease = await this.#obtainLease(entry);
    if (entry.status === "ended") return entry.noneAnswer;
    if (entry.status === "present") return this.lookAgain(entry);
    const { names } = this.#options;
    // most keys are free: then nothing else needs to be read
    const isBrief = entry.isExclusive && (!entry.claim.wait || !this.#occupied.has(entry.queueName));
    const range = rangeOf(entry.queueName);
    const tombstone = names.toTombstone(entry.name);
    const rest = [
      readKey(entry.name),
      readKey(tombstone),
      { request_range: { ...range, keys_only: true, limit: NAMES_OF_INTEREST } },
    ];
    const response = await this.#sendWithLease(entry, lease, (leaseId) => ({
      compare: [isAbsent(isBrief ? range : { key: encodeText(entry.name) }), isAbsent({ key: encodeText(tombstone) })],
      success: [this.#putNew(entry, leaseId), ...(isBrief ? [] : [this.#toView(entry)])],
      failure: isBrief && entry.claim.wait ? [] : rest,
    }));
    if (response === null) return this.place(entry);
    const revision = BigInt(response.header.revision);
    if (response.succeeded !== true) {
      if (!isBrief || !entry.claim.wait) return this.#onNotPlaced(entry, response);
      this.#noteOccupied(entry.queueName);
      return this.place(entry);
    }
    this.#setPresent(entry, revision);
    if (isBrief) return this.#grant(entry);
    const view = await this.#toCompleteView(entry, response.responses?.[1], revision);
    if (view.queue.length === 1) this.#occupied.delete(entry.queueName);
    return this.#settlePlaced(entry, view);
  }

  #noteOccupied(queueName: string): void {
    if (this.#occupied.size === MAX_OCCUPIED) this.#occupied.clear();
    this.#occupied.add(queueName);
  }

  /** The entry was there already, or may not be created. */
  async #onNotPlaced(entry: Entry, { responses = [] }: TxnResponse): Promise<Answer> {
    const [own, tombstone, others] = responses.map(({ response_range }) => response_range);
    const existing = own?.kvs?.[0];
    if (existing !== undefined) {
      await this.#takeOver(entry, decodeEntry(existing));
      return this.lookAgain(entry);
    }
    const reason = toEndReason(tombstone);
    if (reason !== null) {
      this.#options.onEnd(entry, reason);
      return entry.noneAnswer;
    }
    // a try: other claims are there, or only entries of keys that begin with this one
    if (toQueue(others?.kvs, entry.queueName).length > 0) {
      this.#options.onEnd(entry, null);
      return { state: "none" };
    }
    const { lease } = entry;
    if (lease === null) return entry.noneAnswer;
    const response = await this.#sendWithLease(entry, lease, (leaseId) => ({
      // it may arrive twice, or after its claim was released
      compare: [entry.name, this.#options.names.toTombstone(entry.name)].map((name) =>
        isAbsent({ key: encodeText(name) }),
      ),
      success: [this.#putNew(entry, leaseId), this.#toView(entry)],
    }));
    if (response?.succeeded !== true) return this.place(entry);
    const revision = BigInt(response.header.revision);
    this.#setPresent(entry, revision);
    return this.#settlePlaced(entry, await this.#toCompleteView(entry, response.responses?.[1], revision));
  }

  /** The answer of a claim whose entry was created now: one that does not wait leaves no trace. */
  async #settlePlaced(entry: Entry, view: QueueView): Promise<Answer> {
    const foreign = view.queue.find(({ value }) => value === null);
    if (foreign !== undefined && !entry.isExclusive) {
      await this.delete([entry]);
      throw new StoreRefusedError(
        `etcd: ${JSON.stringify(foreign.name)} is an entry of another program, which knows exclusive locks only: a reader or permits cannot be locked beside it`,
        { keys: [entry.claim.locks[0].key] },
      );
    }
    const answer = await this.#statusIn(entry, view);
    if (answer.state !== "waiting" || entry.claim.wait) return answer;
    await this.delete([entry]);
    return { state: "none" };
  }

  /** Looks for the entry of a claim that this client does not know, and puts it on a lease of this one. */
  async adopt(entry: Entry): Promise<Answer> {
    const { leases, names, onEnd } = this.#options;
    const reads = [readKey(entry.name), readKey(names.toTombstone(entry.name))];
    const { responses = [] } = await leases.txn({ success: reads });
    const existing = responses[0]?.response_range?.kvs?.[0];
    if (existing === undefined) {
      onEnd(entry, toEndReason(responses[1]?.response_range) ?? "expired");
      return entry.noneAnswer;
    }
    entry.isShared = true;
    await this.#takeOver(entry, decodeEntry(existing));
    return this.lookAgain(entry);
  }

  /** Reads through the log. */
  async lookAgain(entry: Entry): Promise<Answer> {
    return (await this.look([entry])).get(entry) as Answer;
  }

  /** The answers of claims with an entry, as read through the log: all in one transaction, or in few. */
  async look(entries: readonly Entry[]): Promise<Map<Entry, Answer>> {
    const answers = new Map<Entry, Answer>();
    for (const part of chunk(groupByView(entries), MAX_TXN_OPERATIONS)) {
      const { header, responses } = await this.#options.leases.txn({
        success: part.map(([first]) => this.#toView(first as Entry)),
      });
      for (const [index, group] of part.entries()) {
        const view = await this.#toCompleteView(group[0] as Entry, responses?.[index], BigInt(header.revision));
        for (const entry of group) answers.set(entry, await this.#statusIn(entry, view).catch(toRefusedAnswer));
      }
    }
    return answers;
  }

  /**
   * Deletes the entries, and says which existed. With `toTombstoneLease` each leaves a tombstone for as long: a call that creates it may be under
   * way, or another client may ask how it has ended.
   */
  async delete(entries: readonly Entry[], toTombstoneLease?: (entry: Entry) => string): Promise<boolean[]> {
    const { leases, names, onEnd } = this.#options;
    const existed: boolean[] = [];
    for (const part of chunk(entries, MAX_TXN_OPERATIONS / 2)) {
      for (const entry of part) entry.isDeletePending = true;
      const deletions = part.map(({ name }) => deleteKey(name));
      const tombstones =
        toTombstoneLease === undefined
          ? []
          : part.map((entry) => putTombstone(names.toTombstone(entry.name), "released", toTombstoneLease(entry)));
      const { responses = [] } = await leases
        .txn({ success: [...deletions, ...tombstones] })
        .catch((error: unknown) => {
          for (const entry of part) {
            // whatever exists of them ends before their lease is extended
            entry.dueAt = 0;
            if (isLeaseMissing(error) && entry.lease !== null) leases.onMissing(entry.lease);
          }
          throw error;
        });
      for (const [index, entry] of part.entries()) {
        existed.push(countDeleted(responses[index]) > 0);
        onEnd(entry, "released");
      }
    }
    return existed;
  }

  /** Revokes the grant of this entry. With `isRemoved` it is gone, and its tombstone says why. */
  async revoke(target: QueuedEntry, value: EntryValue | null, isRemoved: boolean): Promise<boolean> {
    const { leases, names } = this.#options;
    const { name, createRevision } = target;
    const success: Operation[] = [];
    if (isRemoved) {
      const lease = await leases.grantDetached(value?.ttlMs ?? TOMBSTONE_MS);
      success.push(deleteKey(name), putTombstone(names.toTombstone(name), "revoked", lease));
    } else if (value !== null) {
      const revoked = encodeRevoked(value);
      success.push({ request_put: { key: encodeText(name), value: revoked, ignore_lease: true } });
    }
    return (await leases.txn({ compare: [wasCreatedAt(name, createRevision)], success })).succeeded === true;
  }

  /** Takes the held entry out of this client's leases: it has one of its own. */
  async detach(entry: Entry, remainingMs: number): Promise<boolean> {
    const { leases } = this.#options;
    if (entry.status !== "present" || entry.grant !== "held") return false;
    const leaseId = await leases.grantDetached(Math.min(remainingMs, entry.ttlMs));
    const { succeeded = false } = await leases.txn({
      compare: [wasCreatedAt(entry.name, entry.createRevision)],
      success: [putLease(entry.name, leaseId)],
    });
    // the client that renews it next puts it on one of its leases
    entry.isShared = true;
    entry.isWanted = false;
    entry.endWatches();
    entry.setLease(null);
    entry.status = "unplaced";
    return succeeded;
  }

  /** The answer of a held claim, without a request: its watch reports changes. */
  toHeldAnswer(entry: Entry): Answer {
    const { claim, isWanted, isRecallable } = entry;
    return {
      state: "held",
      token: this.toToken(entry.createRevision),
      tokenCount: toTokenCount(claim.tokenCount),
      remainingMs: this.#remainingMs(entry),
      ...(isWanted && isRecallable && { recalled: true }),
    };
  }

  /** The first token of an entry that this revision has created. */
  toToken(createRevision: bigint): bigint {
    return toToken(createRevision, this.#options.tokenBase);
  }

  /** Is it one of the tokens of this entry? */
  hasToken({ createRevision, value }: QueuedEntry, token: bigint): boolean {
    const first = this.toToken(createRevision);
    return token >= first && token < first + BigInt(toTokenCount(value?.tokens ?? 1));
  }

  async #obtainLease(entry: Entry): Promise<Lease> {
    const { leases, clock } = this.#options;
    // before the lease is extended, which ends what is overdue
    entry.dueAt = clock.now() + entry.ttlMs;
    const lease = await leases.obtain(entry.ttlMs);
    entry.dueAt = clock.now() + entry.ttlMs;
    return lease;
  }

  /** Sends what puts the entry on this lease; null: the servers do not have the lease any more. */
  async #sendWithLease(entry: Entry, lease: Lease, toTxn: (leaseId: string) => Txn): Promise<TxnResponse | null> {
    // before it is sent: if it is not answered, the entry may exist, and ends with the others that are overdue
    entry.setLease(lease);
    try {
      return await this.#options.leases.txn(toTxn(lease.id), toCallTimeoutMs(lease));
    } catch (error) {
      if (!isLeaseMissing(error)) throw error;
      entry.setLease(null);
      this.#options.leases.onMissing(lease);
      return null;
    }
  }

  #putNew({ claim, name }: Entry, lease: string): Operation {
    const value = encodeValue(claim, Math.round(this.#options.clock.wall()));
    return { request_put: { key: encodeText(name), value, lease } };
  }

  #setPresent(entry: Entry, createRevision: bigint): void {
    if (entry.status === "ended") return;
    entry.status = "present";
    entry.createRevision = createRevision;
    if (createRevision > entry.seenAt) entry.seenAt = createRevision;
  }

  /** The entry exists, perhaps on the lease of another client, or on one of its own since it was detached. */
  async #takeOver(entry: Entry, { leaseId, createRevision }: QueuedEntry): Promise<void> {
    const lease = await this.#obtainLease(entry);
    if (leaseId !== lease.id) {
      await this.#options.leases.txn({
        compare: [wasCreatedAt(entry.name, createRevision), belongsTo(entry.name, leaseId)],
        success: [putLease(entry.name, lease.id)],
      });
    }
    entry.setLease(lease);
    this.#setPresent(entry, createRevision);
  }

  /** Reads what an answer needs: for an exclusive claim its neighbours, else the complete queue. */
  #toView(entry: Entry): Operation {
    const range = rangeOf(entry.queueName);
    if (!entry.isExclusive) return { request_txn: { success: [{ request_range: range }] } };
    const revision = String(entry.createRevision);
    const isPresent = entry.status === "present";
    const before = { ...(isPresent && { max_create_revision: revision }), sort_order: "DESCEND", limit: NEIGHBOURS };
    const reads: Operation[] = [{ request_range: { ...range, sort_target: "CREATE", ...before } }];
    if (isPresent && entry.isRecallable) {
      const behind = { min_create_revision: String(entry.createRevision + 1n), limit: NEIGHBOURS };
      reads.push({ request_range: { ...range, sort_target: "CREATE", sort_order: "ASCEND", ...behind } });
    }
    return { request_txn: { success: reads } };
  }

  /** If only entries of keys that begin with this one were read: reads on. */
  async #toCompleteView(entry: Entry, response: OperationResponse | undefined, revision: bigint): Promise<QueueView> {
    const [before, behind] = (response?.response_txn?.responses ?? []).map(({ response_range }) => response_range?.kvs);
    const queue = toQueue(before, entry.queueName);
    if (!entry.isExclusive) return { queue, isComplete: true, isWanted: hasWaiter(queue), revision };
    const isComplete = (before?.length ?? 0) < NEIGHBOURS;
    const isWanted = toQueue(behind, entry.queueName).some(({ value }) => value?.wait !== false);
    if (isComplete || queue.length > 1) return { queue, isComplete, isWanted, revision };
    const range = { ...rangeOf(entry.queueName), max_create_revision: String(entry.createRevision) };
    const complete = await this.#options.leases.txn({ success: [{ request_range: range }] });
    const all = toQueue(complete.responses?.[0]?.response_range?.kvs, entry.queueName);
    return { queue: all, isComplete: true, isWanted, revision: BigInt(complete.header.revision) };
  }

  /** @throws StoreRefusedError if its token would be below those seen before */
  async #statusIn(entry: Entry, view: QueueView): Promise<Answer> {
    if (entry.status !== "present") return entry.noneAnswer;
    const { queue, revision } = view;
    if (revision > entry.seenAt) entry.seenAt = revision;
    const ownIndex = queue.findIndex(({ name }) => name === entry.name);
    const own = queue[ownIndex];
    if (own === undefined || own.createRevision !== entry.createRevision) {
      const tombstone = await this.#options.leases.txn({
        success: [readKey(this.#options.names.toTombstone(entry.name))],
      });
      this.#options.onEnd(entry, toEndReason(tombstone.responses?.[0]?.response_range));
      return entry.noneAnswer;
    }
    if (entry.isRecallable) this.#setWanted(entry, view.isWanted);
    if (own.value?.isRevoked === true) {
      entry.grant = "revoked";
      return entry.noneAnswer;
    }
    if (own.leaseId !== entry.lease?.id) {
      // another client has extended it since
      await this.#takeOver(entry, own);
      return this.lookAgain(entry);
    }
    if (entry.grant === "held" || ownIndex < countAdmitted(queue)) return this.#grant(entry);
    this.#options.watches.watchBlocker(entry, view, ownIndex);
    return this.#toWaitingAnswer(entry);
  }

  #setWanted(entry: Entry, isWanted: boolean): void {
    const isNews = isWanted && !entry.isWanted && entry.grant === "held";
    entry.isWanted = isWanted;
    if (isNews) this.#options.onWanted(entry);
  }

  /** recheckMs: a watch reports what frees it. */
  #toWaitingAnswer(entry: Entry): Answer {
    return {
      state: "waiting",
      remainingMs: this.#remainingMs(entry),
      recheckMs: Math.min(entry.ttlMs, MAX_RECHECK_MS),
    };
  }

  async #grant(entry: Entry): Promise<Answer> {
    if (entry.status !== "present") return entry.noneAnswer;
    if (entry.grant !== "held" && this.toToken(entry.createRevision) < entry.claim.floor) {
      await this.delete([entry]);
      throw new StoreRefusedError(
        "etcd: its tokens are below those seen on this key before: set tokenBase if the locks were moved from another store",
      );
    }
    this.grantNow(entry);
    return this.toHeldAnswer(entry);
  }

  /** The claim is admitted. */
  grantNow(entry: Entry): void {
    if (entry.grant === "waiting") entry.grant = "held";
    this.#options.watches.watchOwn(entry);
  }

  #remainingMs({ lease, ttlMs }: Entry): number {
    const remainingMs = lease?.remainingMs(this.#options.clock.now()) ?? 0;
    return Math.max(Math.min(remainingMs, ttlMs), 0);
  }
}

/** Does a claim wait behind the admitted ones? */
function hasWaiter(queue: readonly QueuedEntry[]): boolean {
  return queue.slice(countAdmitted(queue)).some(({ value }) => value?.wait !== false);
}

/** A refused claim has no entry any more. It does not fail the calls of those beside it. */
function toRefusedAnswer(error: unknown): Answer {
  if (!(error instanceof StoreRefusedError)) throw error;
  return { state: "none" };
}

function toEndReason(tombstone: RangeResponse | undefined): EndReason | null {
  const kv = tombstone?.kvs?.[0];
  if (kv === undefined) return null;
  return decodeText(kv.value) === "revoked" ? "revoked" : "released";
}

function putTombstone(name: string, reason: EndReason, lease: string): Operation {
  return { request_put: { key: encodeText(name), value: encodeText(reason), lease } };
}

/** Exclusive claims need a view each; the others of one key share one. */
function groupByView(entries: readonly Entry[]): (readonly Entry[])[] {
  const shared = new Map<string, Entry[]>();
  const groups: Entry[][] = [];
  for (const entry of entries) {
    const group = entry.isExclusive ? undefined : shared.get(entry.queueName);
    if (group !== undefined) group.push(entry);
    else {
      const created = [entry];
      groups.push(created);
      if (!entry.isExclusive) shared.set(entry.queueName, created);
    }
  }
  return groups;
}

/** The same entry on another lease. */
function putLease(name: string, lease: string): Operation {
  return { request_put: { key: encodeText(name), lease, ignore_value: true } };
}

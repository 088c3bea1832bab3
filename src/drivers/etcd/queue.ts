/** Queues of entries: creates the entry of a claim, finds its place, and derives the claim's answer. */

import { countAdmitted } from "../../lock-table/admission.ts";
import type { Answer, EndReason } from "../../spi/driver.ts";
import { StoreRefusedError } from "../../spi/driver.ts";
import { chunk } from "../../util/chunk.ts";
import type { Clock } from "../../util/clock.ts";
import type { RevisionTokens } from "../revision-tokens.ts";
import { explainLowTokens } from "../revision-tokens.ts";
import type { EtcdClient } from "./client/client.ts";
import { hasCode, NOT_FOUND, RESOURCE_EXHAUSTED } from "./client/errors.ts";
import type { Operation, OperationResponse, Txn, TxnResponse } from "./client/messages.ts";
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
import { toCallTimeoutMs } from "./leases.ts";
import type { Names, QueuedEntry } from "./names.ts";
import { decodeEntry, encodeRevoked, encodeValue, toQueue } from "./names.ts";
import type { EntryWatches, QueueView } from "./watches.ts";

/** How many entries before an exclusive claim, its own included, are read, and behind it: those that wait are soon the nearest. */
const NEIGHBOURS = 3;
/** A waiting claim is asked about after this time at the latest, should its watch report nothing. */
const MAX_RECHECK_MS = 5_000;
/** How long a tombstone of an entry of another program stays. */
const TOMBSTONE_MS = 10_000;
/** A nested transaction may have only as many operations as the one around it leaves: a view has two. */
const MAX_VIEWS = MAX_TXN_OPERATIONS - 2;
/** How many names are read to see whether a key is in use. */
const NAMES_OF_INTEREST = 8;

interface EntryQueuesOptions {
  readonly client: EtcdClient;
  readonly leases: Leases;
  readonly names: Names;
  readonly watches: EntryWatches;
  readonly clock: Clock;
  readonly tokens: RevisionTokens;
  /** Another claim waits for this one, which is held, since now. */
  readonly onWanted: (entry: Entry) => void;
}

export class EntryQueues {
  readonly #options: EntryQueuesOptions;

  constructor(options: EntryQueuesOptions) {
    this.#options = options;
  }

  /**
   * Creates the entry of the claim, or finds it by its name, and derives the claim's answer. A try of an exclusive lock creates it only
   * where no other one is: it leaves no trace.
   */
  async place(entry: Entry, isOnlyIfFree: boolean = entry.isExclusive && !entry.claim.wait): Promise<Answer> {
    const lease = await this.#obtainLease(entry);
    if (entry.status === "ended") return entry.noneAnswer;
    if (entry.status === "present") return this.lookAgain(entry);
    const range = rangeOf(entry.queueName);
    const others = { request_range: { ...range, keys_only: true, limit: NAMES_OF_INTEREST } };
    const response = await this.#sendWithLease(entry, lease, {
      compare: [
        isAbsent(isOnlyIfFree ? range : { key: encodeText(entry.name) }),
        // it may arrive after its claim was released
        isAbsent({ key: encodeText(this.#toTombstone(entry)) }),
      ],
      success: [this.#putNew(entry, lease.id), ...this.#toReads(entry)],
      // a try often fails; else only what was created before by this name is read, with a request of its own: each operation costs the server time
      ...(isOnlyIfFree && { failure: [...this.#readByName(entry), others] }),
    });
    if (response === null) return this.place(entry, isOnlyIfFree);
    const { responses = [], succeeded = false } = response;
    if (!succeeded) {
      if (!isOnlyIfFree) return this.#find(entry);
      if (hasKeys(responses[0]) || hasKeys(responses[1])) return this.#onFound(entry, responses);
      // only entries of keys that begin with this one
      if (toQueue(responses[2]?.response_range?.kvs, entry.queueName).length === 0) return this.place(entry, false);
      entry.end(null);
      return entry.noneAnswer;
    }
    const revision = BigInt(response.header.revision);
    this.#setPresent(entry, revision);
    const view = await this.#toCompleteView(entry, responses.slice(1), revision);
    refuseBesideForeign(entry, view);
    const answer = await this.#statusIn(entry, view);
    if (answer.state !== "waiting" || entry.claim.wait) return answer;
    await this.delete([entry]);
    return { state: "none" };
  }

  /** Looks for the entry of a claim that this client does not know, and puts it on a lease of this one. */
  adopt(entry: Entry): Promise<Answer> {
    entry.isShared = true;
    return this.#find(entry);
  }

  async #find(entry: Entry): Promise<Answer> {
    const { responses = [] } = await this.#options.client.txn({ success: this.#readByName(entry) });
    return this.#onFound(entry, responses);
  }

  /** What was read by the name of the claim. */
  async #onFound(entry: Entry, [own, tombstone]: readonly OperationResponse[]): Promise<Answer> {
    const existing = own?.response_range?.kvs?.[0];
    if (existing === undefined) {
      entry.end(toEndReason(tombstone) ?? "expired");
      return entry.noneAnswer;
    }
    await this.#takeOver(entry, decodeEntry(existing));
    return this.lookAgain(entry);
  }

  #readByName(entry: Entry): readonly Operation[] {
    return [readKey(entry.name), readKey(this.#toTombstone(entry))];
  }

  #toTombstone({ name }: Pick<Entry, "name">): string {
    return this.#options.names.toTombstone(name);
  }

  /** Reads through the log. */
  async lookAgain(entry: Entry): Promise<Answer> {
    return (await this.look([entry])).get(entry) as Answer;
  }

  /** The answers of claims with an entry, as read through the log: all in one transaction, or in few. */
  async look(entries: readonly Entry[]): Promise<Map<Entry, Answer>> {
    const answers = new Map<Entry, Answer>();
    for (const part of chunk(groupByView(entries), MAX_VIEWS)) {
      const { header, responses } = await this.#options.client.txn({
        success: part.map(([first]) => ({ request_txn: { success: this.#toReads(first as Entry) } })),
      });
      for (const [index, group] of part.entries()) {
        const reads = responses?.[index]?.response_txn?.responses ?? [];
        const view = await this.#toCompleteView(group[0] as Entry, reads, BigInt(header.revision));
        for (const entry of group) answers.set(entry, await this.#statusIn(entry, view).catch(toRefusedAnswer));
      }
    }
    return answers;
  }

  /** Deletes the entries, and says which existed. */
  async delete(entries: readonly Entry[]): Promise<ReadonlySet<Entry>> {
    const existed = new Set<Entry>();
    // a claim may be among them twice, and a transaction writes no key twice
    const distinct = [...new Set(entries)];
    // those that need a tombstone may fail, alone and last
    for (const group of [distinct.filter(({ mayArrive }) => !mayArrive), distinct.filter(({ mayArrive }) => mayArrive)])
      for (const part of chunk(group, MAX_TXN_OPERATIONS / 2)) {
        const { responses } = await this.#deletePart(part);
        for (const [index, entry] of part.entries()) {
          if (entry.isDeleted || countDeleted(responses?.[index]) > 0) existed.add(entry);
          entry.end("released");
        }
      }
    return existed;
  }

  async #deletePart(part: readonly Entry[]): Promise<TxnResponse> {
    const { client, leases } = this.#options;
    for (const entry of part) entry.isDeletePending = true;
    const deletions = part.map(({ name }) => deleteKey(name));
    try {
      const tombstones = await this.#putTombstones(part.filter(({ mayArrive, isShared }) => mayArrive || isShared));
      return await client.txn({ success: [...deletions, ...tombstones] });
    } catch (error) {
      // A full database (alarm NOSPACE) takes no tombstone. The deletion alone frees the key, but the release is not complete: once there is
      // space, a late call could create an entry that no one deletes. So the core repeats the release.
      const deleted = hasCode(error, RESOURCE_EXHAUSTED)
        ? await client.txn({ success: deletions }).catch(() => undefined)
        : undefined;
      for (const [index, entry] of part.entries()) {
        if (countDeleted(deleted?.responses?.[index]) > 0) entry.isDeleted = true;
        // whatever exists of them ends before their lease is extended
        if (deleted === undefined) entry.dueAt = 0;
        if (hasCode(error, NOT_FOUND) && entry.lease !== null) leases.onMissing(entry.lease);
      }
      throw error;
    }
  }

  /** For claims whose creation may still be under way, or about which another client may ask. */
  async #putTombstones(entries: readonly Entry[]): Promise<readonly Operation[]> {
    const { leases } = this.#options;
    if (entries.length === 0) return [];
    const detached = await leases.grant(Math.max(...entries.map(({ ttlMs }) => ttlMs)));
    return entries.map((entry) => {
      // a call that arrives very late puts its entry on the claim's lease, which others extend: the tombstone lasts as long
      const lease = entry.isShared || entry.lease === null ? detached : entry.lease.id;
      // and the lease no longer than its claims: new ones get another
      if (entry.lease !== null) leases.retire(entry.lease);
      return putTombstone(this.#toTombstone(entry), "released", lease);
    });
  }

  /** Revokes the grant of this entry. With `isRemoved` it is gone, and its tombstone says why. */
  async revoke(target: QueuedEntry, isRemoved: boolean): Promise<boolean> {
    const { leases, client } = this.#options;
    const { name, createRevision, value } = target;
    const success: Operation[] = [];
    if (isRemoved || value === null) {
      const lease = await leases.grant(value?.ttlMs ?? TOMBSTONE_MS);
      success.push(deleteKey(name), putTombstone(this.#toTombstone(target), "revoked", lease));
    } else success.push({ request_put: { key: encodeText(name), value: encodeRevoked(value), ignore_lease: true } });
    return (await client.txn({ compare: [wasCreatedAt(name, createRevision)], success })).succeeded === true;
  }

  /** Takes the held entry out of this client's leases: it has one of its own. */
  async detach(entry: Entry, remainingMs: number): Promise<boolean> {
    const { leases, client } = this.#options;
    if (entry.status !== "present" || entry.grant !== "held") return false;
    const leaseId = await leases.grant(Math.min(remainingMs, entry.ttlMs));
    const { succeeded = false } = await client.txn({
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
    const { tokens } = this.#options;
    return {
      state: "held",
      token: tokens.first(entry.createRevision),
      tokenCount: tokens.count(claim.tokenCount),
      remainingMs: this.#remainingMs(entry),
      ...(isWanted && isRecallable && { recalled: true }),
    };
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
  async #sendWithLease(entry: Entry, lease: Lease, txn: Txn): Promise<TxnResponse | null> {
    // before it is sent: if it is not answered, the entry may exist, and ends with the others that are overdue
    entry.setLease(lease);
    try {
      return await this.#options.client.txn(txn, toCallTimeoutMs(lease));
    } catch (error) {
      if (!hasCode(error, NOT_FOUND)) throw error;
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
  }

  /** The entry exists, perhaps on the lease of another client, or on one of its own since it was detached. */
  async #takeOver(entry: Entry, { leaseId, createRevision }: QueuedEntry): Promise<void> {
    const lease = await this.#obtainLease(entry);
    if (leaseId !== lease.id) {
      await this.#options.client.txn({
        compare: [wasCreatedAt(entry.name, createRevision), belongsTo(entry.name, leaseId)],
        success: [putLease(entry.name, lease.id)],
      });
    }
    entry.setLease(lease);
    this.#setPresent(entry, createRevision);
  }

  /** What an answer needs: for an exclusive claim its neighbours, else the complete queue. */
  #toReads(entry: Entry): readonly Operation[] {
    const range = rangeOf(entry.queueName);
    if (!entry.isExclusive) return [{ request_range: range }];
    const revision = String(entry.createRevision);
    const isPresent = entry.status === "present";
    const before = { ...(isPresent && { max_create_revision: revision }), sort_order: "DESCEND", limit: NEIGHBOURS };
    const reads: Operation[] = [{ request_range: { ...range, sort_target: "CREATE", ...before } }];
    if (isPresent && entry.isRecallable) {
      const behind = { min_create_revision: String(entry.createRevision + 1n), limit: NEIGHBOURS };
      reads.push({ request_range: { ...range, sort_target: "CREATE", sort_order: "ASCEND", ...behind } });
    }
    return reads;
  }

  /** If only entries of keys that begin with this one were read: reads on. */
  async #toCompleteView(entry: Entry, reads: readonly OperationResponse[], revision: bigint): Promise<QueueView> {
    const [before, behind] = reads.map(({ response_range }) => response_range?.kvs);
    const queue = toQueue(before, entry.queueName);
    if (!entry.isExclusive) return { queue, isComplete: true, isWanted: hasWaiter(queue), revision };
    const isComplete = (before?.length ?? 0) < NEIGHBOURS;
    const isWanted = toQueue(behind, entry.queueName).some(({ value }) => value?.wait !== false);
    if (isComplete || queue.length > 1) return { queue, isComplete, isWanted, revision };
    const range = { ...rangeOf(entry.queueName), max_create_revision: String(entry.createRevision) };
    const complete = await this.#options.client.txn({ success: [{ request_range: range }] });
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
      const { responses } = await this.#options.client.txn({ success: [readKey(this.#toTombstone(entry))] });
      entry.end(toEndReason(responses?.[0]));
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
    // its watch reports what frees it
    const recheckMs = Math.min(entry.ttlMs, MAX_RECHECK_MS);
    return { state: "waiting", remainingMs: this.#remainingMs(entry), recheckMs };
  }

  #setWanted(entry: Entry, isWanted: boolean): void {
    const isNews = isWanted && !entry.isWanted && entry.grant === "held";
    entry.isWanted = isWanted;
    if (isNews) this.#options.onWanted(entry);
  }

  async #grant(entry: Entry): Promise<Answer> {
    if (entry.status !== "present") return entry.noneAnswer;
    if (entry.grant !== "held" && this.#options.tokens.first(entry.createRevision) < entry.claim.floor) {
      await this.delete([entry]);
      throw new StoreRefusedError(explainLowTokens("etcd"));
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

/** @throws StoreRefusedError if the claim does not fit to those of other programs in its queue */
function refuseBesideForeign({ isExclusive, claim }: Entry, { queue }: QueueView): void {
  const foreign = queue.find(({ value }) => value === null);
  if (foreign === undefined || isExclusive) return;
  throw new StoreRefusedError(
    `etcd: ${JSON.stringify(foreign.name)} is an entry of another program, which knows exclusive locks only: a reader or permits cannot be locked beside it`,
    { keys: [claim.locks[0].key] },
  );
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

function hasKeys(response: OperationResponse | undefined): boolean {
  return response?.response_range?.kvs !== undefined;
}

function toEndReason(tombstone: OperationResponse | undefined): EndReason | null {
  const kv = tombstone?.response_range?.kvs?.[0];
  if (kv === undefined) return null;
  return decodeText(kv.value) === "revoked" ? "revoked" : "released";
}

function putTombstone(name: string, reason: EndReason, lease: string): Operation {
  return { request_put: { key: encodeText(name), value: encodeText(reason), lease } };
}

/** Exclusive claims need a view each; the others of one key share one. */
function groupByView(entries: readonly Entry[]): (readonly Entry[])[] {
  const groups = new Map<string, Entry[]>();
  for (const entry of entries) {
    const view = entry.isExclusive ? entry.name : entry.queueName;
    const group = groups.get(view);
    if (group === undefined) groups.set(view, [entry]);
    else group.push(entry);
  }
  return [...groups.values()];
}

/** The same entry on another lease. */
function putLease(name: string, lease: string): Operation {
  return { request_put: { key: encodeText(name), lease, ignore_value: true } };
}

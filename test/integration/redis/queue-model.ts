/**
 * A pure model of the queues that the Lua scripts keep (src/drivers/redis/lua/lib): which entries are admitted, which are
 * passed over because their process is not subscribed (unreachable waiters), dropped when that happens again a second later,
 * or granted for a second without a subscriber. It has no sums, caches or key formats: each question is answered from the
 * entries as they are. Its state after each command must equal that in Redis (queue-model.test.ts).
 */

import { toBucket } from "../../../src/drivers/redis/key-names.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";

const SECOND_MS = 1_000;
const MAX_SKIPPED = 32;

export interface ModelHold {
  readonly bucket: string;
  readonly key: string;
  readonly permits: number;
  readonly limit: number;
}

export interface ClaimRequest {
  readonly id: string;
  readonly holds: readonly ModelHold[];
  readonly ttlMs: number;
  readonly tokens: number;
  readonly floor: number;
  readonly wait: boolean;
}

export interface Entry {
  readonly request: ClaimRequest;
  /** The process that claimed or renewed it last. */
  inbox: number;
  expiresAt: number;
  /** 0: waiting. */
  token: number;
  /** The number of keys it has reached. */
  stage: number;
  /** When it was first found unreachable since its process was last heard of; may be older than that. */
  unreachableSince: number;
  isRevoked: boolean;
}

interface ModelEntry {
  readonly entry: Entry;
  readonly permits: number;
  readonly limit: number;
}

export interface ModelQueue {
  /** By id. An entry ends with the lease that it was given or extended by. */
  readonly admitted: Map<string, ModelEntry & { expires: number }>;
  readonly waiting: ModelEntry[];
}

export interface Push {
  readonly inbox: number;
  readonly text: string;
}

/** What one script knows while it runs. */
interface ScriptCall {
  /** The claims it answers for: their grants are in the answer. */
  readonly answeredIds: ReadonlySet<string>;
  /** The process whose waiters' grants are in the answer; null: none. */
  readonly notifiedInbox: number | null;
  readonly unreachable: Set<number>;
  readonly probed: Set<number>;
  readonly removed: Set<string>;
  readonly unsettled: string[];
  /** Those of `asking` that were granted. */
  readonly granted: Set<Entry>;
  readonly pushes: Push[];
  /** By key: the front entry when its lease was examined, and when that ends. */
  readonly checkedFronts: Map<string, { readonly front: ModelEntry | undefined; readonly ends: number }>;
}

export class QueueModel {
  /** In a Cluster each process is first asked, once a call and with an empty message, whether it is subscribed. */
  readonly probesSubscribers: boolean;
  /** The store's clock in microseconds. */
  micros = 0;
  /** The number of entries removed by the second miss. */
  dropped = 0;
  readonly listening: Set<number> = new Set();
  readonly entries: Map<string, Entry> = new Map();
  /** Claims that a late call must not place, and how they ended. */
  readonly ended: Map<string, { readonly how: string; readonly until: number }> = new Map();
  readonly queues: Map<string, ModelQueue> = new Map();
  /** The last token of each bucket. */
  readonly counters: Map<string, number> = new Map();

  constructor(knocks: boolean) {
    this.probesSubscribers = knocks;
  }

  get now(): number {
    return Math.floor(this.micros / 1_000);
  }

  isAlive(entry: Entry | undefined): entry is Entry {
    return entry !== undefined && this.entries.get(entry.request.id) === entry && entry.expiresAt > this.now;
  }

  queue(key: string): ModelQueue {
    const queue = this.queues.get(key) ?? { admitted: new Map(), waiting: [] };
    this.queues.set(key, queue);
    return queue;
  }

  claim(inbox: number, request: ClaimRequest): { readonly answer: string; readonly pushes: readonly Push[] } {
    const call = createCall(new Set([request.id]), inbox);
    const tombstone = this.ended.get(request.id);
    if (tombstone !== undefined && tombstone.until >= this.now)
      return { answer: `n ${tombstone.how}`, pushes: call.pushes };
    const entry = this.entries.get(request.id);
    const answers = entry === undefined ? this.#enqueue(call, inbox, request) : [this.#renew(call, inbox, entry)];
    return { answer: this.#settledAnswers(call, answers)[0]?.text as string, pushes: call.pushes };
  }

  renew(inbox: number, entries: readonly Entry[]): { readonly answers: readonly string[]; readonly pushes: Push[] } {
    const call = createCall(new Set(entries.map(({ request }) => request.id)), null);
    const answers = entries.map((entry) => this.#renew(call, inbox, entry));
    return { answers: this.#settledAnswers(call, answers).map(({ text }) => text), pushes: call.pushes };
  }

  release(
    inbox: number,
    items: readonly { readonly request: ClaimRequest; readonly unanswered: boolean }[],
  ): { readonly flags: string; readonly pushes: readonly Push[] } {
    const call = createCall(new Set(), inbox);
    const flags = items.map(({ request, unanswered }) => {
      const entry = this.entries.get(request.id);
      const isThere = this.isAlive(entry);
      if (isThere) {
        this.#remove(call, entry);
        if (entry.isRevoked) this.#addTombstone(request, "revoked");
      }
      if (unanswered) this.#addTombstone(request, "released");
      return isThere && !entry.isRevoked ? "1" : "0";
    });
    this.#settleAll(call);
    return { flags: flags.join(""), pushes: call.pushes };
  }

  revoke(key: string, token: number, isAtOnce: boolean): { readonly flag: string; readonly pushes: readonly Push[] } {
    const call = createCall(new Set(), null);
    const held = [...this.queue(key).admitted.values()].map(({ entry }) => entry);
    const blocker = held.find((entry) => {
      const { tokens } = entry.request;
      const isMeant = entry.token > 0 && token >= entry.token && token < entry.token + tokens;
      return this.isAlive(entry) && isMeant && (isAtOnce || !entry.isRevoked);
    });
    if (blocker === undefined) return { flag: "0", pushes: [] };
    if (isAtOnce) {
      this.#remove(call, blocker);
      this.#addTombstone(blocker.request, "revoked");
    } else blocker.isRevoked = true;
    this.#notify(call, blocker, blocker.request.id);
    this.#settleAll(call);
    return { flag: "1", pushes: call.pushes };
  }

  #enqueue(call: ScriptCall, inbox: number, request: ClaimRequest): ModelAnswer[] {
    if (!request.wait && !request.holds.every((hold) => this.#isFree(call, hold))) return [{ text: "n" }];
    const expires = this.now + request.ttlMs;
    const entry: Entry = {
      request,
      inbox,
      expiresAt: expires,
      token: 0,
      stage: 0,
      unreachableSince: 0,
      isRevoked: false,
    };
    for (const hold of request.holds) {
      const isFree = this.#isFree(call, hold);
      this.entries.set(request.id, entry);
      entry.stage++;
      if (!isFree) {
        this.#placeLast(hold, entry);
        break;
      }
      if (entry.stage < request.holds.length) this.#issueNumber(hold.bucket);
      this.queue(hold.key).admitted.set(request.id, { entry, ...hold, expires });
      if (entry.stage === request.holds.length) this.#issueToken(entry);
    }
    return [this.#answer(call, entry)];
  }

  #renew(call: ScriptCall, inbox: number, entry: Entry): ModelAnswer {
    const { request } = entry;
    if (entry.isRevoked) return { text: "n revoked" };
    const lastCallAt = entry.expiresAt - request.ttlMs;
    if (this.now - lastCallAt >= 0.125 * request.ttlMs || entry.unreachableSince > lastCallAt) {
      entry.expiresAt = this.now + request.ttlMs;
      entry.inbox = inbox;
      this.#updateExpiry(entry);
    }
    if (entry.token === 0) this.#settle(call, currentKey(entry));
    return this.#answer(call, entry);
  }

  /** Its admitted entries end with its lease. */
  #updateExpiry(entry: Entry): void {
    for (const { key } of entry.request.holds) {
      const queueEntry = this.queue(key).admitted.get(entry.request.id);
      if (queueEntry !== undefined) queueEntry.expires = entry.expiresAt;
    }
  }

  #answer(call: ScriptCall, entry: Entry): ModelAnswer {
    const remainingMs = entry.expiresAt - this.now;
    const { tokens } = entry.request;
    if (entry.token > 0) return { text: `h ${entry.token} ${tokens} ${remainingMs} ${this.now}`, entry };
    return { text: `w ${remainingMs} ${this.#recheck(call, entry)} ${this.now}`, entry };
  }

  /** The recheck time: when the first lease before it may end. */
  #recheck(call: ScriptCall, entry: Entry): number {
    const key = currentKey(entry);
    this.#inspectKey(key);
    const { waiting, admitted } = this.queue(key);
    let endsAt = Number.POSITIVE_INFINITY;
    // while one claim holds all permits, the end of a waiter lets nobody in
    if (this.#used(key) < ALL_PERMITS && waiting[0] !== undefined && waiting[0].entry !== entry) {
      let checkedFront = call.checkedFronts.get(key);
      if (checkedFront === undefined || checkedFront.front !== waiting[0]) {
        const firstAlive = this.#firstAlive(call, key);
        checkedFront = { front: waiting[0], ends: firstAlive?.expiresAt ?? this.now };
        call.checkedFronts.set(key, checkedFront);
      }
      endsAt = checkedFront.ends;
    }
    this.#inspectKey(key);
    const earliest = Math.min(...[...admitted.values()].map(({ expires }) => expires));
    return Math.max(Math.min(this.now + entry.request.ttlMs, earliest, endsAt) - this.now, 1);
  }

  /** Settles the rest; a claim granted after its answer is answered again. */
  #settledAnswers(call: ScriptCall, answers: readonly ModelAnswer[]): readonly ModelAnswer[] {
    this.#settleAll(call);
    return answers.map((modelAnswer) => {
      const { text, entry } = modelAnswer;
      return entry !== undefined && text.startsWith("w") && call.granted.has(entry)
        ? this.#answer(call, entry)
        : modelAnswer;
    });
  }

  #isFree(call: ScriptCall, hold: ModelHold): boolean {
    this.#settle(call, hold.key);
    if (!this.#fits(hold.key, hold) || this.#firstAlive(call, hold.key) !== undefined) return false;
    return this.#fits(hold.key, hold); // entries behind a dead one in front may have been admitted meanwhile
  }

  /** The waiter in front; dead ones are removed. */
  #firstAlive(call: ScriptCall, key: string): Entry | undefined {
    const { waiting } = this.queue(key);
    for (;;) {
      const [front] = waiting;
      if (front === undefined || this.isAlive(front.entry)) return front?.entry;
      waiting.shift();
      this.#settle(call, key);
    }
  }

  #inspectKey(key: string): void {
    const { admitted } = this.queue(key);
    for (const [id, { expires }] of admitted) if (expires <= this.now) admitted.delete(id);
  }

  #used(key: string): number {
    this.#inspectKey(key);
    return [...this.queue(key).admitted.values()].reduce((sum, { permits }) => sum + permits, 0);
  }

  #fits(key: string, { permits, limit }: { readonly permits: number; readonly limit: number }): boolean {
    return this.#used(key) + permits <= limit;
  }

  #settle(call: ScriptCall, key: string): void {
    const { waiting } = this.queue(key);
    const passedEntries: ModelEntry[] = [];
    let isLetThrough = false;
    for (;;) {
      if (this.#used(key) >= ALL_PERMITS || passedEntries.length === MAX_SKIPPED) break;
      if (isLetThrough && passedEntries.some((modelEntry) => !this.#fits(key, modelEntry))) break;
      const nextEntry = waiting[passedEntries.length];
      if (nextEntry === undefined || !this.#fits(key, nextEntry)) break;
      const { entry } = nextEntry;
      if (!this.isAlive(entry)) waiting.splice(passedEntries.length, 1);
      else if (entry.stage < entry.request.holds.length) {
        this.#advance(call, key, nextEntry);
        isLetThrough = true;
      } else if (this.#tryGrant(call, key, nextEntry)) isLetThrough = true;
      else if (this.#keepsEntry(call, entry)) passedEntries.push(nextEntry);
    }
    const [first] = passedEntries;
    if (first !== undefined && !isLetThrough) this.#grantUnreachable(key, first);
    call.removed.delete(key);
  }

  #advance(call: ScriptCall, key: string, modelEntry: ModelEntry): void {
    const { entry } = modelEntry;
    const { waiting, admitted } = this.queue(key);
    waiting.splice(waiting.indexOf(modelEntry), 1);
    admitted.set(entry.request.id, { ...modelEntry, expires: entry.expiresAt });
    const hold = entry.request.holds[entry.stage++] as ModelHold;
    this.#placeLast(hold, entry);
    this.#settle(call, hold.key);
  }

  /** Is it granted? The tokens are spent in either case, unless it was known to be unreachable. */
  #tryGrant(call: ScriptCall, key: string, modelEntry: ModelEntry): boolean {
    const { entry } = modelEntry;
    const isAsking = call.answeredIds.has(entry.request.id);
    if (!isAsking && this.#isUnreachable(call, entry)) return false;
    this.#issueToken(entry);
    const { id, tokens, holds } = entry.request;
    const firstKey = (holds[0] as ModelHold).key;
    const text = `${id} ${entry.token} ${tokens} ${entry.expiresAt - this.now} h ${toBucket(firstKey)}${firstKey}`;
    if (isAsking) call.granted.add(entry);
    else if (!this.#notify(call, entry, text)) {
      entry.token = 0;
      return false;
    }
    this.#admit(key, modelEntry);
    return true;
  }

  #admit(key: string, modelEntry: ModelEntry): void {
    const { waiting, admitted } = this.queue(key);
    waiting.splice(waiting.indexOf(modelEntry), 1);
    admitted.set(modelEntry.entry.request.id, { ...modelEntry, expires: modelEntry.entry.expiresAt });
  }

  #notify(call: ScriptCall, { inbox }: Entry, text: string): boolean {
    const isHeard =
      call.notifiedInbox === inbox || (!this.#isUnreachable(call, { inbox }) && this.listening.has(inbox));
    if (isHeard) call.pushes.push({ inbox, text });
    else call.unreachable.add(inbox);
    return isHeard;
  }

  /** Is its process already known to be unreachable? */
  #isUnreachable(call: ScriptCall, { inbox }: Pick<Entry, "inbox">): boolean {
    if (call.notifiedInbox === inbox) return false;
    if (this.probesSubscribers && !call.probed.has(inbox)) {
      call.probed.add(inbox);
      if (this.listening.has(inbox)) call.pushes.push({ inbox, text: "" });
      else call.unreachable.add(inbox);
    }
    return call.unreachable.has(inbox);
  }

  /** Does an unreachable waiter keep its entry? */
  #keepsEntry(call: ScriptCall, entry: Entry): boolean {
    const lastCallAt = entry.expiresAt - entry.request.ttlMs;
    if (entry.unreachableSince > lastCallAt && this.now - entry.unreachableSince >= SECOND_MS) {
      this.#remove(call, entry);
      this.dropped++;
      return false;
    }
    if (entry.unreachableSince <= lastCallAt) entry.unreachableSince = this.now;
    return true;
  }

  #grantUnreachable(key: string, first: ModelEntry): void {
    if (this.queue(key).waiting[0] !== first || !this.#fits(key, first)) return;
    const { entry } = first;
    entry.expiresAt = Math.min(entry.expiresAt, this.now + SECOND_MS);
    this.#updateExpiry(entry);
    this.#issueToken(entry);
    this.#admit(key, first);
  }

  #placeLast(hold: ModelHold, entry: Entry): void {
    this.#issueNumber(hold.bucket);
    this.queue(hold.key).waiting.push({ entry, ...hold });
  }

  /** Arrivals and tokens of a bucket are numbers of one sequence. */
  #issueNumber(bucket: string): void {
    this.counters.set(bucket, Math.max(this.micros, (this.counters.get(bucket) ?? 0) + 1));
  }

  #issueToken(entry: Entry): void {
    const { holds, floor, tokens } = entry.request;
    const last = Math.max(...holds.map(({ bucket }) => this.counters.get(bucket) ?? 0));
    entry.token = Math.max(this.micros, floor, last + 1);
    for (const { bucket } of holds) this.counters.set(bucket, entry.token + tokens - 1);
  }

  #remove(call: ScriptCall, entry: Entry): void {
    for (const { key } of entry.request.holds.slice(0, entry.stage)) {
      const { waiting, admitted } = this.queue(key);
      admitted.delete(entry.request.id);
      const index = waiting.findIndex((modelEntry) => modelEntry.entry === entry);
      if (index >= 0) waiting.splice(index, 1);
      if (!call.removed.has(key)) call.unsettled.push(key);
      call.removed.add(key);
    }
    this.entries.delete(entry.request.id);
  }

  #addTombstone({ id, ttlMs }: ClaimRequest, reason: string): void {
    this.ended.set(id, { how: reason, until: this.now + ttlMs });
  }

  #settleAll(call: ScriptCall): void {
    for (let index = 0; index < call.unsettled.length; index++) {
      const key = call.unsettled[index] as string;
      if (call.removed.has(key)) this.#settle(call, key);
    }
  }
}

interface ModelAnswer {
  readonly text: string;
  readonly entry?: Entry;
}

function createCall(answeredIds: ReadonlySet<string>, notifiedInbox: number | null): ScriptCall {
  return {
    answeredIds,
    notifiedInbox,
    unreachable: new Set(),
    probed: new Set(),
    removed: new Set(),
    unsettled: [],
    granted: new Set(),
    pushes: [],
    checkedFronts: new Map(),
  };
}

/** The key that it has reached. */
function currentKey({ request, stage }: Entry): string {
  return (request.holds[stage - 1] as ModelHold).key;
}

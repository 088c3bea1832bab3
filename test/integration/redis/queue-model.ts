/**
 * A pure model of the queues that the Lua scripts keep (src/drivers/redis/lua/lib): which entries are admitted, which are
 * passed over because their process is not subscribed (unreachable waiters), dropped when that happens again a second later,
 * or granted for a second without a subscriber. It has no sums, caches or key formats: each question is answered from the
 * entries as they are. It does not know recalls, successors, detached claims or losses of data. After each command of a run
 * without these, the answers, the pushes and the state of Redis must equal its own (queue-fuzz.ts).
 */

import { toBucket } from "../../../src/drivers/redis/key-names.ts";
import type { Claim, LockSpec, Release } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";

const SECOND_MS = 1_000;
const MAX_SKIPPED = 32;

interface Entry {
  readonly claim: Claim;
  readonly ttlMs: number;
  /** The process that claimed or renewed it last. */
  inbox: number;
  expiresAt: number;
  /** 0: waiting. */
  token: number;
  /** The number of queues that it has entered. */
  enteredCount: number;
  /** When it was first found unreachable since its process was last heard of; may be older than that. */
  unreachableSince: number;
  isRevoked: boolean;
}

interface ModelEntry {
  readonly entry: Entry;
  readonly permits: number;
  readonly limit: number;
}

interface ModelQueue {
  /** By id. An entry ends with the lease that it was given or extended by. */
  readonly admitted: Map<string, ModelEntry & { expires: number }>;
  readonly waiting: ModelEntry[];
}

interface Push {
  readonly inbox: number;
  readonly text: string;
}

/** What a command must be answered and must publish. */
export interface Prediction {
  readonly answers: readonly string[];
  /** Of the caller, in the answer. */
  readonly ownPushes: readonly string[];
  readonly pushes: readonly Push[];
}

/** Cases seen in runs: a run in which a case never happens proves nothing about it. */
export interface ModelStatistics {
  grants: number;
  skipped: number;
  dropped: number;
  grantedUnreachable: number;
  advanced: number;
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
  readonly ownPushes: string[];
  readonly pushes: Push[];
  /** By key: the front entry when its lease was examined, and when that ends. */
  readonly checkedFronts: Map<string, { readonly front: ModelEntry | undefined; readonly ends: number }>;
}

export class QueueModel {
  /** In a Cluster each process is first asked, once a call and with an empty message, whether it is subscribed. */
  readonly probesSubscribers: boolean;
  /** The store's clock in microseconds. */
  micros = 0;
  readonly statistics: ModelStatistics;
  readonly listening: Set<number> = new Set();
  readonly entries: Map<string, Entry> = new Map();
  /** Claims that a late call must not place, and how they ended. */
  readonly ended: Map<string, { readonly how: string; readonly until: number }> = new Map();
  readonly queues: Map<string, ModelQueue> = new Map();
  /** The last token of each bucket. */
  readonly counters: Map<string, number> = new Map();

  constructor(probesSubscribers: boolean, statistics: ModelStatistics) {
    this.probesSubscribers = probesSubscribers;
    this.statistics = statistics;
  }

  get now(): number {
    return Math.floor(this.micros / 1_000);
  }

  /** Whether it waits or is held. */
  has({ id }: Claim): boolean {
    return this.#isAlive(this.entries.get(id));
  }

  /** Not if its tombstone has ended: for how long Redis still answers how it ended is not predicted. */
  mayBeClaimed({ id }: Claim): boolean {
    const tombstone = this.ended.get(id);
    return tombstone === undefined || tombstone.until >= this.now;
  }

  /** What is alive, in the words of `describeSnapshot`. */
  describe(): Record<string, unknown> {
    const state: Record<string, unknown> = {};
    for (const [key, { admitted, waiting }] of this.queues) {
      const held = [...admitted.values()].filter(({ expires }) => expires > this.now);
      const queued = waiting.filter(({ entry }) => this.#isAlive(entry));
      if (held.length > 0)
        state[`${key} admitted`] = held.map(({ entry, expires }) => `${entry.claim.id} ${expires}`).sort();
      if (queued.length > 0) state[`${key} waiting`] = queued.map(({ entry }) => entry.claim.id);
    }
    for (const [id, entry] of this.entries) {
      if (this.#isAlive(entry)) state[id] = describeEntry(entry);
    }
    for (const [bucket, last] of this.counters) state[`{${bucket}}`] = last;
    return state;
  }

  #isAlive(entry: Entry | undefined): entry is Entry {
    return entry !== undefined && this.entries.get(entry.claim.id) === entry && entry.expiresAt > this.now;
  }

  queue(key: string): ModelQueue {
    const queue = this.queues.get(key) ?? { admitted: new Map(), waiting: [] };
    this.queues.set(key, queue);
    return queue;
  }

  claim(inbox: number, claim: Claim): Prediction {
    const call = createCall(new Set([claim.id]), inbox);
    const tombstone = this.ended.get(claim.id);
    if (tombstone !== undefined && tombstone.until >= this.now) return toPrediction(call, [`n ${tombstone.how}`]);
    const entry = this.entries.get(claim.id);
    const answer = entry === undefined ? this.#enqueue(call, inbox, claim) : this.#renew(call, inbox, entry);
    return toPrediction(call, this.#settledAnswers(call, [answer]));
  }

  /** @param claims which it has */
  renew(inbox: number, claims: readonly Claim[]): Prediction {
    const call = createCall(new Set(claims.map(({ id }) => id)), null);
    const answers = new Map<string, ModelAnswer>();
    const isCommon = new Map(claims.map((claim) => [claim, this.#isOnlyHolder(inbox, claim)]));
    // the script begins with those that the common path can renew
    for (const claim of [...claims].sort((left, right) => Number(isCommon.get(right)) - Number(isCommon.get(left))))
      answers.set(claim.id, this.#renew(call, inbox, this.entries.get(claim.id) as Entry, isCommon.get(claim)));
    const inOrder = claims.map(({ id }) => answers.get(id) as ModelAnswer);
    return toPrediction(call, this.#settledAnswers(call, inOrder));
  }

  #isOnlyHolder(inbox: number, { id, locks }: Claim): boolean {
    const { token, isRevoked, inbox: owner } = this.entries.get(id) as Entry;
    return (
      token > 0 && !isRevoked && owner === inbox && locks.length === 1 && this.queue(locks[0].key).admitted.size === 1
    );
  }

  release(inbox: number, releases: readonly Release[]): Prediction {
    const call = createCall(new Set(), inbox);
    const answers = releases.map(({ claim, hasUnansweredClaim }) => {
      const entry = this.entries.get(claim.id);
      const isThere = this.#isAlive(entry);
      if (isThere) {
        this.#remove(call, entry);
        if (entry.isRevoked) this.#addTombstone(claim, "revoked");
      }
      if (hasUnansweredClaim) this.#addTombstone(claim, "released");
      return isThere && !entry.isRevoked ? "1" : "0";
    });
    this.#settleAll(call);
    return toPrediction(call, answers);
  }

  revoke(key: string, token: number, isImmediate: boolean): Prediction {
    const call = createCall(new Set(), null);
    const held = [...this.queue(key).admitted.values()].map(({ entry }) => entry);
    const blocker = held.find((entry) => {
      const isMeant = entry.token > 0 && token >= entry.token && token < entry.token + entry.claim.tokenCount;
      return this.#isAlive(entry) && isMeant && (isImmediate || !entry.isRevoked);
    });
    if (blocker === undefined) return toPrediction(call, ["0"]);
    if (isImmediate) {
      this.#remove(call, blocker);
      this.#addTombstone(blocker.claim, "revoked");
    } else blocker.isRevoked = true;
    this.#notify(call, blocker, blocker.claim.id);
    this.#settleAll(call);
    return toPrediction(call, ["1"]);
  }

  #enqueue(call: ScriptCall, inbox: number, claim: Claim): ModelAnswer {
    const { id, locks } = claim;
    // asked of each key: it grants to those that fit there
    if (!claim.wait && locks.filter((lock) => this.#isFree(call, lock)).length < locks.length) return { text: "n" };
    const ttlMs = claim.ttlMs as number;
    const expires = this.now + ttlMs;
    const entry: Entry = {
      claim,
      ttlMs,
      inbox,
      expiresAt: expires,
      token: 0,
      enteredCount: 0,
      unreachableSince: 0,
      isRevoked: false,
    };
    for (const lock of locks) {
      const isFree = this.#isFree(call, lock);
      this.entries.set(id, entry);
      entry.enteredCount++;
      if (!isFree) {
        this.#placeLast(lock, entry);
        break;
      }
      if (entry.enteredCount < locks.length) this.#issueNumber(toBucket(lock.key));
      this.queue(lock.key).admitted.set(id, { entry, ...lock, expires });
      if (entry.enteredCount === locks.length) {
        entry.token = this.#issueToken(entry);
        this.statistics.grants++;
      }
    }
    return this.#answer(call, entry);
  }

  /** @param isCommon on the common path, which does not ask whether the holder was unreachable while it waited */
  #renew(call: ScriptCall, inbox: number, entry: Entry, isCommon: boolean = false): ModelAnswer {
    const { ttlMs } = entry;
    if (entry.isRevoked) return { text: "n revoked" };
    const lastCallAt = entry.expiresAt - ttlMs;
    const wasMissed = !isCommon && entry.unreachableSince > lastCallAt;
    if (this.now - lastCallAt >= 0.125 * ttlMs || wasMissed) {
      entry.expiresAt = this.now + ttlMs;
      entry.inbox = inbox;
      this.#updateExpiry(entry);
    }
    if (entry.token === 0) this.#settle(call, currentKey(entry));
    return this.#answer(call, entry);
  }

  /** Its admitted entries end with its lease. */
  #updateExpiry(entry: Entry): void {
    for (const { key } of entry.claim.locks) {
      const queueEntry = this.queue(key).admitted.get(entry.claim.id);
      if (queueEntry !== undefined) queueEntry.expires = entry.expiresAt;
    }
  }

  #answer(call: ScriptCall, entry: Entry): ModelAnswer {
    const remainingMs = entry.expiresAt - this.now;
    if (entry.token > 0)
      return { text: `h ${entry.token} ${entry.claim.tokenCount} ${remainingMs} ${this.now}`, entry };
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
    return Math.max(Math.min(this.now + entry.ttlMs, earliest, endsAt) - this.now, 1);
  }

  /** Settles the rest; a claim granted after its answer is answered again. */
  #settledAnswers(call: ScriptCall, answers: readonly ModelAnswer[]): readonly string[] {
    this.#settleAll(call);
    return answers.map(({ text, entry }) => {
      const isGranted = entry !== undefined && text.startsWith("w") && call.granted.has(entry);
      return isGranted ? this.#answer(call, entry).text : text;
    });
  }

  #isFree(call: ScriptCall, lock: LockSpec): boolean {
    this.#settle(call, lock.key);
    if (!this.#fits(lock.key, lock) || this.#firstAlive(call, lock.key) !== undefined) return false;
    return this.#fits(lock.key, lock); // entries behind a dead one in front may have been admitted meanwhile
  }

  /** The waiter in front; dead ones are removed. */
  #firstAlive(call: ScriptCall, key: string): Entry | undefined {
    const { waiting } = this.queue(key);
    for (;;) {
      const [front] = waiting;
      if (front === undefined || this.#isAlive(front.entry)) return front?.entry;
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
      if (!this.#isAlive(entry)) waiting.splice(passedEntries.length, 1);
      else if (entry.enteredCount < entry.claim.locks.length) {
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
    admitted.set(entry.claim.id, { ...modelEntry, expires: entry.expiresAt });
    const lock = entry.claim.locks[entry.enteredCount++] as LockSpec;
    this.#placeLast(lock, entry);
    this.statistics.advanced++;
    this.#settle(call, lock.key);
  }

  /** Is it granted? The tokens are spent in either case, unless it was known to be unreachable. */
  #tryGrant(call: ScriptCall, key: string, modelEntry: ModelEntry): boolean {
    const { entry } = modelEntry;
    const { id, tokenCount, locks } = entry.claim;
    const isAsking = call.answeredIds.has(id);
    if (!isAsking && this.#isUnreachable(call, entry)) return false;
    entry.token = this.#issueToken(entry);
    const firstKey = locks[0].key;
    const text = `${id} ${entry.token} ${tokenCount} ${entry.expiresAt - this.now} h ${toBucket(firstKey)}${firstKey}`;
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
    this.statistics.grants++;
    admitted.set(modelEntry.entry.claim.id, { ...modelEntry, expires: modelEntry.entry.expiresAt });
  }

  #notify(call: ScriptCall, { inbox }: Entry, text: string): boolean {
    if (call.notifiedInbox === inbox) {
      call.ownPushes.push(text);
      return true;
    }
    const isHeard = !this.#isUnreachable(call, { inbox }) && this.listening.has(inbox);
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
    const lastCallAt = entry.expiresAt - entry.ttlMs;
    if (entry.unreachableSince > lastCallAt && this.now - entry.unreachableSince >= SECOND_MS) {
      this.#remove(call, entry);
      this.statistics.dropped++;
      return false;
    }
    if (entry.unreachableSince <= lastCallAt) {
      entry.unreachableSince = this.now;
      this.statistics.skipped++;
    }
    return true;
  }

  #grantUnreachable(key: string, first: ModelEntry): void {
    if (this.queue(key).waiting[0] !== first || !this.#fits(key, first)) return;
    const { entry } = first;
    if (entry.expiresAt > this.now + SECOND_MS) this.statistics.grantedUnreachable++;
    entry.expiresAt = Math.min(entry.expiresAt, this.now + SECOND_MS);
    this.#updateExpiry(entry);
    entry.token = this.#issueToken(entry);
    this.#admit(key, first);
  }

  #placeLast(lock: LockSpec, entry: Entry): void {
    this.#issueNumber(toBucket(lock.key));
    this.queue(lock.key).waiting.push({ entry, ...lock });
  }

  /** Arrivals and tokens of a bucket are numbers of one sequence. */
  #issueNumber(bucket: string): void {
    this.counters.set(bucket, Math.max(this.micros, (this.counters.get(bucket) ?? 0) + 1));
  }

  #issueToken({ claim }: Entry): number {
    const buckets = claim.locks.map(({ key }) => toBucket(key));
    const last = Math.max(...buckets.map((bucket) => this.counters.get(bucket) ?? 0));
    const token = Math.max(this.micros, Number(claim.floor), last + 1);
    for (const bucket of buckets) this.counters.set(bucket, token + claim.tokenCount - 1);
    return token;
  }

  #remove(call: ScriptCall, entry: Entry): void {
    for (const { key } of entry.claim.locks.slice(0, entry.enteredCount)) {
      const { waiting, admitted } = this.queue(key);
      admitted.delete(entry.claim.id);
      const index = waiting.findIndex((modelEntry) => modelEntry.entry === entry);
      if (index >= 0) waiting.splice(index, 1);
      if (!call.removed.has(key)) call.unsettled.push(key);
      call.removed.add(key);
    }
    this.entries.delete(entry.claim.id);
  }

  #addTombstone({ id, ttlMs }: Claim, reason: string): void {
    this.ended.set(id, { how: reason, until: this.now + (ttlMs as number) });
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
    ownPushes: [],
    pushes: [],
    checkedFronts: new Map(),
  };
}

function toPrediction({ ownPushes, pushes }: ScriptCall, answers: readonly string[]): Prediction {
  return { answers, ownPushes, pushes };
}

/** The key whose queue it has entered last. */
function currentKey({ claim, enteredCount }: Entry): string {
  return (claim.locks[enteredCount - 1] as LockSpec).key;
}

/** What a claim's record says. When it was found unreachable counts only if nothing was heard of it since. */
export function describeEntry({
  expiresAt,
  token,
  enteredCount,
  unreachableSince,
  ttlMs,
}: Pick<Entry, "expiresAt" | "token" | "enteredCount" | "unreachableSince" | "ttlMs">): string {
  const missedAt = unreachableSince > expiresAt - ttlMs ? unreachableSince : 0;
  return `until ${expiresAt}, token ${token}, in ${enteredCount} queues, missed ${missedAt}`;
}

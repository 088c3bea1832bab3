/**
 * A pure model of the queues that the Lua scripts keep (src/drivers/redis/lua/line): who is admitted, who is passed over
 * because its process does not listen (unreachable waiters), dropped when that happens again a second later, or granted for a
 * second when nobody listens. It knows no sums, caches or forms of keys: each question is answered from the places as they
 * stand. What it says after each command is what has to stand in Redis (unreachable-model.test.ts).
 */

import { ALL_PERMITS } from "../../src/spi/driver.ts";

const SECOND_MS = 1_000;
const MOST_PASSED = 32;

export interface ModelHold {
  readonly bucket: string;
  readonly key: string;
  readonly permits: number;
  readonly limit: number;
}

export interface Wanted {
  readonly id: string;
  readonly holds: readonly ModelHold[];
  readonly ttlMs: number;
  readonly tokens: number;
  readonly floor: number;
  readonly wait: boolean;
}

export interface Entry {
  readonly wanted: Wanted;
  /** The process that claimed or renewed it last. */
  inbox: number;
  expires: number;
  /** 0: waiting. */
  token: number;
  /** How many keys it has come to. */
  stage: number;
  /** When it was found unreachable first since its process was heard of; may be older than that. */
  missed: number;
  isRevoked: boolean;
}

interface Place {
  readonly entry: Entry;
  readonly permits: number;
  readonly limit: number;
}

export interface Queue {
  /** By id. A place ends with the lease that it was given or extended by. */
  readonly admitted: Map<string, Place & { expires: number }>;
  readonly waiting: Place[];
}

export interface Push {
  readonly inbox: number;
  readonly text: string;
}

/** What one script knows while it runs. */
interface Call {
  /** Those it answers for: they hear of a grant in the answer. */
  readonly asking: ReadonlySet<string>;
  /** The process that hears in the answer what becomes of its own waiters; null: none does. */
  readonly told: number | null;
  readonly unreachable: Set<number>;
  readonly knocked: Set<number>;
  readonly left: Set<string>;
  readonly unsettled: string[];
  /** Those of asking that were granted. */
  readonly granted: Set<Entry>;
  readonly pushes: Push[];
  /** By key: who stood in front when its lease was looked at, and when it ends. */
  readonly asked: Map<string, { readonly front: Place | undefined; readonly ends: number }>;
}

export class QueueModel {
  /** In a Cluster a process is asked with an empty message first, once a call, whether it listens. */
  readonly knocks: boolean;
  /** The store's clock in microseconds. */
  micros = 0;
  /** How many places were lost by the second miss. */
  dropped = 0;
  readonly listening: Set<number> = new Set();
  readonly entries: Map<string, Entry> = new Map();
  /** Claims that a late call must not place, and how they ended. */
  readonly ended: Map<string, { readonly how: string; readonly until: number }> = new Map();
  readonly queues: Map<string, Queue> = new Map();
  /** The last token of each bucket. */
  readonly counters: Map<string, number> = new Map();

  constructor(knocks: boolean) {
    this.knocks = knocks;
  }

  get now(): number {
    return Math.floor(this.micros / 1_000);
  }

  isAlive(entry: Entry | undefined): entry is Entry {
    return entry !== undefined && this.entries.get(entry.wanted.id) === entry && entry.expires > this.now;
  }

  queue(key: string): Queue {
    const known = this.queues.get(key) ?? { admitted: new Map(), waiting: [] };
    this.queues.set(key, known);
    return known;
  }

  claim(inbox: number, wanted: Wanted): { readonly answer: string; readonly pushes: readonly Push[] } {
    const call = callOf(new Set([wanted.id]), null);
    const ended = this.ended.get(wanted.id);
    if (ended !== undefined && ended.until >= this.now) return { answer: `n ${ended.how}`, pushes: call.pushes };
    const known = this.entries.get(wanted.id);
    const answers = known === undefined ? this.#place(call, inbox, wanted) : [this.#renewed(call, inbox, known)];
    return { answer: this.#settledAnswers(call, answers)[0]?.text as string, pushes: call.pushes };
  }

  renew(inbox: number, entries: readonly Entry[]): { readonly answers: readonly string[]; readonly pushes: Push[] } {
    const call = callOf(new Set(entries.map(({ wanted }) => wanted.id)), null);
    const answers = entries.map((entry) => this.#renewed(call, inbox, entry));
    return { answers: this.#settledAnswers(call, answers).map(({ text }) => text), pushes: call.pushes };
  }

  release(
    inbox: number,
    items: readonly { readonly wanted: Wanted; readonly unanswered: boolean }[],
  ): { readonly flags: string; readonly pushes: readonly Push[] } {
    const call = callOf(new Set(), inbox);
    const flags = items.map(({ wanted, unanswered }) => {
      const entry = this.entries.get(wanted.id);
      const isThere = this.isAlive(entry);
      if (isThere) {
        this.#leave(call, entry);
        if (entry.isRevoked) this.#bury(wanted, "revoked");
      }
      if (unanswered) this.#bury(wanted, "released");
      return isThere && !entry.isRevoked ? "1" : "0";
    });
    this.#settleAll(call);
    return { flags: flags.join(""), pushes: call.pushes };
  }

  revoke(key: string, token: number, isAtOnce: boolean): { readonly flag: string; readonly pushes: readonly Push[] } {
    const call = callOf(new Set(), null);
    const held = [...this.queue(key).admitted.values()].map(({ entry }) => entry);
    const found = held.find((entry) => {
      const { tokens } = entry.wanted;
      const isMeant = entry.token > 0 && token >= entry.token && token < entry.token + tokens;
      return this.isAlive(entry) && isMeant && (isAtOnce || !entry.isRevoked);
    });
    if (found === undefined) return { flag: "0", pushes: [] };
    if (isAtOnce) {
      this.#leave(call, found);
      this.#bury(found.wanted, "revoked");
    } else found.isRevoked = true;
    this.#tell(call, found, found.wanted.id);
    this.#settleAll(call);
    return { flag: "1", pushes: call.pushes };
  }

  #place(call: Call, inbox: number, wanted: Wanted): Answered[] {
    if (!wanted.wait && !wanted.holds.every((hold) => this.#isFree(call, hold))) return [{ text: "n" }];
    const expires = this.now + wanted.ttlMs;
    const entry: Entry = { wanted, inbox, expires, token: 0, stage: 0, missed: 0, isRevoked: false };
    for (const hold of wanted.holds) {
      const isFree = this.#isFree(call, hold);
      this.entries.set(wanted.id, entry);
      entry.stage++;
      if (!isFree) {
        this.queue(hold.key).waiting.push({ entry, ...hold });
        break;
      }
      this.queue(hold.key).admitted.set(wanted.id, { entry, ...hold, expires });
      if (entry.stage === wanted.holds.length) this.#spend(entry);
    }
    return [this.#answer(call, entry)];
  }

  #renewed(call: Call, inbox: number, entry: Entry): Answered {
    const { wanted } = entry;
    if (entry.isRevoked) return { text: "n revoked" };
    const heardAt = entry.expires - wanted.ttlMs;
    if (this.now - heardAt >= 0.25 * wanted.ttlMs || entry.missed > heardAt) {
      entry.expires = this.now + wanted.ttlMs;
      entry.inbox = inbox;
      this.#datePlaces(entry);
    }
    if (entry.token === 0) this.#settle(call, keyOf(entry));
    return this.#answer(call, entry);
  }

  /** Its places among the admitted end when its lease does. */
  #datePlaces(entry: Entry): void {
    for (const { key } of entry.wanted.holds) {
      const place = this.queue(key).admitted.get(entry.wanted.id);
      if (place !== undefined) place.expires = entry.expires;
    }
  }

  #answer(call: Call, entry: Entry): Answered {
    const left = entry.expires - this.now;
    const { tokens } = entry.wanted;
    if (entry.token > 0) return { text: `h ${entry.token} ${tokens} ${left} ${this.now}`, entry };
    return { text: `w ${left} ${this.#recheck(call, entry)} ${this.now}`, entry };
  }

  /** When it should ask again: when the first lease before it may end. */
  #recheck(call: Call, entry: Entry): number {
    const key = keyOf(entry);
    this.#look(key);
    const { waiting, admitted } = this.queue(key);
    let ends = Number.POSITIVE_INFINITY;
    if (waiting[0] !== undefined && waiting[0].entry !== entry) {
      let asked = call.asked.get(key);
      if (asked === undefined || asked.front !== waiting[0]) {
        const ahead = this.#frontAlive(call, key);
        asked = { front: waiting[0], ends: ahead?.expires ?? this.now };
        call.asked.set(key, asked);
      }
      ends = asked.ends;
    }
    this.#look(key);
    const soonest = Math.min(...[...admitted.values()].map(({ expires }) => expires));
    return Math.max(Math.min(this.now + entry.wanted.ttlMs, soonest, ends) - this.now, 1);
  }

  /** Settles what was left; whoever was granted after it was answered is answered again. */
  #settledAnswers(call: Call, answers: readonly Answered[]): readonly Answered[] {
    this.#settleAll(call);
    return answers.map((answered) => {
      const { text, entry } = answered;
      return entry !== undefined && text.startsWith("w") && call.granted.has(entry)
        ? this.#answer(call, entry)
        : answered;
    });
  }

  #isFree(call: Call, hold: ModelHold): boolean {
    this.#settle(call, hold.key);
    if (!this.#fits(hold.key, hold) || this.#frontAlive(call, hold.key) !== undefined) return false;
    return this.#fits(hold.key, hold); // those behind a dead one in front may have been admitted meanwhile
  }

  /** Who waits in front; those that have died are removed. */
  #frontAlive(call: Call, key: string): Entry | undefined {
    const { waiting } = this.queue(key);
    for (;;) {
      const [front] = waiting;
      if (front === undefined || this.isAlive(front.entry)) return front?.entry;
      waiting.shift();
      this.#settle(call, key);
    }
  }

  #look(key: string): void {
    const { admitted } = this.queue(key);
    for (const [id, { expires }] of admitted) if (expires <= this.now) admitted.delete(id);
  }

  #used(key: string): number {
    this.#look(key);
    return [...this.queue(key).admitted.values()].reduce((sum, { permits }) => sum + permits, 0);
  }

  #fits(key: string, { permits, limit }: { readonly permits: number; readonly limit: number }): boolean {
    return this.#used(key) + permits <= limit;
  }

  #settle(call: Call, key: string): void {
    const { waiting } = this.queue(key);
    const passed: Place[] = [];
    let isLetThrough = false;
    for (;;) {
      if (this.#used(key) >= ALL_PERMITS || passed.length === MOST_PASSED) break;
      if (isLetThrough && passed.some((place) => !this.#fits(key, place))) break;
      const place = waiting[passed.length];
      if (place === undefined || !this.#fits(key, place)) break;
      const { entry } = place;
      if (!this.isAlive(entry)) waiting.splice(passed.length, 1);
      else if (entry.stage < entry.wanted.holds.length) {
        this.#goOn(call, key, place);
        isLetThrough = true;
      } else if (this.#offer(call, key, place)) isLetThrough = true;
      else if (this.#isKept(call, entry)) passed.push(place);
    }
    const [first] = passed;
    if (first !== undefined && !isLetThrough) this.#grantUnheard(key, first);
    call.left.delete(key);
  }

  #goOn(call: Call, key: string, place: Place): void {
    const { entry } = place;
    const { waiting, admitted } = this.queue(key);
    waiting.splice(waiting.indexOf(place), 1);
    admitted.set(entry.wanted.id, { ...place, expires: entry.expires });
    const hold = entry.wanted.holds[entry.stage++] as ModelHold;
    this.queue(hold.key).waiting.push({ entry, ...hold });
    this.#settle(call, hold.key);
  }

  /** Is it granted? Unless it was known that nobody listens, the tokens are spent all the same. */
  #offer(call: Call, key: string, place: Place): boolean {
    const { entry } = place;
    const isAsking = call.asking.has(entry.wanted.id);
    if (!isAsking && this.#isUnreachable(call, entry)) return false;
    this.#spend(entry);
    const { id, tokens } = entry.wanted;
    const words = `${id} ${entry.token} ${tokens} ${entry.expires - this.now}`;
    if (isAsking) call.granted.add(entry);
    else if (!this.#tell(call, entry, words)) {
      entry.token = 0;
      return false;
    }
    this.#admit(key, place);
    return true;
  }

  #admit(key: string, place: Place): void {
    const { waiting, admitted } = this.queue(key);
    waiting.splice(waiting.indexOf(place), 1);
    admitted.set(place.entry.wanted.id, { ...place, expires: place.entry.expires });
  }

  #tell(call: Call, { inbox }: Entry, text: string): boolean {
    const isHeard = call.told === inbox || (!this.#isUnreachable(call, { inbox }) && this.listening.has(inbox));
    if (isHeard) call.pushes.push({ inbox, text });
    else call.unreachable.add(inbox);
    return isHeard;
  }

  /** Is it known by now that its process does not listen? */
  #isUnreachable(call: Call, { inbox }: Pick<Entry, "inbox">): boolean {
    if (call.told === inbox) return false;
    if (this.knocks && !call.knocked.has(inbox)) {
      call.knocked.add(inbox);
      if (this.listening.has(inbox)) call.pushes.push({ inbox, text: "" });
      else call.unreachable.add(inbox);
    }
    return call.unreachable.has(inbox);
  }

  /** Does an unreachable waiter keep its place? */
  #isKept(call: Call, entry: Entry): boolean {
    const heardAt = entry.expires - entry.wanted.ttlMs;
    if (entry.missed > heardAt && this.now - entry.missed >= SECOND_MS) {
      this.#leave(call, entry);
      this.dropped++;
      return false;
    }
    if (entry.missed <= heardAt) entry.missed = this.now;
    return true;
  }

  #grantUnheard(key: string, first: Place): void {
    if (this.queue(key).waiting[0] !== first || !this.#fits(key, first)) return;
    const { entry } = first;
    entry.expires = Math.min(entry.expires, this.now + SECOND_MS);
    this.#datePlaces(entry);
    this.#spend(entry);
    this.#admit(key, first);
  }

  #spend(entry: Entry): void {
    const { holds, floor, tokens } = entry.wanted;
    const last = Math.max(...holds.map(({ bucket }) => this.counters.get(bucket) ?? 0));
    entry.token = Math.max(this.micros, floor, last + 1);
    for (const { bucket } of holds) this.counters.set(bucket, entry.token + tokens - 1);
  }

  #leave(call: Call, entry: Entry): void {
    for (const { key } of entry.wanted.holds.slice(0, entry.stage)) {
      const { waiting, admitted } = this.queue(key);
      admitted.delete(entry.wanted.id);
      const at = waiting.findIndex((place) => place.entry === entry);
      if (at >= 0) waiting.splice(at, 1);
      if (!call.left.has(key)) call.unsettled.push(key);
      call.left.add(key);
    }
    this.entries.delete(entry.wanted.id);
  }

  #bury({ id, ttlMs }: Wanted, how: string): void {
    this.ended.set(id, { how, until: this.now + ttlMs });
  }

  #settleAll(call: Call): void {
    for (let at = 0; at < call.unsettled.length; at++) {
      const key = call.unsettled[at] as string;
      if (call.left.has(key)) this.#settle(call, key);
    }
  }
}

interface Answered {
  readonly text: string;
  readonly entry?: Entry;
}

function callOf(asking: ReadonlySet<string>, told: number | null): Call {
  return {
    asking,
    told,
    unreachable: new Set(),
    knocked: new Set(),
    left: new Set(),
    unsettled: [],
    granted: new Set(),
    pushes: [],
    asked: new Map(),
  };
}

/** The key that it has come to. */
function keyOf({ wanted, stage }: Entry): string {
  return (wanted.holds[stage - 1] as ModelHold).key;
}

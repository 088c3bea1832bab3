/**
 * Random commands go to the Lua scripts in a real Redis and to the model of its queues (queue-model.ts), and after each both
 * must have answered alike, told the same processes the same, and stand alike, as the raw keys show. The clock of the
 * server stands still but for the steps that a run makes, so every lease, token and second miss is known exactly.
 */

import assert from "node:assert/strict";
import { Redis } from "ioredis";
import type { Script } from "../../src/drivers/redis/scripts.ts";
import { CLAIM, RELEASE, RENEW, REVOKE } from "../../src/drivers/redis/scripts.ts";
import { bucketOf, routeOf, termsOf, wordsOf } from "../../src/drivers/redis/words.ts";
import { newId } from "../../src/ids.ts";
import type { Claim } from "../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../src/spi/driver.ts";
import { violationsOf } from "../support/inspect.ts";
import type { Snapshot } from "../support/inspect-redis.ts";
import { PLACE, Space, snapshot, viewOf } from "../support/inspect-redis.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import { seededRandom } from "../support/seeded-random.ts";
import type { ShiftedRedis } from "../support/services/shifted-redis.ts";
import type { Entry, Push, Wanted } from "./queue-model.ts";
import { QueueModel } from "./queue-model.ts";

const PREFIX = "model";
const ROOT = `${PREFIX}:1:`;
/** Where the server's clock stands when a run begins: any time will do. */
const START_MICROS = 1_800_000_000_000_000;
const PROCESSES = 3;
/** Two of one bucket, and two of others. */
const KEYS: readonly string[] = keysOf();
const STEPS_MS = [0, 1, 20, 300, 300, 999, 1_000, 1_001, 1_001, 1_001, 2_500, 9_000] as const;
const TTLS_MS = [2_000, 8_000, 60_000, 60_000, 60_000] as const;

function keysOf(): readonly string[] {
  const names = Array.from({ length: 2_000 }, (_, at) => `k${at}`);
  const twin = names.find((name) => name !== "k0" && bucketOf(name) === bucketOf("k0")) as string;
  return ["k0", twin, "other", "zebra"].sort();
}

/** What has been seen in runs: a run in which something never happens shows nothing of it. */
export interface Seen {
  steps: number;
  grants: number;
  passedOver: number;
  dropped: number;
  grantedUnheard: number;
  wentOn: number;
}

/** Connections to one server, for one run after another. */
export class ModelRuns {
  readonly seen: Seen = { steps: 0, grants: 0, passedOver: 0, dropped: 0, grantedUnheard: 0, wentOn: 0 };
  readonly server: ShiftedRedis;
  readonly redis: Redis;
  readonly ears: Redis;
  readonly heard: string[] = [];

  constructor(server: ShiftedRedis) {
    this.server = server;
    this.redis = new Redis(server.port, "127.0.0.1");
    this.ears = new Redis(server.port, "127.0.0.1");
    const heard = (channel: string, message: string): void => void this.heard.push(`${channel} ${message}`);
    this.ears.on("message", heard);
    this.ears.on("smessage", heard);
  }

  /** @throws Error naming the seed, the last commands and what differed */
  async run(seed: number, steps: number): Promise<void> {
    await this.redis.flushall();
    await this.ears.unsubscribe();
    await this.ears.sunsubscribe();
    const run = new Run(this, seed);
    try {
      await run.begin();
      for (let step = 0; step < steps; step++) await run.step();
      this.seen.dropped += run.model.dropped;
    } catch (error) {
      const last = run.done.slice(-15).join("\n  ");
      throw new Error(`seed ${seed}, command ${run.done.length}: ${String(error)}\n  ${last}`, { cause: error });
    }
  }

  close(): void {
    this.redis.disconnect();
    this.ears.disconnect();
  }
}

interface Known {
  readonly claim: Claim;
  readonly wanted: Wanted;
  readonly process: number;
}

/** What a run has more of than others. */
interface Mood {
  readonly keys: readonly string[];
  /** Claims that are wanted at a time. */
  readonly most: number;
  /** How often claims are renewed: of 1; what is not renewed can miss a second turn. */
  readonly renews: number;
  /** How likely a process listens, that was cut off or connected again. */
  readonly listens: number;
  /** How many claims are exclusive: of 1. */
  readonly exclusive: number;
  /** Inboxes as in a Cluster: the scripts ask them first whether they listen. */
  readonly isSharded: boolean;
}

function moodOf(random: SeededRandom): Mood {
  return {
    keys: KEYS.slice(0, 1 + random.int(KEYS.length)),
    most: random.pick([6, 12, 20, 30]),
    renews: random.pick([0.01, 0.05, 0.18]),
    listens: random.pick([0.2, 0.5, 0.5, 0.8]),
    exclusive: random.pick([0.1, 0.35, 0.7]),
    isSharded: random.chance(0.25),
  };
}

class Run {
  readonly done: string[] = [];
  readonly #runs: ModelRuns;
  readonly #random: SeededRandom;
  readonly model: QueueModel;
  /** Those that their processes still want. */
  #known: Known[] = [];
  readonly #buried: Known[] = [];
  readonly #names = new Map<string, string>();
  readonly #mood: Mood;

  constructor(runs: ModelRuns, seed: number) {
    this.#runs = runs;
    this.#random = seededRandom(seed);
    this.#mood = moodOf(this.#random);
    this.model = new QueueModel(this.#mood.isSharded);
  }

  async begin(): Promise<void> {
    this.model.micros = START_MICROS;
    this.#runs.server.freeze(START_MICROS);
    for (let process = 0; process < PROCESSES; process++) await this.#listen(process, true);
    this.#runs.heard.length = 0;
  }

  async step(): Promise<void> {
    this.#runs.seen.steps++;
    const random = this.#random;
    this.#known = this.#known.filter(({ wanted }) => this.model.isAlive(this.model.entries.get(wanted.id)));
    const roll = random.next();
    const { most, renews } = this.#mood;
    const isCrowded = this.#known.length >= most;
    const before = new Map(
      [...this.model.entries].map(([id, { token, stage, missed }]) => [id, { token, stage, missed }]),
    );
    if (this.#known.length === 0 || (roll < 0.33 && !isCrowded)) await this.#claim(this.#newClaim());
    else if (roll < 0.76 - renews) await this.#release();
    else if (roll < 0.76) await this.#renew();
    else if (roll < 0.84) await this.#toggle();
    else if (roll < 0.94) this.#pass(random.pick(STEPS_MS));
    else if (roll < 0.96) await this.#revoke();
    else if (roll < 0.99) await this.#claim(random.pick([...this.#known, ...this.#stillBuried()]));
    else this.#forget();
    this.#note(before);
    await this.#sameState();
  }

  /** A late call of these is to be ignored. */
  #stillBuried(): readonly Known[] {
    return this.#buried.filter(({ wanted }) => (this.model.ended.get(wanted.id)?.until ?? 0) >= this.model.now);
  }

  #note(
    before: ReadonlyMap<string, { readonly token: number; readonly stage: number; readonly missed: number }>,
  ): void {
    const { seen } = this.#runs;
    for (const [id, { token, stage, missed, expires, wanted }] of this.model.entries) {
      const was = before.get(id) ?? { token: 0, stage: 1, missed: 0 };
      if (token > 0 && was.token === 0) seen.grants++;
      if (token > 0 && was.token === 0 && expires - this.model.now <= 1_000 && wanted.ttlMs > 1_000)
        seen.grantedUnheard++;
      if (missed > was.missed) seen.passedOver++;
      if (stage > was.stage) seen.wentOn++;
    }
  }

  #newClaim(): Known {
    const random = this.#random;
    const several = random.chance(0.35) ? this.#mood.keys.filter(() => random.chance(0.55)) : [];
    const keys = several.length > 0 ? several : [random.pick(this.#mood.keys)];
    const holds = keys.map((key) => {
      const roll = random.next();
      if (roll < this.#mood.exclusive) return { key, permits: ALL_PERMITS, limit: ALL_PERMITS };
      if (roll < this.#mood.exclusive + 0.2) return { key, permits: 1, limit: ALL_PERMITS };
      const limit = 1 + random.int(4);
      return { key, permits: 1 + random.int(limit), limit };
    });
    const claim: Claim = {
      id: newId(),
      holds: holds as unknown as Claim["holds"],
      ttlMs: random.pick(TTLS_MS),
      tokens: random.chance(0.2) ? 1 + random.int(64) : 1,
      floor: random.chance(0.1) ? BigInt(this.model.micros + random.int(1_000_000)) : 0n,
      wait: random.chance(0.85),
      label: "model",
    };
    const { id, ttlMs, tokens, floor, wait } = claim;
    const wanted: Wanted = {
      id,
      holds: claim.holds.map((hold) => ({ ...hold, bucket: bucketOf(hold.key) })),
      ttlMs: ttlMs as number,
      tokens,
      floor: Number(floor),
      wait,
    };
    this.#names.set(id, `#${this.#names.size + 1}`);
    return { claim, wanted, process: random.int(PROCESSES) };
  }

  async #claim(known: Known): Promise<void> {
    const { claim, wanted, process } = known;
    const { id, holds, ttlMs, wait } = wanted;
    const all = holds.map(({ key, permits, limit }) => `${key}:${shown(permits)}/${shown(limit)}`).join("+");
    const how = `${wait ? "" : " at once"} for ${ttlMs}`;
    const expected = this.model.claim(process, wanted);
    const answer = await this.#call(CLAIM, process, [...wordsOf(claim), ...termsOf(claim)]);
    this.#say(`p${process} claims ${id} ${all}${how}: ${expected.answer}`);
    assert.equal(String(answer), expected.answer);
    if (this.model.entries.has(id) && !this.#known.some((one) => one.wanted.id === id)) this.#known.push(known);
    await this.#samePushes(expected.pushes);
  }

  async #renew(): Promise<void> {
    const process = this.#random.int(PROCESSES);
    const some = this.#known.filter((known) => known.process === process && this.#random.chance(0.6));
    if (some.length === 0) return;
    const entries = some.map(({ wanted }) => this.model.entries.get(wanted.id) as Entry);
    const expected = this.model.renew(process, entries);
    const words = [String(some.length), ...some.flatMap(({ claim }) => wordsOf(claim))];
    const answers = await this.#call(RENEW, process, words);
    this.#say(`p${process} renews ${some.map(({ wanted }) => wanted.id).join(" ")}: ${expected.answers.join(", ")}`);
    assert.deepEqual(answers, expected.answers);
    await this.#samePushes(expected.pushes);
  }

  async #release(): Promise<void> {
    const isHeld = ({ wanted }: Known): boolean => (this.model.entries.get(wanted.id)?.token ?? 0) > 0;
    const held = this.#known.filter(isHeld);
    const { process } = this.#random.pick(held.length > 0 && this.#random.chance(0.8) ? held : this.#known);
    const own = this.#known.filter((known) => known.process === process);
    const some = own.filter((known) => this.#random.chance(isHeld(known) ? 0.6 : 0.05)).slice(0, 3);
    const items = (some.length === 0 ? [this.#random.pick(own)] : some).map((known) => ({
      ...known,
      unanswered: this.#random.chance(0.15),
    }));
    const expected = this.model.release(process, items);
    const flags = items.map(({ claim, unanswered }) => [unanswered ? "1" : "0", ...wordsOf(claim)]);
    const answer = String(await this.#call(RELEASE, process, [String(items.length), ...flags.flat()]));
    const names = items.map(({ wanted, unanswered }) => `${wanted.id}${unanswered ? " unanswered" : ""}`);
    this.#say(`p${process} releases ${names.join(" ")}: ${expected.flags}`);
    const own_ = expected.pushes.filter(({ inbox }) => inbox === process).map(({ text }) => text);
    assert.deepEqual(answer.split("\n"), [expected.flags, ...own_]);
    const gone = new Set(items.map(({ wanted }) => wanted.id));
    this.#known = this.#known.filter(({ wanted }) => !gone.has(wanted.id));
    this.#buried.push(...items.filter(({ wanted }) => this.model.ended.has(wanted.id)));
    if (this.#buried.length > 5) this.#buried.shift();
    await this.#samePushes(expected.pushes.filter(({ inbox }) => inbox !== process));
  }

  async #revoke(): Promise<void> {
    const held = this.#known.filter(({ wanted }) => (this.model.entries.get(wanted.id)?.token ?? 0) > 0);
    if (held.length === 0) return;
    const { wanted } = this.#random.pick(held);
    const { token } = this.model.entries.get(wanted.id) as Entry;
    const [hold] = wanted.holds;
    const isAtOnce = this.#random.chance(0.5);
    const key = hold?.key as string;
    const expected = this.model.revoke(key, token, isAtOnce);
    const words = ["1", bucketOf(key), key, String(token), isAtOnce ? "1" : "0"];
    const answer = await this.#call(REVOKE, 0, words);
    this.#say(`revokes ${wanted.id} on ${key}${isAtOnce ? " at once" : ""}`);
    assert.equal(answer, expected.flag);
    await this.#samePushes(expected.pushes);
  }

  async #toggle(): Promise<void> {
    const process = this.#random.int(PROCESSES);
    await this.#listen(process, this.#random.chance(this.#mood.listens));
    this.#say(`p${process} ${this.model.listening.has(process) ? "listens" : "is cut off"}`);
  }

  async #listen(process: number, isOn: boolean): Promise<void> {
    const { ears } = this.#runs;
    const channel = this.#channelOf(process);
    if (this.#mood.isSharded) await (isOn ? ears.ssubscribe(channel) : ears.sunsubscribe(channel));
    else await (isOn ? ears.subscribe(channel) : ears.unsubscribe(channel));
    if (isOn) this.model.listening.add(process);
    else this.model.listening.delete(process);
  }

  #pass(ms: number): void {
    this.model.micros += ms * 1_000 + this.#random.int(1_000);
    this.#runs.server.freeze(this.model.micros);
    this.#say(`${ms} ms pass`);
  }

  /** A process dies, or forgets: some of its claims are never heard of again. */
  #forget(): void {
    const process = this.#random.int(PROCESSES);
    this.#known = this.#known.filter((known) => known.process !== process || this.#random.chance(0.3));
    this.#say(`p${process} forgets`);
  }

  #call(script: Script, process: number, words: readonly string[]): Promise<unknown> {
    const head = ["1", routeOf(ROOT, "00"), ROOT, this.#channelOf(process), "", "0"];
    return this.#runs.redis.evalsha(script.sha, ...(head as [string]), ...words).catch((error: Error) => {
      if (!error.message.startsWith("NOSCRIPT")) throw error;
      return this.#runs.redis.call("EVAL", script.text, ...head, ...words);
    });
  }

  async #samePushes(expected: readonly Push[]): Promise<void> {
    // behind what was published, on the same connection
    if (this.model.listening.size > 0) await this.#runs.ears.ping();
    const heard = this.#runs.heard.splice(0);
    assert.deepEqual(
      heard,
      expected.map(({ inbox, text }) => `${this.#channelOf(inbox)} ${text}`),
      "what is published",
    );
  }

  async #sameState(): Promise<void> {
    const seen = await snapshot(this.#runs.redis, ["0"], PREFIX);
    assert.equal(seen.now, this.model.now, "the clock");
    assert.deepEqual(violationsOf(viewOf(seen)), [], "the state of Redis");
    assert.deepEqual(stateOf(seen, this.model), this.#expected());
  }

  #expected(): Record<string, unknown> {
    const state: Record<string, unknown> = {};
    for (const [key, { admitted, waiting }] of this.model.queues) {
      const held = [...admitted.values()].filter(({ expires }) => expires > this.model.now);
      const queued = waiting.filter(({ entry }) => this.model.isAlive(entry));
      if (held.length > 0)
        state[`${key} admitted`] = held.map(({ entry, expires }) => `${entry.wanted.id} ${expires}`).sort();
      if (queued.length > 0) state[`${key} waiting`] = queued.map(({ entry }) => entry.wanted.id);
    }
    for (const [id, entry] of this.model.entries) {
      if (this.model.isAlive(entry)) state[id] = standing(entry);
    }
    for (const [bucket, last] of this.model.counters) state[`{${bucket}}`] = last;
    return state;
  }

  #channelOf(process: number): string {
    return `${ROOT}${this.#mood.isSharded ? "{00}:" : ""}inbox:p${process}`;
  }

  #say(what: string): void {
    this.done.push(what.replaceAll(/\b[a-z2-7]{26}\b/g, (id) => this.#names.get(id) ?? id));
  }
}

function stateOf({ now, spaces }: Snapshot, model: QueueModel): Record<string, unknown> {
  const { lines, records, counters } = [...spaces.values()][0] ?? new Space();
  const state: Record<string, unknown> = {};
  const id = (member: string): string => PLACE.exec(member)?.[2] ?? member;
  const owner = (member: string): string => `${PLACE.exec(member)?.[1]}${id(member)}`;
  for (const [name, { admitted, waiting }] of lines) {
    const held = admitted.filter(([, expires]) => expires > now);
    const queued = waiting.filter(([member]) => (records.get(owner(member))?.expires ?? 0) > now);
    const key = name.slice(2);
    if (held.length > 0) state[`${key} admitted`] = held.map(([member, expires]) => `${id(member)} ${expires}`).sort();
    if (queued.length > 0) state[`${key} waiting`] = queued.map(([member]) => id(member));
  }
  for (const [claim, record] of records) {
    if (record.expires > now) state[claim.slice(2)] = standing({ ...record, ttlMs: record.ttl });
  }
  for (const [bucket, last] of counters) if (model.counters.has(bucket)) state[`{${bucket}}`] = last;
  return state;
}

/** What a claim's record says. When it was missed counts only if nothing was heard of it since. */
function standing({
  expires,
  token,
  stage,
  missed,
  ...one
}: Pick<Entry, "expires" | "token" | "stage" | "missed"> & ({ wanted: Wanted } | { ttlMs: number })): string {
  const heardAt = expires - ("wanted" in one ? one.wanted.ttlMs : one.ttlMs);
  return `until ${expires}, token ${token}, stage ${stage}, missed ${missed > heardAt ? missed : 0}`;
}

function shown(permits: number): string {
  return permits === ALL_PERMITS ? "all" : String(permits);
}

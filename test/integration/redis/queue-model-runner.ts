/**
 * Random commands go to the Lua scripts in a real Redis and to the model of its queues (queue-model.ts). After each command
 * both must have the same answers, the same pushes to the same processes, and the same state, as the raw keys show. The
 * clock of the server stands still except for the steps of a run, so every lease, token and second miss is known exactly.
 */

import assert from "node:assert/strict";
import { Redis } from "ioredis";
import { toBucket, toRoutingKey } from "../../../src/drivers/redis/key-names.ts";
import RENEW from "../../../src/drivers/redis/lua/renew.lua";
import REVOKE from "../../../src/drivers/redis/lua/revoke.lua";
import TURN from "../../../src/drivers/redis/lua/turn.lua";
import type { Script } from "../../../src/drivers/redis/script-codec.ts";
import { encodeClaimItem, encodeName, encodeReleaseItem } from "../../../src/drivers/redis/script-codec.ts";
import type { Claim } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import { randomId } from "../../../src/util/ids.ts";
import type { SeededRandom } from "../../support/seeded-random.ts";
import { seededRandom } from "../../support/seeded-random.ts";
import type { Snapshot } from "../../support/stores/redis-inspector.ts";
import { ENTRY_PATTERN, Keyspace, takeSnapshot, toStoreView } from "../../support/stores/redis-inspector.ts";
import type { ShiftedClockRedis } from "../../support/stores/redis-shifted-clock.ts";
import { findViolations } from "../../support/stores/store-inspector.ts";
import type { ClaimRequest, Entry, Push } from "./queue-model.ts";
import { QueueModel } from "./queue-model.ts";

const PREFIX = "model";
const ROOT = `${PREFIX}:3:`;
/** The server's clock when a run begins: any time will do. */
const START_MICROS = 1_800_000_000_000_000;
const PROCESSES = 3;
/** Two of one bucket, and two of others. */
const KEYS: readonly string[] = pickKeys();
const STEPS_MS = [0, 1, 20, 300, 300, 999, 1_000, 1_001, 1_001, 1_001, 2_500, 9_000] as const;
const TTLS_MS = [2_000, 8_000, 60_000, 60_000, 60_000] as const;

function pickKeys(): readonly string[] {
  const names = Array.from({ length: 2_000 }, (_, index) => `k${index}`);
  const sameBucketKey = names.find((name) => name !== "k0" && toBucket(name) === toBucket("k0")) as string;
  return ["k0", sameBucketKey, "other", "zebra"].sort();
}

/** Cases seen in runs: a run in which a case never happens proves nothing about it. */
export interface RunStatistics {
  steps: number;
  grants: number;
  skipped: number;
  dropped: number;
  grantedUnreachable: number;
  movedOn: number;
}

/** Connections to one server, for one run after another. */
export class QueueModelRunner {
  readonly statistics: RunStatistics = {
    steps: 0,
    grants: 0,
    skipped: 0,
    dropped: 0,
    grantedUnreachable: 0,
    movedOn: 0,
  };
  readonly server: ShiftedClockRedis;
  readonly redis: Redis;
  readonly subscriber: Redis;
  readonly receivedMessages: string[] = [];

  constructor(server: ShiftedClockRedis) {
    this.server = server;
    this.redis = new Redis(server.port, "127.0.0.1");
    this.subscriber = new Redis(server.port, "127.0.0.1");
    const onMessage = (channel: string, message: string): void =>
      void this.receivedMessages.push(`${channel} ${message}`);
    this.subscriber.on("message", onMessage);
    this.subscriber.on("smessage", onMessage);
  }

  /** @throws Error naming the seed, the last commands and what differed */
  async run(seed: number, steps: number): Promise<void> {
    await this.redis.flushall();
    await this.subscriber.unsubscribe();
    await this.subscriber.sunsubscribe();
    const run = new ModelRun(this, seed);
    try {
      await run.begin();
      for (let step = 0; step < steps; step++) await run.step();
      this.statistics.dropped += run.model.dropped;
    } catch (error) {
      const last = run.commandLog.slice(-15).join("\n  ");
      throw new Error(`seed ${seed}, command ${run.commandLog.length}: ${String(error)}\n  ${last}`, { cause: error });
    }
  }

  close(): void {
    this.redis.disconnect();
    this.subscriber.disconnect();
  }
}

interface KnownClaim {
  readonly claim: Claim;
  readonly request: ClaimRequest;
  readonly process: number;
}

/** What a run has more of than others. */
interface RunProfile {
  readonly keys: readonly string[];
  /** Claims requested at a time. */
  readonly maxClaims: number;
  /** The share of claims that are renewed: a claim that is not renewed can miss a second turn. */
  readonly renewChance: number;
  /** The probability that a disconnected process is connected again. */
  readonly listenChance: number;
  /** The share of exclusive claims. */
  readonly exclusiveChance: number;
  /** Inboxes as in a Cluster: the scripts first ask them whether they are subscribed. */
  readonly isSharded: boolean;
}

function createProfile(random: SeededRandom): RunProfile {
  return {
    keys: KEYS.slice(0, 1 + random.int(KEYS.length)),
    maxClaims: random.pick([6, 12, 20, 30]),
    renewChance: random.pick([0.01, 0.05, 0.18]),
    listenChance: random.pick([0.2, 0.5, 0.5, 0.8]),
    exclusiveChance: random.pick([0.1, 0.35, 0.7]),
    isSharded: random.chance(0.25),
  };
}

class ModelRun {
  readonly commandLog: string[] = [];
  readonly #runs: QueueModelRunner;
  readonly #random: SeededRandom;
  readonly model: QueueModel;
  /** The claims that their processes still want. */
  #claims: KnownClaim[] = [];
  readonly #tombstones: KnownClaim[] = [];
  readonly #claimNames = new Map<string, string>();
  readonly #profile: RunProfile;

  constructor(runs: QueueModelRunner, seed: number) {
    this.#runs = runs;
    this.#random = seededRandom(seed);
    this.#profile = createProfile(this.#random);
    this.model = new QueueModel(this.#profile.isSharded);
  }

  async begin(): Promise<void> {
    this.model.micros = START_MICROS;
    this.#runs.server.freeze(START_MICROS);
    for (let process = 0; process < PROCESSES; process++) await this.#setListening(process, true);
    this.#runs.receivedMessages.length = 0;
  }

  async step(): Promise<void> {
    this.#runs.statistics.steps++;
    const random = this.#random;
    this.#claims = this.#claims.filter(({ request }) => this.model.isAlive(this.model.entries.get(request.id)));
    const draw = random.next();
    const { maxClaims, renewChance } = this.#profile;
    const isCrowded = this.#claims.length >= maxClaims;
    const before = new Map(
      [...this.model.entries].map(([id, { token, stage, unreachableSince: missed }]) => [id, { token, stage, missed }]),
    );
    if (this.#claims.length === 0 || (draw < 0.33 && !isCrowded)) await this.#claim(this.#newClaim());
    else if (draw < 0.76 - renewChance) await this.#release();
    else if (draw < 0.76) await this.#renew();
    else if (draw < 0.84) await this.#toggle();
    else if (draw < 0.94) this.#advanceClock(random.pick(STEPS_MS));
    else if (draw < 0.96) await this.#revoke();
    else if (draw < 0.99) await this.#claim(random.pick([...this.#claims, ...this.#liveTombstones()]));
    else this.#forget();
    this.#note(before);
    await this.#expectSameState();
  }

  /** Late calls of these must be ignored. */
  #liveTombstones(): readonly KnownClaim[] {
    return this.#tombstones.filter(({ request }) => (this.model.ended.get(request.id)?.until ?? 0) >= this.model.now);
  }

  #note(
    before: ReadonlyMap<string, { readonly token: number; readonly stage: number; readonly missed: number }>,
  ): void {
    const { statistics } = this.#runs;
    for (const [id, { token, stage, unreachableSince, expiresAt, request }] of this.model.entries) {
      const previous = before.get(id) ?? { token: 0, stage: 1, missed: 0 };
      if (token > 0 && previous.token === 0) statistics.grants++;
      if (token > 0 && previous.token === 0 && expiresAt - this.model.now <= 1_000 && request.ttlMs > 1_000)
        statistics.grantedUnreachable++;
      if (unreachableSince > previous.missed) statistics.skipped++;
      if (stage > previous.stage) statistics.movedOn++;
    }
  }

  #newClaim(): KnownClaim {
    const random = this.#random;
    const chosenKeys = random.chance(0.35) ? this.#profile.keys.filter(() => random.chance(0.55)) : [];
    const keys = chosenKeys.length > 0 ? chosenKeys : [random.pick(this.#profile.keys)];
    const holds = keys.map((key) => {
      const draw = random.next();
      if (draw < this.#profile.exclusiveChance) return { key, permits: ALL_PERMITS, limit: ALL_PERMITS };
      if (draw < this.#profile.exclusiveChance + 0.2) return { key, permits: 1, limit: ALL_PERMITS };
      const limit = 1 + random.int(4);
      return { key, permits: 1 + random.int(limit), limit };
    });
    const claim: Claim = {
      id: randomId(),
      locks: holds as unknown as Claim["locks"],
      ttlMs: random.pick(TTLS_MS),
      tokenCount: random.chance(0.2) ? 1 + random.int(64) : 1,
      floor: random.chance(0.1) ? BigInt(this.model.micros + random.int(1_000_000)) : 0n,
      wait: random.chance(0.85),
      label: "model",
    };
    const { id, ttlMs, tokenCount: tokens, floor, wait } = claim;
    const request: ClaimRequest = {
      id,
      holds: claim.locks.map((lockSpec) => ({ ...lockSpec, bucket: toBucket(lockSpec.key) })),
      ttlMs: ttlMs as number,
      tokens,
      floor: Number(floor),
      wait,
    };
    this.#claimNames.set(id, `#${this.#claimNames.size + 1}`);
    return { claim, request, process: random.int(PROCESSES) };
  }

  async #claim(knownClaim: KnownClaim): Promise<void> {
    const { claim, request, process } = knownClaim;
    const { id, holds, ttlMs, wait } = request;
    const lockText = holds
      .map(({ key, permits, limit }) => `${key}:${formatPermits(permits)}/${formatPermits(limit)}`)
      .join("+");
    const waitText = `${wait ? "" : " at once"} for ${ttlMs}`;
    const expected = this.model.claim(process, request);
    const [answer, ...own] = String(await this.#call(TURN, process, [encodeClaimItem(claim)])).split("\n");
    this.#log(`p${process} claims ${id} ${lockText}${waitText}: ${expected.answer}`);
    assert.equal(answer, expected.answer);
    const isOwn = ({ inbox }: Push): boolean => inbox === process;
    assert.deepEqual(
      own,
      expected.pushes.filter(isOwn).map(({ text }) => text),
    );
    if (this.model.entries.has(id) && !this.#claims.some((claim) => claim.request.id === id))
      this.#claims.push(knownClaim);
    await this.#expectSamePushes(expected.pushes.filter((push) => !isOwn(push)));
  }

  async #renew(): Promise<void> {
    const process = this.#random.int(PROCESSES);
    const selection = this.#claims.filter((knownClaim) => knownClaim.process === process && this.#random.chance(0.6));
    if (selection.length === 0) return;
    const entries = selection.map(({ request }) => this.model.entries.get(request.id) as Entry);
    const expected = this.model.renew(process, entries);
    const requests = selection.map(({ claim }) => encodeName(claim));
    const answers = await this.#call(RENEW, process, requests);
    this.#log(
      `p${process} renews ${selection.map(({ request }) => request.id).join(" ")}: ${expected.answers.join(", ")}`,
    );
    assert.deepEqual(answers, expected.answers);
    await this.#expectSamePushes(expected.pushes);
  }

  async #release(): Promise<void> {
    const isHeld = ({ request }: KnownClaim): boolean => (this.model.entries.get(request.id)?.token ?? 0) > 0;
    const held = this.#claims.filter(isHeld);
    const { process } = this.#random.pick(held.length > 0 && this.#random.chance(0.8) ? held : this.#claims);
    const ownClaims = this.#claims.filter((knownClaim) => knownClaim.process === process);
    const selection = ownClaims
      .filter((knownClaim) => this.#random.chance(isHeld(knownClaim) ? 0.6 : 0.05))
      .slice(0, 3);
    const items = (selection.length === 0 ? [this.#random.pick(ownClaims)] : selection).map((knownClaim) => ({
      ...knownClaim,
      unanswered: this.#random.chance(0.15),
    }));
    const expected = this.model.release(process, items);
    const requests = items.map(({ claim, unanswered }) => encodeReleaseItem({ claim, hasUnansweredClaim: unanswered }));
    const answer = String(await this.#call(TURN, process, requests));
    const names = items.map(({ request, unanswered }) => `${request.id}${unanswered ? " unanswered" : ""}`);
    this.#log(`p${process} releases ${names.join(" ")}: ${expected.flags}`);
    const own_ = expected.pushes.filter(({ inbox }) => inbox === process).map(({ text }) => text);
    assert.deepEqual(answer.split("\n"), [...expected.flags, ...own_]);
    const releasedIds = new Set(items.map(({ request }) => request.id));
    this.#claims = this.#claims.filter(({ request }) => !releasedIds.has(request.id));
    this.#tombstones.push(...items.filter(({ request }) => this.model.ended.has(request.id)));
    if (this.#tombstones.length > 5) this.#tombstones.shift();
    await this.#expectSamePushes(expected.pushes.filter(({ inbox }) => inbox !== process));
  }

  async #revoke(): Promise<void> {
    const held = this.#claims.filter(({ request }) => (this.model.entries.get(request.id)?.token ?? 0) > 0);
    if (held.length === 0) return;
    const { request } = this.#random.pick(held);
    const { token } = this.model.entries.get(request.id) as Entry;
    const [hold] = request.holds;
    const isAtOnce = this.#random.chance(0.5);
    const key = hold?.key as string;
    const expected = this.model.revoke(key, token, isAtOnce);
    const answer = await this.#call(REVOKE, 0, [`${isAtOnce ? "1" : "0"}${toBucket(key)}${key}\n${token}`]);
    this.#log(`revokes ${request.id} on ${key}${isAtOnce ? " at once" : ""}`);
    assert.equal(answer, expected.flag);
    await this.#expectSamePushes(expected.pushes);
  }

  async #toggle(): Promise<void> {
    const process = this.#random.int(PROCESSES);
    await this.#setListening(process, this.#random.chance(this.#profile.listenChance));
    this.#log(`p${process} ${this.model.listening.has(process) ? "listens" : "is cut off"}`);
  }

  async #setListening(process: number, isOn: boolean): Promise<void> {
    const { subscriber } = this.#runs;
    const channel = this.#channelOf(process);
    if (this.#profile.isSharded) await (isOn ? subscriber.ssubscribe(channel) : subscriber.sunsubscribe(channel));
    else await (isOn ? subscriber.subscribe(channel) : subscriber.unsubscribe(channel));
    if (isOn) this.model.listening.add(process);
    else this.model.listening.delete(process);
  }

  #advanceClock(ms: number): void {
    this.model.micros += ms * 1_000 + this.#random.int(1_000);
    this.#runs.server.freeze(this.model.micros);
    this.#log(`${ms} ms pass`);
  }

  /** A process dies, or forgets: it never mentions some of its claims again. */
  #forget(): void {
    const process = this.#random.int(PROCESSES);
    this.#claims = this.#claims.filter((knownClaim) => knownClaim.process !== process || this.#random.chance(0.3));
    this.#log(`p${process} forgets`);
  }

  #call(script: Script, process: number, args: readonly string[]): Promise<unknown> {
    const head = ["1", toRoutingKey(ROOT, "00"), ROOT, this.#channelOf(process), ""];
    return this.#runs.redis.evalsha(script.sha, ...(head as [string]), ...args).catch((error: Error) => {
      if (!error.message.startsWith("NOSCRIPT")) throw error;
      return this.#runs.redis.call("EVAL", script.text, ...head, ...args);
    });
  }

  async #expectSamePushes(expected: readonly Push[]): Promise<void> {
    // after what was published, on the same connection
    if (this.model.listening.size > 0) await this.#runs.subscriber.ping();
    const messages = this.#runs.receivedMessages.splice(0);
    assert.deepEqual(
      messages,
      expected.map(({ inbox, text }) => `${this.#channelOf(inbox)} ${text}`),
      "what is published",
    );
  }

  async #expectSameState(): Promise<void> {
    const snapshot = await takeSnapshot(this.#runs.redis, ["0"], PREFIX);
    assert.equal(snapshot.now, this.model.now, "the clock");
    assert.deepEqual(findViolations(toStoreView(snapshot)), [], "the state of Redis");
    assert.deepEqual(describeState(snapshot, this.model), this.#expected());
  }

  #expected(): Record<string, unknown> {
    const state: Record<string, unknown> = {};
    for (const [key, { admitted, waiting }] of this.model.queues) {
      const held = [...admitted.values()].filter(({ expires }) => expires > this.model.now);
      const queued = waiting.filter(({ entry }) => this.model.isAlive(entry));
      if (held.length > 0)
        state[`${key} admitted`] = held.map(({ entry, expires }) => `${entry.request.id} ${expires}`).sort();
      if (queued.length > 0) state[`${key} waiting`] = queued.map(({ entry }) => entry.request.id);
    }
    for (const [id, entry] of this.model.entries) {
      if (this.model.isAlive(entry)) state[id] = describeEntry(entry);
    }
    for (const [bucket, last] of this.model.counters) state[`{${bucket}}`] = last;
    return state;
  }

  #channelOf(process: number): string {
    return `${ROOT}${this.#profile.isSharded ? "{00}:" : ""}inbox:p${process}`;
  }

  #log(text: string): void {
    this.commandLog.push(text.replaceAll(/\b[a-z2-7]{26}\b/g, (id) => this.#claimNames.get(id) ?? id));
  }
}

function describeState({ now, spaces }: Snapshot, model: QueueModel): Record<string, unknown> {
  const { queues, records, counters } = [...spaces.values()][0] ?? new Keyspace();
  const state: Record<string, unknown> = {};
  const id = (member: string): string => ENTRY_PATTERN.exec(member)?.[2] ?? member;
  const owner = (member: string): string => `${ENTRY_PATTERN.exec(member)?.[1]}${id(member)}`;
  for (const [name, { form, admitted, waiting }] of queues) {
    const held = (form === "free" ? [] : admitted).filter(([, expires]) => expires > now);
    const queued = waiting.filter(([member]) => (records.get(owner(member))?.expiresAt ?? 0) > now);
    const key = name.slice(2);
    if (held.length > 0) state[`${key} admitted`] = held.map(([member, expires]) => `${id(member)} ${expires}`).sort();
    if (queued.length > 0) state[`${key} waiting`] = queued.map(([member]) => id(member));
  }
  for (const [claim, record] of records) {
    if (record.expiresAt > now) state[claim.slice(2)] = describeEntry({ ...record, ttlMs: record.ttl });
  }
  for (const [bucket, last] of counters) if (model.counters.has(bucket)) state[`{${bucket}}`] = last;
  return state;
}

/** What a claim's record says. When it was missed counts only if nothing was heard of it since. */
function describeEntry({
  expiresAt,
  token,
  stage,
  unreachableSince,
  ...one
}: Pick<Entry, "expiresAt" | "token" | "stage" | "unreachableSince"> &
  ({ request: ClaimRequest } | { ttlMs: number })): string {
  const lastCallAt = expiresAt - ("request" in one ? one.request.ttlMs : one.ttlMs);
  return `until ${expiresAt}, token ${token}, stage ${stage}, missed ${unreachableSince > lastCallAt ? unreachableSince : 0}`;
}

function formatPermits(permits: number): string {
  return permits === ALL_PERMITS ? "all" : String(permits);
}

/**
 * Random commands of several processes, sent to the Lua scripts of a real Redis whose clock stands still except for the
 * steps of a run. There are two kinds of runs.
 *
 * A *predicted* run has claims, releases, renewals, revocations, lost subscriptions (also of a Cluster's channels) and dead
 * processes, which the model of the queues knows (queue-model.ts). After each command both must have the same answers, the
 * same pushes to the same processes, and the same state, as the raw keys show.
 *
 * A *faulty* run has, too: turns of many items (also sent twice, with memory full, and with a key that Redis refuses),
 * renewals that lengthen token ranges, recalls, successors, detach and attach, a clock that steps back, and FLUSHALL with
 * guardDataLoss.
 *
 * In both kinds these are checked after each command, on the raw keys and on what the processes were told:
 * - the store's own state is consistent (redis-inspector.ts);
 * - no two processes believe in leases that exclude each other;
 * - every new token of a key is higher than all that were issued on it before;
 * - no claim overtakes a reachable one that waited before it, and those that go on waiting keep their order;
 * - a grant that the command does not answer was pushed, or lasts a second only;
 * - a holder that wants to be recalled was told so, once a claim waits behind it;
 * - the successors that a grant names wait directly behind it, in this order, and it has a token for each;
 * - releases and renewals are never refused for lack of memory.
 * At the end of a faulty run everything is released, and weeding leaves nothing but the counters.
 */

import assert from "node:assert/strict";
import { Redis } from "ioredis";
import { toBucket, toRoutingKey } from "../../../src/drivers/redis/key-names.ts";
import DETACH from "../../../src/drivers/redis/lua/detach.lua";
import RENEW from "../../../src/drivers/redis/lua/renew.lua";
import RESTORE from "../../../src/drivers/redis/lua/restore.lua";
import REVOKE from "../../../src/drivers/redis/lua/revoke.lua";
import TURN from "../../../src/drivers/redis/lua/turn.lua";
import type { Script } from "../../../src/drivers/redis/script-codec.ts";
import {
  encodeClaim,
  encodeClaimItem,
  encodeName,
  encodeReleaseItem,
} from "../../../src/drivers/redis/script-codec.ts";
import type { Claim, LockSpec, Release } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import type { SeededRandom } from "../../support/seeded-random.ts";
import { seededRandom } from "../../support/seeded-random.ts";
import { takeSnapshot, toStoreView } from "../../support/stores/redis-inspector.ts";
import type { ShiftedClockRedis } from "../../support/stores/redis-shifted-clock.ts";
import { findViolations } from "../../support/stores/store-inspector.ts";
import type { ModelStatistics, Prediction } from "./queue-model.ts";
import { QueueModel } from "./queue-model.ts";
import type { View } from "./queue-view.ts";
import { describeSnapshot, EMPTY_VIEW, readView } from "./queue-view.ts";

const PREFIX = "fuzz";
const ROOT = `${PREFIX}:3:`;
const START_MICROS = 1_800_000_000_000_000;
const PROCESSES = 3;
const MAX_TTL_MS = 8_000;
const STEPS_MS = [0, 0, 1, 20, 300, 300, 999, 1_001, 1_001, 2_500, 9_000] as const;
/** A step of a second, and leases that last longer: most of what is unreachable waits for its second miss. */
const PREDICTED_STEPS_MS = [0, 1, 20, 300, 300, 999, 1_000, 1_001, 1_001, 1_001, 2_500, 9_000] as const;
const PREDICTED_TTLS_MS = [2_000, 8_000, 60_000, 60_000, 60_000] as const;
/** Two of one bucket, two of others, and one whose bucket Redis refuses. */
const [KEYS, BROKEN_KEY] = pickKeys();

function pickKeys(): readonly [readonly string[], string] {
  const names = Array.from({ length: 2_000 }, (_, index) => `k${index}`);
  const sameBucketKey = names.find((name) => name !== "k0" && toBucket(name) === toBucket("k0")) as string;
  const keys = ["k0", sameBucketKey, "other", "zebra"].sort();
  const buckets = new Set([...keys.map(toBucket), "00"]);
  return [keys, names.find((name) => !buckets.has(toBucket(name))) as string];
}

interface KnownClaim {
  readonly claim: Claim;
  process: number;
  /** What its process was told. */
  grant: { readonly token: number; readonly tokens: number; readonly until: number } | null;
  isDetached: boolean;
  isRevoked: boolean;
  /** Its holder knows that another claim waits, or may have missed it. */
  isToldOfWaiters: boolean;
  /** A call of it may still arrive. */
  isUncertain: boolean;
}

export type RunKind = "predicted" | "faulty";

/** What a run has more of than others. */
interface Profile {
  readonly keys: readonly string[];
  readonly maxClaims: number;
  readonly maxItems: number;
  readonly exclusiveChance: number;
  /** Of the others, the share of readers; the rest are semaphores. */
  readonly sharedChance: number;
  /** The share of claims that may have several keys. */
  readonly severalChance: number;
  readonly listenChance: number;
  readonly brokenChance: number;
  readonly fullChance: number;
  readonly isGuarded: boolean;
  readonly stepsBack: boolean;
  /** Most claims ask for successors, and could be successors of each other. */
  readonly isStrict: boolean;
  /** Inboxes as in a Cluster: the scripts first ask them whether they are subscribed. */
  readonly isSharded: boolean;
  /** The share of renewals: a claim that is not renewed can be missed a second time. */
  readonly renewChance: number;
}

function createFaultyProfile(random: SeededRandom): Profile {
  return {
    keys: KEYS.slice(0, 1 + random.int(KEYS.length)),
    maxClaims: random.pick([6, 12, 20, 30]),
    maxItems: random.pick([1, 3, 6, 10]),
    exclusiveChance: random.pick([0.2, 0.5, 0.8]),
    sharedChance: 0.4,
    severalChance: 0.3,
    listenChance: random.pick([0.3, 0.6, 0.9]),
    brokenChance: random.pick([0, 0.05, 0.2]),
    fullChance: random.pick([0, 0, 0.15]),
    isGuarded: random.chance(0.3),
    stepsBack: random.chance(0.2),
    isStrict: random.chance(0.25),
    isSharded: false,
    renewChance: 0.15,
  };
}

function createPredictedProfile(random: SeededRandom): Profile {
  return {
    keys: KEYS.slice(0, 1 + random.int(KEYS.length)),
    maxClaims: random.pick([6, 12, 20, 30]),
    maxItems: 3,
    exclusiveChance: random.pick([0.1, 0.35, 0.7]),
    sharedChance: 0.25,
    severalChance: 0.4,
    listenChance: random.pick([0.2, 0.5, 0.5, 0.8]),
    brokenChance: 0,
    fullChance: 0,
    isGuarded: false,
    stepsBack: false,
    isStrict: false,
    isSharded: random.chance(0.25),
    renewChance: random.pick([0.01, 0.05, 0.18]),
  };
}

export interface FuzzStatistics {
  commands: number;
  grants: number;
  pushedGrants: number;
  recalls: number;
  successors: number;
  failedItems: number;
  repeatedTurns: number;
  restored: number;
  extended: number;
  attached: number;
}

export class QueueFuzzer {
  readonly statistics: FuzzStatistics = {
    commands: 0,
    grants: 0,
    pushedGrants: 0,
    recalls: 0,
    successors: 0,
    failedItems: 0,
    repeatedTurns: 0,
    restored: 0,
    extended: 0,
    attached: 0,
  };
  /** Of predicted runs. */
  readonly modelStatistics: ModelStatistics = { grants: 0, skipped: 0, dropped: 0, grantedUnreachable: 0, advanced: 0 };
  readonly server: ShiftedClockRedis;
  readonly redis: Redis;
  readonly subscriber: Redis;
  readonly received: string[] = [];

  constructor(server: ShiftedClockRedis) {
    this.server = server;
    this.redis = new Redis(server.port, "127.0.0.1");
    this.subscriber = new Redis(server.port, "127.0.0.1");
    const onMessage = (channel: string, message: string): void => void this.received.push(`${channel} ${message}`);
    this.subscriber.on("message", onMessage);
    this.subscriber.on("smessage", onMessage);
  }

  /** @throws Error naming the seed, the last commands and what was wrong */
  async run(kind: RunKind, seed: number, steps: number): Promise<void> {
    await this.redis.config("SET", "maxmemory", "0");
    await this.redis.flushall();
    await this.subscriber.unsubscribe();
    await this.subscriber.sunsubscribe();
    const run = new FuzzRun(this, kind, seed);
    try {
      await run.begin();
      for (let step = 0; step < steps; step++) await (kind === "predicted" ? run.predictedStep() : run.step());
      if (kind === "faulty") await run.end();
    } catch (error) {
      const last = run.commandLog.slice(-25).join("\n  ");
      throw new Error(`${kind} seed ${seed}, command ${run.commandLog.length}: ${String(error)}\n  ${last}`, {
        cause: error,
      });
    }
  }

  close(): void {
    this.redis.disconnect();
    this.subscriber.disconnect();
  }
}

class FuzzRun {
  readonly commandLog: string[] = [];
  readonly #fuzzer: QueueFuzzer;
  readonly #random: SeededRandom;
  readonly #profile: Profile;
  /** null: a faulty run. */
  readonly #model: QueueModel | null;
  #micros = START_MICROS;
  /** Those that a process still wants, by id. */
  readonly #claims = new Map<string, KnownClaim>();
  /** Released ones: late calls of them must find nothing. */
  #released: KnownClaim[] = [];
  readonly #listening = new Set<number>();
  /** By key: the highest token that was issued. */
  readonly #highest = new Map<string, number>();
  /** By claim: the end of the range that was counted. */
  readonly #counted = new Map<string, number>();
  #view: View = EMPTY_VIEW;
  #lastTurn: { readonly process: number; readonly items: readonly string[]; readonly ids: readonly string[] } | null =
    null;
  #ids = 0;
  /** The clock of the processes: it never steps back. */
  #elapsedMs = 0;
  #isEnding = false;
  #hasSteppedBack = false;
  #hasLostData = false;

  constructor(fuzzer: QueueFuzzer, kind: RunKind, seed: number) {
    this.#fuzzer = fuzzer;
    this.#random = seededRandom(seed);
    const isPredicted = kind === "predicted";
    this.#profile = isPredicted ? createPredictedProfile(this.#random) : createFaultyProfile(this.#random);
    this.#model = isPredicted ? new QueueModel(this.#profile.isSharded, fuzzer.modelStatistics) : null;
  }

  get #now(): number {
    return Math.floor(this.#micros / 1_000);
  }

  async begin(): Promise<void> {
    this.#log(JSON.stringify(this.#profile));
    this.#setClock();
    await this.#breakBucket();
    if (this.#profile.isGuarded) {
      await this.#call(RENEW, 0, []);
      this.#pass(MAX_TTL_MS + 5_000);
    }
    for (let process = 0; process < PROCESSES; process++) await this.#setListening(process, true);
    this.#fuzzer.received.length = 0;
  }

  async step(): Promise<void> {
    const random = this.#random;
    const draw = random.next();
    if (draw < 0.55) await this.#turn();
    else if (draw < 0.55 + this.#profile.renewChance) await this.#renew();
    else if (draw < 0.84) this.#pass(random.pick(STEPS_MS));
    else if (draw < 0.89) await this.#toggle();
    else if (draw < 0.92) await this.#revoke();
    else if (draw < 0.95) await this.#detach();
    else if (draw < 0.97) await this.#repeatTurn();
    else if (draw < 0.985) this.#die();
    else if (this.#profile.isGuarded) await this.#loseData();
    else if (this.#profile.stepsBack) this.#pass(-random.int(3_000));
  }

  async predictedStep(): Promise<void> {
    const random = this.#random;
    const model = this.#model as QueueModel;
    for (const { claim } of this.#claims.values()) if (!model.has(claim)) this.#claims.delete(claim.id);
    const draw = random.next();
    const { maxClaims, renewChance } = this.#profile;
    if (this.#claims.size === 0 || (draw < 0.33 && this.#claims.size < maxClaims)) {
      const known = this.#newClaim();
      await this.#sendTurn(known.process, [], [known]);
    } else if (draw < 0.76 - renewChance) await this.#releaseSome();
    else if (draw < 0.76) await this.#renew();
    else if (draw < 0.84) await this.#toggle();
    else if (draw < 0.94) this.#pass(random.pick(PREDICTED_STEPS_MS));
    else if (draw < 0.96) await this.#revoke();
    else if (draw < 0.99) {
      const released = this.#released.filter(({ claim }) => model.mayBeClaimed(claim));
      const known = random.pick([...this.#claims.values(), ...released]);
      await this.#sendTurn(known.process, [], [known]);
    } else this.#die();
  }

  /** Releases of one process, most of them of held claims. */
  async #releaseSome(): Promise<void> {
    const random = this.#random;
    const all = [...this.#claims.values()];
    const held = all.filter(({ grant }) => grant !== null);
    const first = random.pick(held.length > 0 && random.chance(0.8) ? held : all);
    const own = this.#ownClaims(first.process);
    const selected = own.filter(({ grant }) => random.chance(grant !== null ? 0.6 : 0.05));
    const releases = selected.length === 0 ? [random.pick(own)] : selected.slice(0, this.#profile.maxItems);
    await this.#sendTurn(first.process, releases, []);
  }

  /** Releases everything; nothing but counters may be left. */
  async end(): Promise<void> {
    for (let process = 0; process < PROCESSES; process++) await this.#setListening(process, true);
    this.#log("the end");
    for (let round = 0; this.#claims.size > 0; round++) {
      assert.ok(round < 60, `these are never granted: ${[...this.#claims.keys()].join(" ")}`);
      for (let process = 0; process < PROCESSES; process++) {
        const own = this.#ownClaims(process);
        if (own.length === 0) continue;
        await this.#renewThese(process, own);
        const done = this.#ownClaims(process).filter(({ grant, isUncertain }) => grant !== null || isUncertain);
        if (done.length > 0) await this.#sendTurn(process, done, []);
      }
      this.#pass(1_001);
    }
    this.#isEnding = true;
    // all leases, and the time for which their ends are kept, have passed
    this.#pass(2 * MAX_TTL_MS + 1);
    let left: readonly string[] = [];
    for (let round = 0; round < 12; round++) {
      for (const key of KEYS) {
        const claim = this.#newClaim([{ key, permits: ALL_PERMITS, limit: ALL_PERMITS }], "a");
        await this.#sendTurn(claim.process, [], [claim]);
        await this.#sendTurn(claim.process, [claim], []);
      }
      left = await this.#listFields();
      if (left.length === 0) return;
      if (round === 0) this.#pass(2 * MAX_TTL_MS + 1); // the first look may have noted how a holder has ended
    }
    assert.deepEqual(left, [], "what is left at the end");
  }

  /** All but counters and the time to live. */
  async #listFields(): Promise<readonly string[]> {
    const { redis } = this.#fuzzer;
    const found: string[] = [];
    for (const name of await redis.keys(`${PREFIX}:*`)) {
      if (name.endsWith("}:b")) continue;
      if (!name.endsWith(":h")) found.push(name);
      else if ((await redis.type(name)) === "hash")
        found.push(...(await redis.hkeys(name)).filter((field) => field !== "n" && field !== "e"));
    }
    return found;
  }

  #ownClaims(process: number): KnownClaim[] {
    return [...this.#claims.values()].filter((known) => known.process === process);
  }

  #newClaim(locks?: readonly LockSpec[], suffix?: string): KnownClaim {
    const random = this.#random;
    const { keys, exclusiveChance, brokenChance } = this.#profile;
    const isStrict = this.#profile.isStrict && random.chance(0.9);
    let specs = locks;
    if (isStrict) specs ??= [{ key: keys[0] as string, permits: ALL_PERMITS, limit: ALL_PERMITS }];
    if (specs === undefined && random.chance(brokenChance))
      specs = [{ key: BROKEN_KEY, permits: ALL_PERMITS, limit: ALL_PERMITS }];
    if (specs === undefined) {
      const { severalChance, sharedChance } = this.#profile;
      const chosen = random.chance(severalChance) ? keys.filter(() => random.chance(0.6)) : [];
      specs = (chosen.length > 0 ? chosen : [random.pick(keys)]).map((key) => {
        if (random.chance(exclusiveChance)) return { key, permits: ALL_PERMITS, limit: ALL_PERMITS };
        if (random.chance(sharedChance)) return { key, permits: 1, limit: ALL_PERMITS };
        const limit = 1 + random.int(4);
        return { key, permits: 1 + random.int(limit), limit };
      });
    }
    const isPlain = this.#model !== null;
    // one that ends with "a" looks at random for stale fields, which no model can predict
    const id = `c${++this.#ids}${suffix ?? (isPlain ? "b" : random.pick(["a", "b"]))}`;
    const recall = !isPlain && !isStrict && random.chance(0.5);
    const isExclusive = specs.length === 1 && specs[0]?.permits === ALL_PERMITS;
    const claim: Claim = {
      id: id as Claim["id"],
      locks: specs as unknown as Claim["locks"],
      ttlMs: isStrict ? MAX_TTL_MS : random.pick(isPlain ? PREDICTED_TTLS_MS : [2_000, MAX_TTL_MS, MAX_TTL_MS]),
      tokenCount: random.chance(0.3) ? 1 + random.int(64) : 1,
      floor: random.chance(0.1) ? BigInt(this.#micros + random.int(500_000)) : 0n,
      wait: random.chance(0.85),
      label: random.pick(["", "fuzz", "line\nbreak"]),
      recall,
      successors: !isPlain && ((isStrict && random.chance(0.85)) || (!recall && isExclusive && random.chance(0.7))),
    };
    const process = random.int(PROCESSES);
    return {
      claim,
      process,
      grant: null,
      isDetached: false,
      isRevoked: false,
      isToldOfWaiters: false,
      isUncertain: false,
    };
  }

  async #turn(): Promise<void> {
    const random = this.#random;
    const process = random.int(PROCESSES);
    const count = 1 + random.int(this.#profile.maxItems);
    const own = this.#ownClaims(process);
    const releases: KnownClaim[] = [];
    const claims: KnownClaim[] = [];
    for (let index = 0; index < count; index++) {
      const release = random.chance(0.5) && own.length > 0 ? random.pick(own) : null;
      const isRipe = release !== null && (release.grant !== null || release.isUncertain || random.chance(0.15));
      if (isRipe && !releases.includes(release)) releases.push(release);
      else if (this.#claims.size + claims.length < this.#profile.maxClaims)
        claims.push({ ...this.#newClaim(), process });
    }
    // a process that knows of its grant does not claim again, and would restore it after a loss of data
    const claimable = own.filter(({ grant }) => grant === null || !this.#hasLostData);
    if (random.chance(0.1) && claimable.length > 0) claims.push(random.pick(claimable));
    if (random.chance(0.1) && this.#released.length > 0) claims.push(random.pick(this.#released));
    const distinct = [...new Set(claims)].filter((claim) => !releases.includes(claim));
    if (releases.length + distinct.length > 0) await this.#sendTurn(process, releases, distinct);
  }

  async #sendTurn(process: number, releases: readonly KnownClaim[], claims: readonly KnownClaim[]): Promise<void> {
    const random = this.#random;
    const isFull = !this.#isEnding && random.chance(this.#profile.fullChance);
    const sentReleases = releases.map(({ claim, isUncertain }) => {
      return { claim, hasUnansweredClaim: isUncertain || (!this.#isEnding && random.chance(0.1)) };
    });
    const predicted = this.#predictTurn(process, sentReleases, claims);
    const items = [
      ...sentReleases.map((release) => encodeReleaseItem(release)),
      ...claims.map(({ claim }) => encodeClaimItem(claim)),
    ];
    const ids = [...releases, ...claims].map(({ claim }) => claim.id as string);
    this.#log(
      `p${process}${isFull ? " (memory full)" : ""}: ${items.map((item) => item.replaceAll("\n", "|")).join("  ")}`,
    );
    for (const known of releases) {
      known.grant = null; // its process gives it up when it sends the release
      this.#claims.delete(known.claim.id);
      this.#released = [...this.#released.slice(-4), known];
    }
    if (isFull) await this.#fuzzer.redis.config("SET", "maxmemory", "1");
    const lines = String(await this.#call(TURN, process, items)).split("\n");
    if (isFull) await this.#fuzzer.redis.config("SET", "maxmemory", "0");
    this.#lastTurn = { process, items, ids };
    this.#log(`  -> ${lines.join(" | ")}`);
    const answers = lines.slice(0, items.length);
    if (predicted !== null) assert.deepEqual(answers, predicted.answers, "the answers");
    for (const [index, known] of releases.entries()) {
      const answer = answers[index] as string;
      if (known.claim.locks[0].key !== BROKEN_KEY) assert.match(answer, /^[01]$/, `the release of ${known.claim.id}`);
      // it is repeated, as a client would
      else if (answer.startsWith("e ")) this.#fuzzer.statistics.failedItems++;
    }
    for (const [index, known] of claims.entries()) {
      const answer = answers[releases.length + index] as string;
      if (this.#released.includes(known)) {
        // the tombstone of a release that knew of a late call; else it is made again, and this process does not want it
        if (/^[hrw]/.test(answer)) this.#adopt(known, process);
        continue;
      }
      if (answer.startsWith("e ")) {
        this.#fuzzer.statistics.failedItems++;
        assert.ok(isFull || known.claim.locks[0].key === BROKEN_KEY, answer);
        if (known.claim.locks[0].key !== BROKEN_KEY) this.#adopt(known, process).isUncertain = true;
      } else if (/^[hrw]/.test(answer)) this.#adopt(known, process);
    }
    // the part of a command that was executed before Redis refused a part of it loses its recalls: rechecks repeat them
    if (answers.some((answer) => answer.startsWith("e ")))
      for (const known of this.#claims.values()) known.isToldOfWaiters = true;
    const answered = new Map(
      claims.map(({ claim }, index) => [claim.id as string, answers[releases.length + index] as string]),
    );
    await this.#after(process, answered, lines.slice(items.length), ids, predicted);
  }

  /** A predicted turn has releases, or one claim: the model does not know in which order others are executed. */
  #predictTurn(process: number, releases: readonly Release[], claims: readonly KnownClaim[]): Prediction | null {
    if (this.#model === null) return null;
    const [known] = claims;
    return known === undefined ? this.#model.release(process, releases) : this.#model.claim(process, known.claim);
  }

  #adopt(known: KnownClaim, process: number): KnownClaim {
    known.process = process;
    known.isUncertain = false;
    this.#released = this.#released.filter((other) => other !== known);
    this.#claims.set(known.claim.id, known);
    return known;
  }

  /** The answer was lost, and the client library sends the command again. */
  async #repeatTurn(): Promise<void> {
    if (this.#lastTurn === null) return;
    const { process, items, ids } = this.#lastTurn;
    this.#fuzzer.statistics.repeatedTurns++;
    // what was released since is released again by a process that learns of it
    const lines = String(await this.#call(TURN, process, items)).split("\n");
    this.#log(`p${process} repeats its last turn -> ${lines.join(" | ")}`);
    const answered = new Map<string, string>();
    for (const [index, id] of ids.entries()) {
      const answer = lines[index] as string;
      const known = this.#claims.get(id) ?? this.#released.find(({ claim }) => claim.id === id);
      if (/^M?[RU]/.test(items[index] as string)) continue;
      if (known !== undefined && /^[hrw]/.test(answer)) this.#adopt(known, process);
      if (known !== undefined) answered.set(id, answer);
      else if (/^[hrw]/.test(answer))
        await this.#call(TURN, process, [(items[index] as string).replace(/^(M?)C/, "$1R")]);
    }
    await this.#after(process, answered, lines.slice(items.length), ids);
  }

  async #renew(): Promise<void> {
    const process = this.#random.int(PROCESSES);
    const own = this.#ownClaims(process).filter(() => this.#random.chance(0.5));
    if (own.length > 0) await this.#renewThese(process, own);
  }

  async #renewThese(process: number, own: readonly KnownClaim[]): Promise<void> {
    const isFull = !this.#isEnding && this.#random.chance(this.#profile.fullChance);
    const known = own.filter(({ claim, isUncertain }) => claim.locks[0].key !== BROKEN_KEY && !isUncertain);
    const items = known.map(({ claim, grant }) => {
      if (this.#model !== null || grant === null || !this.#random.chance(0.3)) return encodeName(claim);
      return `${encodeName(claim)}\n${grant.tokens + this.#random.int(40)}`;
    });
    const claims = known.map(({ claim }) => claim);
    const predicted = this.#model?.renew(process, claims) ?? null;
    if (isFull) await this.#fuzzer.redis.config("SET", "maxmemory", "1");
    const answers = (await this.#call(RENEW, process, items)) as string[];
    if (isFull) await this.#fuzzer.redis.config("SET", "maxmemory", "0");
    this.#log(
      `p${process} renews ${claims.map(({ id }) => id).join(" ")}${isFull ? " (memory full)" : ""} -> ${answers.join(" | ")}`,
    );
    if (predicted !== null) assert.deepEqual(answers, predicted.answers, "the answers");
    const answered = new Map(known.map(({ claim }, index) => [claim.id as string, answers[index] as string]));
    const lost = known.filter(
      ({ claim, grant }) =>
        (grant?.until ?? 0) > this.#elapsedMs && /^b |^w .* .* .* /.test(answered.get(claim.id) ?? ""),
    );
    if (lost.length > 0) {
      const restores = lost.map(({ claim, grant }) => {
        const { token, tokens } = grant as NonNullable<KnownClaim["grant"]>;
        return `${token} ${encodeClaim({ ...claim, tokenCount: tokens, floor: BigInt(token) })}`;
      });
      const replies = (await this.#call(RESTORE, process, restores)) as string[];
      this.#log(`p${process} restores ${lost.map(({ claim }) => claim.id).join(" ")} -> ${replies.join(" | ")}`);
      for (const [index, { claim }] of lost.entries()) answered.set(claim.id, replies[index] as string);
      this.#fuzzer.statistics.restored += replies.filter((answer) => /^[hr]/.test(answer)).length;
    }
    const restored = new Set(lost.map(({ claim }) => claim.id as string));
    await this.#after(process, answered, [], [], predicted, restored);
  }

  async #detach(): Promise<void> {
    const held = [...this.#claims.values()].filter(({ grant }) => (grant?.until ?? 0) > this.#elapsedMs);
    if (held.length === 0) return;
    const known = this.#random.pick(held);
    if (known.isDetached) {
      known.process = this.#random.int(PROCESSES);
      this.#fuzzer.statistics.attached++;
      this.#log(`p${known.process} attaches ${known.claim.id}`);
      return this.#renewThese(known.process, [known]);
    }
    const remainingMs = this.#random.pick([known.claim.ttlMs as number, 500]);
    const flags = String(await this.#call(DETACH, known.process, [`${remainingMs} ${encodeName(known.claim)}`]));
    this.#log(`detaches ${known.claim.id} for ${remainingMs} -> ${flags}`);
    if (flags.startsWith("1") && known.grant !== null) {
      known.isDetached = true;
      known.grant = { ...known.grant, until: this.#elapsedMs + remainingMs };
    }
    await this.#after(known.process, new Map(), flags.split("\n").slice(1), []);
  }

  async #revoke(): Promise<void> {
    const held = [...this.#claims.values()].filter(({ grant }) => grant !== null);
    if (held.length === 0) return;
    const known = this.#random.pick(held);
    const { grant, claim } = known;
    const { key } = this.#random.pick(claim.locks);
    const isNow = this.#random.chance(0.5);
    const token = (grant?.token ?? 0) + this.#random.int(grant?.tokens ?? 1);
    const predicted = this.#model?.revoke(key, token, isNow) ?? null;
    const flag = await this.#call(REVOKE, 0, [`${isNow ? "1" : "0"}${toBucket(key)}${key}\n${token}`]);
    if (predicted !== null) assert.deepEqual([flag], predicted.answers, "the answer");
    this.#log(`revokes ${claim.id} by ${token} of ${key}${isNow ? " at once" : ""} -> ${flag}`);
    if (flag === "1") {
      known.isRevoked = true;
      if (isNow) known.grant = null;
    }
    await this.#after(0, new Map(), [], [], predicted);
    if (flag === "1" && isNow) this.#claims.delete(claim.id);
  }

  async #toggle(): Promise<void> {
    const process = this.#random.int(PROCESSES);
    await this.#setListening(process, this.#random.chance(this.#profile.listenChance));
    this.#log(`p${process} ${this.#listening.has(process) ? "listens" : "is cut off"}`);
  }

  async #setListening(process: number, isOn: boolean): Promise<void> {
    const { subscriber } = this.#fuzzer;
    const channel = this.#channelOf(process);
    if (this.#profile.isSharded) await (isOn ? subscriber.ssubscribe(channel) : subscriber.sunsubscribe(channel));
    else await (isOn ? subscriber.subscribe(channel) : subscriber.unsubscribe(channel));
    if (isOn) this.#model?.listening.add(process);
    else this.#model?.listening.delete(process);
    if (isOn) this.#listening.add(process);
    else {
      this.#listening.delete(process);
      for (const known of this.#ownClaims(process)) known.isToldOfWaiters = true; // it may miss it
    }
  }

  #pass(ms: number): void {
    this.#hasSteppedBack ||= ms < 0;
    this.#elapsedMs += Math.max(ms, 0) + 1;
    this.#micros += ms * 1_000 + (ms > 0 ? this.#random.int(1_000) : 0);
    this.#setClock();
    this.#log(`${ms} ms pass`);
  }

  #setClock(): void {
    this.#fuzzer.server.freeze(this.#micros);
    if (this.#model !== null) this.#model.micros = this.#micros;
  }

  /** A process dies, or forgets some of its claims: nobody mentions them again. */
  #die(): void {
    const process = this.#random.int(PROCESSES);
    for (const { claim } of this.#ownClaims(process))
      if (this.#model === null || this.#random.chance(0.7)) this.#claims.delete(claim.id);
    this.#log(`p${process} dies`);
  }

  async #loseData(): Promise<void> {
    this.#hasLostData = true;
    await this.#fuzzer.redis.flushall();
    await this.#breakBucket();
    this.#log("FLUSHALL");
    for (const known of [...this.#claims.values()]) {
      known.isToldOfWaiters = true;
      if (known.grant === null || known.isRevoked) this.#claims.delete(known.claim.id);
    }
    this.#released = [];
    this.#lastTurn = null;
    this.#view = EMPTY_VIEW;
    for (let process = 0; process < PROCESSES; process++)
      if (this.#random.chance(0.8)) await this.#renewThese(process, this.#ownClaims(process));
  }

  /** Redis refuses every command on the hash of one bucket. */
  async #breakBucket(): Promise<void> {
    if (this.#profile.brokenChance === 0) return;
    await this.#fuzzer.redis.set(toRoutingKey(ROOT, toBucket(BROKEN_KEY)), "not ours", "PX", 60_000_000);
  }

  #call(script: Script, process: number, args: readonly string[]): Promise<unknown> {
    this.#fuzzer.statistics.commands++;
    const guard = this.#profile.isGuarded ? `${MAX_TTL_MS} ${ROOT}{00}:b` : "";
    const head = ["1", toRoutingKey(ROOT, "00"), ROOT, this.#channelOf(process), guard];
    return this.#fuzzer.redis.evalsha(script.sha, ...(head as [string]), ...args).catch((error: Error) => {
      if (!error.message.startsWith("NOSCRIPT")) throw error;
      return this.#fuzzer.redis.call("EVAL", script.text, ...head, ...args);
    });
  }

  async #after(
    process: number,
    answered: ReadonlyMap<string, string>,
    ownPushes: readonly string[],
    mentioned: readonly string[],
    predicted: Prediction | null = null,
    restored: ReadonlySet<string> = new Set(),
  ): Promise<void> {
    const { statistics } = this.#fuzzer;
    // after what was published, on the same connection
    if (this.#listening.size > 0) await this.#fuzzer.subscriber.ping();
    const messages = this.#fuzzer.received.splice(0);
    if (predicted !== null) {
      const published = predicted.pushes.map(({ inbox, text }) => `${this.#channelOf(inbox)} ${text}`);
      assert.deepEqual(ownPushes, predicted.ownPushes, "the pushes in the answer");
      assert.deepEqual(messages, published, "what is published");
    }
    const pushes = [...ownPushes, ...messages.map((message) => message.slice(message.indexOf(" ") + 1))];
    if (pushes.length > 0) this.#log(`  pushes ${pushes.join(" | ")}`);
    for (const [id, answer] of answered) {
      const known = this.#claims.get(id);
      if (known !== undefined) this.#learn(known, answer);
    }
    const pushed = new Set<string>();
    const named: (readonly [id: string, token: number, tokens: number, successors: readonly string[]])[] = [];
    for (const push of pushes) {
      const [id = "", token, tokens, ttl, flag] = push.split(" ");
      if (flag?.startsWith("h,")) named.push([id, Number(token), Number(tokens), flag.slice(2).split(",")]);
      const known = this.#claims.get(id);
      if (token === "recalled") statistics.recalls++;
      if (known !== undefined && (token === "recalled" || flag === "r")) known.isToldOfWaiters = true;
      if (token === "recalled" || tokens === undefined) continue;
      pushed.add(id);
      statistics.pushedGrants++;
      if (known !== undefined)
        known.grant = { token: Number(token), tokens: Number(tokens), until: this.#elapsedMs + Number(ttl) };
    }
    const before = this.#view;
    this.#view = await this.#look();
    this.#checkBeliefs();
    this.#checkTokens();
    this.#checkOrder(before, mentioned, restored);
    this.#checkGrants(before, process, answered, pushed);
    this.#checkRecalls();
    for (const [id, token, tokens, successors] of named)
      this.#checkSuccessors(id, token, tokens, successors, mentioned);
  }

  #checkSuccessors(
    id: string,
    token: number,
    tokens: number,
    successors: readonly string[],
    mentioned: readonly string[],
  ): void {
    const holder = this.#claims.get(id);
    assert.ok(tokens > successors.length, `${id} has ${tokens} tokens for ${successors.length} successors`);
    if (holder === undefined) return; // released meanwhile
    this.#fuzzer.statistics.successors += successors.length;
    const [{ key }] = holder.claim.locks;
    const waiting = this.#view.waiting.get(key) ?? [];
    // those that this command has released are gone
    const still = successors.filter((other) => waiting.includes(other) || !mentioned.includes(other));
    assert.deepEqual(waiting.slice(0, still.length), still, `the successors of ${id}`);
    for (const [index, other] of successors.entries()) {
      const known = this.#claims.get(other);
      if (known === undefined) continue;
      const { claim, process } = known;
      assert.equal(process, holder.process, `the process of ${other}, a successor of ${id}`);
      assert.equal(claim.successors, true, `${other} asked to be a successor`);
      assert.equal(claim.ttlMs, holder.claim.ttlMs, `the ttl of ${other}`);
      assert.equal(claim.locks[0].permits, ALL_PERMITS, `the permits of ${other}`);
      assert.ok(claim.floor <= token + index + 1, `the floor of ${other}`);
    }
  }

  #learn(known: KnownClaim, answer: string): void {
    const [state, first, second, third] = answer.split(" ");
    if (state === "h" || state === "r") {
      const count = Number(second);
      if (known.grant !== null && count > known.grant.tokens) this.#fuzzer.statistics.extended++;
      known.grant = { token: Number(first), tokens: count, until: this.#elapsedMs + Number(third) };
      if (state === "r") known.isToldOfWaiters = true;
    } else if (state !== "e") {
      if (state === "w")
        assert.ok((known.grant?.until ?? 0) <= this.#elapsedMs, `${known.claim.id} holds, and is answered "${answer}"`);
      known.grant = null;
      if (state !== "w") this.#claims.delete(known.claim.id);
    }
  }

  async #look(): Promise<View> {
    const snapshot = await takeSnapshot(this.#fuzzer.redis, ["0"], PREFIX);
    // what had ended may live again when the clock steps back: a claim that has lost its place, which its next renewal ends,
    // the tombstone of an id that was claimed again, whose record counts, and the place of a waiting claim whose record was weeded
    const isExcused = (violation: string): boolean =>
      this.#hasSteppedBack &&
      /without its places|which has ended|unlisted|^the place of .* \(waiting\) .* belongs to no claim$/.test(
        violation,
      );
    const violations = findViolations(toStoreView(snapshot)).filter((violation) => !isExcused(violation));
    assert.deepEqual(violations, [], "the state of Redis");
    if (this.#model !== null) {
      assert.equal(snapshot.now, this.#model.now, "the clock");
      const buckets = new Set(this.#model.counters.keys());
      assert.deepEqual(describeSnapshot(snapshot, buckets), this.#model.describe(), "the state of the queues");
    }
    return readView(snapshot);
  }

  /** No two processes may believe that they hold what excludes each other. */
  #checkBeliefs(): void {
    const entries = [...this.#claims.values()].flatMap(({ claim, grant }) =>
      grant === null || grant.until <= this.#elapsedMs
        ? []
        : claim.locks.map((lock) => ({ claim: claim.id as string, ...lock, state: "held" as const })),
    );
    assert.deepEqual(findViolations({ entries, withoutExpiry: [], orphans: [] }), [], "what processes believe");
  }

  #checkTokens(): void {
    const fresh: {
      readonly id: string;
      readonly keys: readonly string[];
      readonly token: number;
      readonly last: number;
    }[] = [];
    for (const [id, { token, tokens }] of this.#view.records) {
      if (token === 0) continue;
      const last = token + tokens - 1;
      const counted = this.#counted.get(id);
      const keys = (this.#claims.get(id) ?? this.#released.find(({ claim }) => claim.id === id))?.claim.locks.map(
        ({ key }) => key,
      );
      if (keys === undefined) continue; // of a process that has died
      if (counted === undefined || token > counted) fresh.push({ id, keys, token, last });
      else if (last > counted)
        for (const key of keys) this.#highest.set(key, Math.max(this.#highest.get(key) ?? 0, last));
      this.#counted.set(id, Math.max(counted ?? 0, last));
    }
    fresh.sort((left, right) => left.token - right.token);
    for (const { id, keys, token, last } of fresh) {
      this.#fuzzer.statistics.grants++;
      for (const key of keys) {
        const highest = this.#highest.get(key) ?? 0;
        assert.ok(token > highest, `token ${token} of ${id} on ${key} is not above ${highest}`);
        this.#highest.set(key, last);
      }
    }
  }

  #checkOrder(before: View, mentioned: readonly string[], restored: ReadonlySet<string>): void {
    for (const [key, queued] of before.waiting) {
      const still = (this.#view.waiting.get(key) ?? []).filter((id) => queued.includes(id) && !mentioned.includes(id));
      assert.deepEqual(
        still,
        queued.filter((id) => still.includes(id)),
        `the order of the queue of ${key}`,
      );
      const earlier = before.admitted.get(key) ?? [];
      for (const id of this.#view.admitted.get(key) ?? []) {
        if (earlier.includes(id) || restored.has(id)) continue;
        // one that had ended lives again when the clock steps back
        const record = before.records.get(id);
        if (record !== undefined && (record.token > 0 || record.expiresAt <= before.now)) continue;
        const position = queued.indexOf(id);
        const ahead = position === -1 ? queued : queued.slice(0, position);
        const overtaken = ahead.filter((other) => {
          const known = this.#claims.get(other);
          return (
            still.includes(other) && known !== undefined && this.#listening.has(known.process) && this.#isInboxOf(known)
          );
        });
        if (overtaken.length === 0) continue;
        // skipped: its process was not reachable where it was last heard of
        const reachable = overtaken.filter(
          (other) => this.#view.records.get(other)?.unreachableSince !== this.#view.now,
        );
        assert.deepEqual(reachable, [], `${id} overtakes on ${key}`);
      }
    }
  }

  /** A claim that was attached has the inbox of its former process until it is renewed there. */
  #isInboxOf({ isDetached }: KnownClaim): boolean {
    return !isDetached;
  }

  #checkGrants(
    before: View,
    process: number,
    answered: ReadonlyMap<string, string>,
    pushed: ReadonlySet<string>,
  ): void {
    for (const [id, record] of this.#view.records) {
      const answer = answered.get(id);
      const isHeld = record.token > 0 && record.expiresAt > this.#view.now;
      if (answer !== undefined && /^[hr] /.test(answer))
        assert.equal(record.token, Number(answer.split(" ")[1]), `the answer for ${id}: ${answer}`);
      if (answer?.startsWith("w ") && isHeld) assert.ok(pushed.has(id), `${id} is answered "${answer}", and holds`);
      const wasHeld = (before.records.get(id)?.token ?? 0) > 0;
      if (!isHeld || wasHeld || answer !== undefined || pushed.has(id) || before.records.get(id) === undefined)
        continue;
      const isShort = record.expiresAt <= this.#view.now + 1_000;
      assert.ok(isShort, `${id} is granted by p${process}, and its process is not told`);
    }
  }

  #checkRecalls(): void {
    for (const known of this.#claims.values()) {
      const { claim, grant, isDetached, isRevoked } = known;
      if (claim.recall !== true || grant === null || grant.until <= this.#elapsedMs || isDetached || isRevoked)
        continue;
      if (!this.#listening.has(known.process)) known.isToldOfWaiters = true; // it misses it
      if (known.isToldOfWaiters || (this.#view.records.get(claim.id)?.token ?? 0) === 0) continue;
      const behind = claim.locks.flatMap(({ key }) => this.#view.waiting.get(key) ?? []);
      assert.deepEqual(behind, [], `${claim.id} is not recalled`);
    }
  }

  #channelOf(process: number): string {
    return `${ROOT}${this.#profile.isSharded ? "{00}:" : ""}inbox:p${process}`;
  }

  #log(text: string): void {
    this.commandLog.push(text);
  }
}

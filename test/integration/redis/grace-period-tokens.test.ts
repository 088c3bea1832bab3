/**
 * Tokens across losses of data with guardDataLoss, on a real Redis whose clock is set by hand: what lua/lib/grace.lua
 * guarantees, tested at random.
 */

import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { toBucket } from "../../../src/drivers/redis/key-names.ts";
import { makeClaim } from "../../support/claims.ts";
import { toReleases } from "../../support/releases.ts";
import type { SeededRandom } from "../../support/seeded-random.ts";
import { seededRandom } from "../../support/seeded-random.ts";
import type { RedisFixture } from "../../support/stores/redis-fixture.ts";
import { createRedisFixture, readRunRecord } from "../../support/stores/redis-fixture.ts";
import type { ShiftedClockRedis } from "../../support/stores/redis-shifted-clock.ts";
import { shiftedClockUnavailableReason, startShiftedClockRedis } from "../../support/stores/redis-shifted-clock.ts";

const START_MICROS = 1_800_000_000_000_000;
const HOUR_MICROS = 3_600_000_000;
const KEY = "key";
const OTHER_REIGN = "a".repeat(40);
const STEPS = process.env.HOLDFAST_LONG === "1" ? 20_000 : 1_500;

/** What a replica, or a file, has of the store. */
interface Data {
  readonly record: string | null;
  readonly counter: string | null;
  /** When it was written, in true time. */
  readonly at: number;
  /** The number of losses before it. */
  readonly losses: number;
}

interface Rules {
  /** How far the clocks of servers are off the true time, in microseconds. */
  readonly clock: (random: SeededRandom) => number;
  /** What is left after a loss; null: nothing. `soonest`: as written by the run of the last grant, at most MIN_LEAD before it. */
  readonly pickSurvivor: (random: SeededRandom, all: readonly Data[], soonest: readonly Data[]) => Data | null;
}

const reason = shiftedClockUnavailableReason();

describe.skipIf(reason !== null)(`tokens across losses of data (${reason ?? "run"})`, () => {
  let server: ShiftedClockRedis;
  beforeAll(async () => {
    server = await startShiftedClockRedis();
  }, 180_000);
  afterAll(() => server?.stop());

  /** One store and its successors, under one prefix. */
  class History {
    readonly #scene: RedisFixture;
    readonly #maxTtlMs: number;
    readonly #aheadMicros: number;
    readonly #driver: Promise<Awaited<ReturnType<RedisFixture["open"]>>>;
    /** True time in microseconds, and how far the clock of the present server is off. */
    #time = START_MICROS;
    #offset = 0;
    #foremost = 0;
    #last = 0n;
    #lastAt = 0;
    #lastLosses = 0;
    #losses = 0;
    #spent = 0;
    #written: Data[] = [];
    grants = 0;

    constructor(maxTtlMs: number) {
      this.#maxTtlMs = maxTtlMs;
      this.#aheadMicros = Math.max(4_000, maxTtlMs) * 1_000;
      this.#scene = createRedisFixture(server.port);
      this.#tick(0);
      const options = { prefix: this.#scene.prefix, guardDataLoss: { maxTtlMs }, warn: () => undefined };
      this.#driver = this.#scene.open(redis(() => new Redis(server.port, "127.0.0.1"), options));
    }

    close(): Promise<void> {
      return this.#scene.close();
    }

    async step(random: SeededRandom, rules: Rules): Promise<void> {
      const maxMicros = random.pick([10, 10_000, 1_000_000, this.#aheadMicros / 2, this.#aheadMicros]);
      this.#tick(random.int(maxMicros));
      if (random.chance(0.02)) this.stepBack(random, rules);
      if (random.chance(0.15)) await this.lose(random, rules);
      else await this.call(random.pick([1, 1, 64]));
    }

    /** The store loses data, and starts another run. */
    async lose(random: SeededRandom, rules: Rules): Promise<void> {
      const earliest = this.#written.filter(
        ({ at, losses }) => at >= this.#lastAt - this.#aheadMicros / 2 && losses >= this.#lastLosses,
      );
      const survivor = rules.pickSurvivor(random, this.#written, earliest);
      await this.#scene.admin.flushall();
      if (survivor?.record) {
        await this.#scene.admin.set(this.#names.record, survivor.record.replace(/^\w+/, OTHER_REIGN));
        if (survivor.counter !== null) await this.#restoreCounter(survivor.counter);
      }
      this.#written = survivor === null ? [] : this.#written.filter(({ at }) => at <= survivor.at);
      this.#losses++;
      this.#offset = rules.clock(random);
      this.#tick(0);
    }

    /** The clock of the same server steps back. */
    stepBack(random: SeededRandom, rules: Rules): void {
      this.#offset = Math.min(this.#offset, rules.clock(random));
      this.#tick(0);
    }

    /** Requests the lock. A granted token is above all earlier ones. */
    async call(tokenCount: number): Promise<void> {
      const { driver, claim } = await this.#driver;
      const newClaim = makeClaim(KEY, { ttlMs: this.#maxTtlMs, tokenCount, wait: false });
      const answer = await claim(newClaim);
      if (answer.state === "held") {
        expect(answer.token).toBeGreaterThan(this.#last);
        this.#last = answer.token + BigInt(answer.tokenCount) - 1n;
        this.#lastAt = this.#time;
        this.#lastLosses = this.#losses;
        this.#spent += answer.tokenCount;
        this.grants++;
        await driver.release(toReleases(newClaim));
      }
      const { admin } = this.#scene;
      const record = await admin.get(this.#names.record);
      const counter = await admin.hget(this.#names.hash, "n");
      this.#written.push({ record, counter, at: this.#time, losses: this.#losses });
      const { tokenCeiling, graceEndsAt } = await readRunRecord(admin, this.#scene.prefix);
      const foremost = this.#time + this.#foremost + this.#spent;
      expect(Number(tokenCeiling), "how far the ceiling is ahead").toBeLessThanOrEqual(foremost + this.#aheadMicros);
      expect(Number(this.#last), "the last token").toBeLessThanOrEqual(foremost);
      const remainingMs = graceEndsAt - (this.#time + this.#offset) / 1_000;
      expect(remainingMs, "the grace period").toBeLessThanOrEqual(this.#aheadMicros / 1_000 + 1);
    }

    async #restoreCounter(counter: string): Promise<void> {
      await this.#scene.admin.hset(this.#names.hash, "n", counter);
      await this.#scene.admin.expire(this.#names.hash, 172_800);
    }

    get #names(): { readonly record: string; readonly hash: string } {
      const root = `${this.#scene.prefix}:3:`;
      return { record: `${root}{00}:b`, hash: `${root}{${toBucket(KEY)}}:h` };
    }

    #tick(byMicros: number): void {
      this.#time += byMicros;
      this.#foremost = Math.max(this.#foremost, this.#offset);
      server.freeze(this.#time + this.#offset);
    }
  }

  const rules: readonly (readonly [what: string, rules: (longestMicros: number) => Rules])[] = [
    [
      "rise whatever is lost, if no clock is behind another by more than the longest ttl",
      (longestMicros) => ({
        clock: (random) => -random.pick([0, longestMicros, random.int(longestMicros)]),
        pickSurvivor: (random, written, earliest) =>
          random.pick([
            null,
            written.at(-1) ?? null,
            random.pick([...written, null]),
            random.pick([...earliest, null]),
          ]),
      }),
    ],
    [
      "rise whatever the clocks say, if only the last writes are lost",
      () => ({
        clock: (random) => random.pick([0, 5_000_000, HOUR_MICROS, random.int(HOUR_MICROS)]) * random.pick([-1, 1]),
        pickSurvivor: (random, written, earliest) =>
          random.pick([...earliest.slice(0, 1), ...earliest, ...written.slice(-1)]),
      }),
    ],
  ];
  for (const [what, rulesOf] of rules) {
    test.each([
      [500, 1],
      [500, 2],
      [3_000, 3],
      [6_000, 4],
      [60_000, 5],
    ])(`${what}; longest ttl %i ms, seed %i`, async (maxTtlMs, seed) => {
      const random = seededRandom(seed);
      const history = new History(maxTtlMs);
      try {
        await history.call(1);
        for (let step = 0; step < STEPS; step++) await history.step(random, rulesOf(maxTtlMs * 1_000));
        expect(history.grants).toBeGreaterThan(STEPS / 10);
      } finally {
        await history.close();
      }
    });
  }
});

/**
 * The contended path of turn.lua decides what the general path would decide: random turns go to two servers, one of which has
 * the script without the contended path. After each turn both must have told the same and must have the same state. Tokens and
 * arrivals are compared by their order only, since the general path numbers all arrivals of a turn first. Only the contended path names
 * successors; queue-fuzz.ts checks them. Both clocks stand still except for the steps of a run.
 */

import { createHash } from "node:crypto";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { toBucket } from "../../../src/drivers/redis/key-names.ts";
import DETACH from "../../../src/drivers/redis/lua/detach.lua";
import RENEW from "../../../src/drivers/redis/lua/renew.lua";
import REVOKE from "../../../src/drivers/redis/lua/revoke.lua";
import TURN from "../../../src/drivers/redis/lua/turn.lua";
import { encodeClaimItem, encodeName, encodeReleaseItem } from "../../../src/drivers/redis/script-codec.ts";
import type { Claim } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";
import type { SeededRandom } from "../../support/seeded-random.ts";
import { seededRandom } from "../../support/seeded-random.ts";
import type { ShiftedClockRedis } from "../../support/stores/redis-shifted-clock.ts";
import { shiftedClockUnavailableReason, startShiftedClockRedis } from "../../support/stores/redis-shifted-clock.ts";

const FIRST_SEED = Number(process.env.HOLDFAST_SEED ?? 1);
const SEEDS = Number(process.env.HOLDFAST_SEEDS ?? 25);
const STEPS_PER_SEED = 100;
const ROOT = "two:3:";
const CALL = "if deferred and not inGracePeriod then executeContended() end\n";
const GENERAL = { text: TURN.text.replace(CALL, ""), sha: "" };
GENERAL.sha = createHash("sha1").update(GENERAL.text).digest("hex");
const names = Array.from({ length: 2_000 }, (_, index) => `k${index}`);
/** Two of one bucket, and odd ones. */
const KEYS = ["k0", names.find((name) => name !== "k0" && toBucket(name) === toBucket("k0")) as string, "[%w+]: é{1}"];
const LABELS = ["", "label", "of\nlines\n\n\n", "\n\n\n"];

class Side {
  readonly redis: Redis;
  readonly subscriber: Redis;
  readonly received: string[] = [];
  readonly server: ShiftedClockRedis;

  constructor(server: ShiftedClockRedis) {
    this.server = server;
    this.redis = new Redis(server.port, "127.0.0.1");
    this.subscriber = new Redis(server.port, "127.0.0.1");
    const onMessage = (channel: string, message: string): void => {
      if (message !== "") this.received.push(`${channel} ${message}`);
    };
    this.subscriber.on("message", onMessage);
    this.subscriber.on("smessage", onMessage);
  }

  async call(script: { readonly sha: string; readonly text: string }, args: readonly string[]): Promise<unknown> {
    const words = ["1", `${ROOT}{00}:h`, ROOT, ...args];
    return this.redis.call("EVALSHA", script.sha, ...words).catch((error: Error) => {
      if (!error.message.startsWith("NOSCRIPT")) throw error;
      return this.redis.call("EVAL", script.text, ...words);
    });
  }

  /** What processes were told since the last time, sorted. */
  async takeReceived(): Promise<readonly string[]> {
    await this.subscriber.ping();
    return this.received.splice(0).sort();
  }

  /** Everything but the counters and the run record. */
  async dump(): Promise<unknown> {
    const found: unknown[] = [];
    for (const name of (await this.redis.keys("*")).sort()) {
      if (name.endsWith("}:b")) continue;
      // a set that is emptied within the turn and filled again has the whole time
      const left = Math.ceil((await this.redis.pttl(name)) / 100_000_000);
      if (!name.endsWith(":h")) {
        const isWaiting = name.includes("}:w:"); // by arrival; else by the end of the lease
        const words = isWaiting ? [] : ["WITHSCORES"];
        found.push([name, left, await this.redis.call("ZRANGE", name, "0", "-1", ...words)]);
        continue;
      }
      const fields = Object.entries((await this.redis.hgetallBuffer(name)) as Record<string, Buffer>).sort(
        ([one], [other]) => (one < other ? -1 : 1),
      );
      for (const [field, value] of fields) {
        if (field === "n") continue;
        const isRecord = value[0] === 67 || value[0] === 84;
        const isHeld = isRecord && value.readDoubleBE(11) > 0;
        if (isRecord) value.fill(isHeld ? 1 : 0, 11, 19);
        const text = value.toString("latin1").replace(/(?<=\n)(?:\d+,)+(?=\n[^\n]*$)/, "arrivals");
        // the range of a claim that asked for successors has a token for each
        found.push([name, left, field, text.replace(/^(.{36}\w+ \d+ \d+ \d+) \d+ (\d+ \d2\n)/s, "$1 tokens $2")]);
      }
    }
    return found;
  }
}

const withoutTokens = (line: string): string =>
  line
    .replace(/\d{16}/g, (digits) => (/^1(8|799)/.test(digits) ? "token" : digits))
    .replace(/(?<=\btoken )\d+/, "tokens")
    .replace(/ h,\S+/, " h");

const isPush = (line: string): boolean => /^\d+c\d{4}\b/.test(line);

/** The pushes at the end of a reply, sorted: the order of those about different keys is left open. */
const sortPushes = (lines: readonly string[]): readonly string[] => [
  ...lines.filter((line) => !isPush(line)),
  ...lines.filter(isPush).sort(),
];

describe.skipIf(shiftedClockUnavailableReason() !== null)("the contended path and the general path", () => {
  let sides: readonly [Side, Side];
  beforeAll(async () => {
    sides = [new Side(await startShiftedClockRedis()), new Side(await startShiftedClockRedis())];
  }, 180_000);
  afterAll(async () => {
    for (const { redis, subscriber, server } of sides ?? []) {
      redis.disconnect();
      subscriber.disconnect();
      server.shift(0);
      await server.stop();
    }
  });
  const both = <T>(call: (side: Side, index: number) => T | Promise<T>): Promise<T[]> => Promise.all(sides.map(call));

  async function run(seed: number, random: SeededRandom, log: string[]): Promise<void> {
    const isSharded = random.chance(0.3);
    const guard = random.chance(0.3) ? `8000 ${ROOT}{00}:b` : "";
    const exclusiveChance = random.pick([0.5, 0.8, 1]);
    const fullChance = random.pick([0, 0, 0.1]);
    const keys = KEYS.slice(0, 1 + random.int(KEYS.length));
    let micros = 1_800_000_000_000_000;
    let claims: { readonly claim: Claim; process: number }[] = [];
    const old: typeof claims = [];
    const inbox = (process: number): string => `${ROOT}${isSharded ? "{00}:" : ""}inbox:${process}`;
    const pass = (ms: number): void => {
      micros += ms * 1_000 + random.int(1_000);
      for (const { server } of sides) server.freeze(micros);
      log.push(`${ms} ms pass`);
    };
    const listen = (process: number, isOn: boolean): Promise<unknown> => {
      log.push(`${process} listens: ${isOn}`);
      const command = `${isSharded ? "s" : ""}${isOn ? "" : "un"}subscribe` as "subscribe";
      return both(({ subscriber }) => subscriber[command](inbox(process)));
    };
    const newClaim = (): Claim => {
      const isMany = random.chance(0.1);
      const locks = (isMany ? keys : [random.pick(keys)]).map((key) => {
        if (random.chance(exclusiveChance)) return { key, permits: ALL_PERMITS, limit: ALL_PERMITS };
        return random.chance(0.5) ? { key, permits: 1, limit: ALL_PERMITS } : { key, permits: 1, limit: 2 };
      });
      return {
        id: `${seed}c${String(++ids).padStart(4, "0")}` as Claim["id"],
        locks: locks as unknown as Claim["locks"],
        ttlMs: random.pick([2_000, 8_000, 8_000, 20_000_000]),
        tokenCount: random.pick([1, 1, 40]),
        floor: random.chance(0.1) ? BigInt(micros + random.pick([100, 10_000_000, 200_000_000_000])) : 0n,
        wait: random.chance(0.9),
        label: random.pick(LABELS),
        recall: random.chance(0.4),
        successors: locks.length === 1 && locks[0]?.permits === ALL_PERMITS && random.chance(0.7),
      };
    };
    let ids = 0;
    const compare = async (call: (side: Side, index: number) => Promise<unknown>, what: string): Promise<string[]> => {
      log.push(what.replaceAll("\n", "|"));
      const replies = (await both(call)).map((reply) => String(reply).split("\n"));
      log.push(`-> ${replies[0]?.join(" | ")}`, `-> ${replies[1]?.join(" | ")}`);
      const seen = await both(async (side, index) => ({
        reply: sortPushes((replies[index] as string[]).map(withoutTokens)),
        received: (await side.takeReceived()).map(withoutTokens),
        state: await side.dump(),
      }));
      expect(seen[0]).toEqual(seen[1]);
      return replies[0] as string[];
    };

    await both(({ redis }) => redis.flushall());
    await both(({ subscriber }) => subscriber.unsubscribe().then(() => subscriber.sunsubscribe()));
    pass(1);
    for (let process = 0; process < 3; process++) await listen(process, true);
    for (let step = 0; step < STEPS_PER_SEED; step++) {
      const draw = random.next();
      const process = random.int(3);
      const own = claims.filter((known) => known.process === process);
      if (draw < 0.65) {
        const released = own.filter(() => random.chance(0.4));
        claims = claims.filter((known) => !released.includes(known));
        old.push(...released);
        const items = released.map(({ claim }) => encodeReleaseItem({ claim, hasUnansweredClaim: random.chance(0.1) }));
        const made = Array.from({ length: random.int(4) }, () => ({ claim: newClaim(), process }));
        const again = random.chance(0.1) ? own.filter((known) => !released.includes(known)).slice(0, 1) : [];
        if (random.chance(0.05) && old.length > 0) again.push(random.pick(old.slice(-5)));
        for (const known of again) known.process = process;
        const repeated = again.filter((known) => !released.includes(known));
        items.push(...[...made, ...repeated].map(({ claim }) => encodeClaimItem(claim)));
        if (items.length === 0) continue;
        const isFull = random.chance(fullChance);
        if (isFull) await both(({ redis }) => redis.config("SET", "maxmemory", "1"));
        const args = [inbox(process), guard, ...items];
        const text = `${process}${isFull ? " (memory full)" : ""}: ${items.join("  ")}`;
        const reply = await compare((side, index) => side.call(index === 0 ? TURN : GENERAL, args), text);
        if (isFull) await both(({ redis }) => redis.config("SET", "maxmemory", "0"));
        const answers = reply.slice(released.length, items.length);
        for (const [index, known] of [...made, ...repeated].entries())
          if (/^[hrwe]/.test(answers[index] as string) && !claims.includes(known)) claims.push(known);
      } else if (draw < 0.75) {
        const items = own.filter(() => random.chance(0.5)).map(({ claim }) => encodeName(claim));
        await compare(
          (side) => side.call(RENEW, [inbox(process), guard, ...items]),
          `${process} renews ${items.join("  ")}`,
        );
      } else if (draw < 0.87) pass(random.pick([0, 1, 300, 999, 1_001, 2_500, 9_000, -700]));
      else if (draw < 0.93) await listen(process, random.chance(0.6));
      else if (draw < 0.95 && own.length > 0) {
        const { claim } = random.pick(own);
        await compare(
          (side) => side.call(DETACH, [inbox(process), guard, `5000 ${encodeName(claim)}`]),
          `detach ${claim.id}`,
        );
      } else if (draw < 0.97) {
        const key = random.pick(keys);
        const args = [inbox(process), guard, `${random.pick(["0", "1"])}${toBucket(key)}${key}\n9000000000000000`];
        await compare((side) => side.call(REVOKE, args), `revoke ${key}`);
      } else if (draw < 0.98 && guard !== "") await both(({ redis }) => redis.del(`${ROOT}{00}:b`));
      else if (draw < 0.99) {
        log.push("evicted: the queue of k0");
        await both(({ redis }) => redis.del(`${ROOT}{${toBucket("k0")}}:w:k0`));
      }
    }
  }

  test(`${SEEDS} seeds from ${FIRST_SEED} on`, { timeout: 600_000 }, async () => {
    expect(GENERAL.text).not.toBe(TURN.text);
    for (let seed = FIRST_SEED; seed < FIRST_SEED + SEEDS; seed++) {
      const log: string[] = [];
      await run(seed, seededRandom(seed), log).catch((error: unknown) => {
        throw new Error(`seed ${seed}: ${String(error)}\n  ${log.slice(-20).join("\n  ")}`, { cause: error });
      });
    }
  });
});

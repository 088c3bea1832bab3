/** A prefix on a real Redis, with drivers and a connection that sees everything. */

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import type { RedisOptions } from "../../../src/drivers/redis/driver.ts";
import { redis } from "../../../src/drivers/redis/driver.ts";
import { toBucket } from "../../../src/drivers/redis/key-names.ts";
import type { Answer, Claim, ClaimId, Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import type { Clock } from "../../../src/util/clock.ts";
import { toDriverEvents } from "../driver-events.ts";
import { withHeldTokens } from "../held-tokens.ts";

type HeldAnswer = Extract<Answer, { state: "held" }>;

/** A driver that was opened, and what it said by itself. */
interface OpenDriver {
  readonly driver: Driver;
  readonly pushes: readonly { readonly id: ClaimId | null; readonly answer: Answer | undefined }[];
  /** The claims that were recalled by a push, each time anew. */
  readonly recalls: readonly ClaimId[];
  claim(claim: Claim): Promise<Answer>;
  renewOnce(claim: Claim): Promise<Answer>;
  claimHeld(claim: Claim): Promise<HeldAnswer>;
  waitForGrant(claim: Claim): Promise<HeldAnswer>;
}

export interface RedisFixture {
  readonly prefix: string;
  /** A connection that sees everything. */
  readonly admin: Redis;
  open(driver?: Driver, clock?: Clock): Promise<OpenDriver>;
  /** A driver whose inbox, once its connection is broken, stays away. */
  openWithFragileSubscriber(): Promise<OpenDriver>;
  /** Breaks the inboxes of all drivers, and waits until Redis knows. */
  breakSubscribers(): Promise<void>;
  /** All our keys. */
  keys(): Promise<string[]>;
  /** The hash of the bucket of a key (lua/lib/prelude.lua). */
  hashOf(key: string): string;
  close(): Promise<void>;
}

export function createRedisFixture(port: number, options: RedisOptions = {}): RedisFixture {
  const prefix = options.prefix ?? randomUUID();
  const admin = new Redis(port, "127.0.0.1");
  const drivers: Driver[] = [];
  const open = async (
    driver = redis(() => new Redis(port, "127.0.0.1"), { ...options, prefix }),
    clock?: Clock,
  ): Promise<OpenDriver> => {
    drivers.push(driver);
    return openDriver(driver, clock);
  };
  return {
    prefix,
    admin,
    open,
    openWithFragileSubscriber() {
      const client = new Redis(port, "127.0.0.1");
      let times = 0;
      const duplicate = (duplicateOptions: object): Redis =>
        new Redis({ port: times++ === 0 ? port : 1, host: "127.0.0.1", ...duplicateOptions });
      const fragileClient = Object.assign(client, { duplicate });
      return open(redis(() => fragileClient, { ...options, prefix }));
    },
    async breakSubscribers() {
      await admin.call("CLIENT", "KILL", "TYPE", "pubsub");
    },
    keys: () => admin.keys(`${prefix}:*`),
    hashOf: (key) => `${prefix}:3:{${toBucket(key)}}:h`,
    async close() {
      for (const driver of drivers) await driver.close();
      admin.disconnect();
    },
  };
}

async function openDriver(opened: Driver, clock?: Clock): Promise<OpenDriver> {
  const driver = withHeldTokens(opened, clock);
  const pushes: { id: ClaimId | null; answer: Answer | undefined }[] = [];
  const recalls: ClaimId[] = [];
  const events = toDriverEvents((id, answer) => pushes.push({ id, answer }));
  await driver.open({ ...events, recalled: (id) => void recalls.push(id) });
  const renewOnce = async (claim: Claim): Promise<Answer> => (await driver.renew([claim]))[0] as Answer;
  return {
    driver,
    pushes,
    recalls,
    claim: (claim) => driver.claim(claim),
    renewOnce,
    async claimHeld(claim) {
      const answer = await driver.claim(claim);
      assert.equal(answer.state, "held");
      return answer as HeldAnswer;
    },
    waitForGrant: (claim) =>
      until(
        async () => {
          const answer = await renewOnce(claim);
          return answer.state === "held" ? answer : null;
        },
        { within: 20_000, what: "a grant" },
      ),
  };
}

/** The run record of guardDataLoss (lua/lib/grace.lua). */
export interface RunRecord {
  /** The replication id of the master that wrote it. */
  readonly replicationId: string;
  /** From when on new claims are granted, in the store's milliseconds. */
  readonly graceEndsAt: number;
  /** Tokens continue above it. */
  readonly floor: bigint;
  /** No token above it was granted. */
  readonly tokenCeiling: bigint;
}

const runRecordKey = (prefix: string, bucket: string): string => `${prefix}:3:{${bucket}}:b`;

export async function replicationIdOf(admin: Redis): Promise<string> {
  return /master_replid:(\w+)/.exec(await admin.info("replication"))?.[1] ?? "";
}

export async function readRunRecord(admin: Redis, prefix: string, bucket = "00"): Promise<RunRecord> {
  const [replicationId = "", graceEndsAt, floor, ceiling] = String(await admin.get(runRecordKey(prefix, bucket))).split(
    " ",
  );
  return {
    replicationId,
    graceEndsAt: Number(graceEndsAt),
    floor: BigInt(floor ?? 0),
    tokenCeiling: BigInt(ceiling ?? 0),
  };
}

/** Writes a run record; by default one of this server, without a grace period. */
export async function writeRunRecord(
  admin: Redis,
  prefix: string,
  { replicationId, graceEndsAt = 1, floor = 0n, tokenCeiling = 0n }: Partial<RunRecord> = {},
  bucket = "00",
): Promise<void> {
  const fields = [replicationId ?? (await replicationIdOf(admin)), graceEndsAt, floor, tokenCeiling];
  await admin.set(runRecordKey(prefix, bucket), fields.join(" "));
}

/** Spares a prefix the grace period with which guardDataLoss begins. */
export function markLongInUse(admin: Redis, prefix: string, bucket = "00"): Promise<void> {
  return writeRunRecord(admin, prefix, {}, bucket);
}

/**
 * What `look` finds, if it takes less than so many milliseconds: what it looks at lasts no longer. A machine that is too slow looks
 * again, with another key.
 */
export async function withinTime<T>(withinMs: number, look: (name: string) => Promise<T>): Promise<T> {
  for (let attempt = 1; attempt <= 10; attempt++) {
    const startedAt = performance.now();
    const result = await look(`key ${attempt}`);
    if (performance.now() - startedAt < withinMs) return result;
  }
  throw new Error(`this machine was never done within ${withinMs} ms`);
}

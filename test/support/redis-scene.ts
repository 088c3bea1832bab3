/** What the tests of the Redis driver's own facts work with. */

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import type { RedisOptions } from "../../src/drivers/redis/driver.ts";
import { redis } from "../../src/drivers/redis/driver.ts";
import { newId } from "../../src/ids.ts";
import type { Answer, Claim, ClaimId, Driver, Hold } from "../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../src/spi/driver.ts";
import { until } from "./wait-for.ts";

type Held = Extract<Answer, { state: "held" }>;

/** A driver that was opened, and what it said by itself. */
interface Opened {
  readonly driver: Driver;
  readonly pushes: readonly { readonly id: ClaimId | null; readonly answer: Answer | undefined }[];
  claim(claim: Claim): Promise<Answer>;
  ask(claim: Claim): Promise<Answer>;
  hold(claim: Claim): Promise<Held>;
  granted(claim: Claim): Promise<Held>;
}

export interface RedisScene {
  readonly prefix: string;
  /** A connection that sees everything. */
  readonly admin: Redis;
  open(driver?: Driver): Promise<Opened>;
  /** A driver whose inbox, once its connection is broken, stays away. */
  openWithFrailInbox(): Promise<Opened>;
  /** Breaks the inboxes of all drivers, and waits until Redis knows. */
  breakInboxes(): Promise<void>;
  /** All our keys. */
  keys(): Promise<string[]>;
  close(): Promise<void>;
}

export function redisScene(port: number, options: RedisOptions = {}): RedisScene {
  const prefix = options.prefix ?? randomUUID();
  const admin = new Redis(port, "127.0.0.1");
  const opened: Driver[] = [];
  const open = async (driver = redis(() => new Redis(port, "127.0.0.1"), { ...options, prefix })): Promise<Opened> => {
    opened.push(driver);
    return openedOf(driver);
  };
  return {
    prefix,
    admin,
    open,
    openWithFrailInbox() {
      const client = new Redis(port, "127.0.0.1");
      let times = 0;
      const duplicate = (more: object): Redis =>
        new Redis({ port: times++ === 0 ? port : 1, host: "127.0.0.1", ...more });
      const frail = Object.assign(client, { duplicate });
      return open(redis(() => frail, { ...options, prefix }));
    },
    async breakInboxes() {
      await admin.call("CLIENT", "KILL", "TYPE", "pubsub");
    },
    keys: () => admin.keys(`${prefix}:*`),
    async close() {
      for (const driver of opened) await driver.close();
      admin.disconnect();
    },
  };
}

async function openedOf(driver: Driver): Promise<Opened> {
  const pushes: { id: ClaimId | null; answer: Answer | undefined }[] = [];
  await driver.open((id, answer) => pushes.push({ id, answer }));
  const ask = async (claim: Claim): Promise<Answer> => (await driver.renew([claim]))[0] as Answer;
  return {
    driver,
    pushes,
    claim: (claim) => driver.claim(claim),
    ask,
    async hold(claim) {
      const answer = await driver.claim(claim);
      assert.equal(answer.state, "held");
      return answer as Held;
    },
    granted: (claim) =>
      until(
        async () => {
          const answer = await ask(claim);
          return answer.state === "held" ? answer : null;
        },
        { within: 20_000, what: "a grant" },
      ),
  };
}

/** A claim of one key or several, exclusive unless the holds say otherwise. */
export function claimOf(target: string | readonly Hold[], terms: Partial<Claim> = {}): Claim {
  const holds = typeof target === "string" ? [{ key: target, permits: ALL_PERMITS, limit: ALL_PERMITS }] : target;
  return {
    id: newId(),
    holds: holds as unknown as Claim["holds"],
    ttlMs: 60_000,
    tokens: 1,
    floor: 0n,
    wait: true,
    label: "test",
    ...terms,
  };
}

/** The birth record of guardDataLoss, as lua/line/birth.lua has it. */
export interface BirthRecord {
  /** The replication id of the master that wrote it. */
  readonly reign: string;
  /** From when on new claims are granted, in the store's milliseconds. */
  readonly opensAt: number;
  /** Tokens go on above it. */
  readonly floor: bigint;
  /** No token above it was granted. */
  readonly mark: bigint;
}

const birthKey = (prefix: string, bucket: string): string => `${prefix}:1:{${bucket}}:b`;

export async function reignOf(admin: Redis): Promise<string> {
  return /master_replid:(\w+)/.exec(await admin.info("replication"))?.[1] ?? "";
}

export async function readBirth(admin: Redis, prefix: string, bucket = "00"): Promise<BirthRecord> {
  const [reign = "", opensAt, floor, mark] = String(await admin.get(birthKey(prefix, bucket))).split(" ");
  return { reign, opensAt: Number(opensAt), floor: BigInt(floor ?? 0), mark: BigInt(mark ?? 0) };
}

/** Writes a birth record: one of this server from when on it grants at once, but for what is given. */
export async function writeBirth(
  admin: Redis,
  prefix: string,
  { reign, opensAt = 1, floor = 0n, mark = 0n }: Partial<BirthRecord> = {},
  bucket = "00",
): Promise<void> {
  const words = [reign ?? (await reignOf(admin)), opensAt, floor, mark];
  await admin.set(birthKey(prefix, bucket), words.join(" "));
}

/** Lets a prefix pass for one that has been in use for long, where guardDataLoss would begin with a grace period. */
export function longInUse(admin: Redis, prefix: string, bucket = "00"): Promise<void> {
  return writeBirth(admin, prefix, {}, bucket);
}

/**
 * What is found within so many milliseconds, which the facts looked at last for. Where the machine stood still meanwhile it
 * is looked for anew, under another name.
 */
export async function promptly<T>(withinMs: number, look: (name: string) => Promise<T>): Promise<T> {
  for (let attempt = 1; attempt <= 10; attempt++) {
    const began = performance.now();
    const found = await look(`key ${attempt}`);
    if (performance.now() - began < withinMs) return found;
  }
  throw new Error(`this machine was never done within ${withinMs} ms`);
}

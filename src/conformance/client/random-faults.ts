/** Everything at once, from a seed: lost, late and repeated calls and pushes, broken connections, aborts, short waits. */

import assert from "node:assert/strict";
import type { Lock } from "../../client/lock.ts";
import type { Lockable } from "../../client/lockable.ts";
import type { Locks } from "../../client/locks.ts";
import type { ChaosOptions } from "../chaos/driver.ts";
import type { TestContext } from "../context.ts";
import type { ConformanceSettings, DefineTest } from "../options.ts";
import type { Random } from "../random.ts";
import { createRandom } from "../random.ts";
import type { TestClient } from "./helpers.ts";
import { openTestClient, waitForEmptyStore } from "./helpers.ts";

const STORM_OPTIONS: ChaosOptions = {
  loseCall: 0.05,
  loseReply: 0.08,
  repeatCall: 0.1,
  delayCall: 0.3,
  losePush: 0.03,
  delayPush: 0.3,
  repeatPush: 0.2,
  pushWithoutAnswer: 0.3,
  disconnect: 0.02,
  maxDelayMs: 8,
};

/** A key as its holders see it. */
interface KeyOccupancy {
  writers: number;
  readers: number;
  /** The highest token of a writer, and of anybody. */
  lastWriter: bigint;
  lastToken: bigint;
}

interface FaultRun {
  readonly scene: TestContext;
  readonly random: Random;
  readonly occupancy: Map<string, KeyOccupancy>;
  readonly traits: ConformanceSettings["traits"];
}

/** How a key is locked in a storm. */
type Mode = "write" | "read" | "permit";

const PERMIT_LIMIT = 2;

export function testRandomFaults(test: DefineTest, { random, traits }: ConformanceSettings): void {
  for (let index = 0; index < random.seeds; index++) {
    const seed = random.from + index;
    test(`seed ${seed}: nobody overlaps, tokens rise, and nothing is left`, (context) =>
      runWithFaults({ scene: context, random: createRandom(seed), occupancy: new Map(), traits }, seed, random.steps));
  }
}

async function runWithFaults(stage: FaultRun, seed: number, steps: number): Promise<void> {
  const { scene: context } = stage;
  // leases long against the storm: who holds keeps what it holds, so that an overlap is a fault
  const options = { ttl: context.scaleLease(1_200), wait: context.scaleMs(5_000) };
  const players = [
    await openTestClient(context, options, { ...STORM_OPTIONS, seed: seed * 3 }),
    await openTestClient(context, options, { ...STORM_OPTIONS, seed: seed * 3 + 1 }),
    await openTestClient(context, { ...options, handoffs: 1 }, { ...STORM_OPTIONS, seed: seed * 3 + 2 }),
  ];
  const each = Math.ceil(steps / 12);
  await Promise.all(players.flatMap((one) => [runFlow(stage, one, each), runFlow(stage, one, each)]));
  for (const { chaosDriver } of players) chaosDriver.reconnect();
  await waitForEmptyStore(context);
  await Promise.all(players.map(({ locks }) => locks.close()));
}

async function runFlow(stage: FaultRun, { locks }: TestClient, rounds: number): Promise<void> {
  const { random, scene: context } = stage;
  for (let round = 0; round < rounds; round++) {
    const [mode, lockable] = randomLockable(stage, locks);
    const abort = new AbortController();
    if (random.chance(0.2)) void context.sleep(random.next() * 15).then(() => abort.abort(new RangeError("enough")));
    try {
      const lock = await lockable.acquire({ signal: abort.signal });
      await assertExclusive(stage, lock, mode);
      await lock.release();
    } catch (error) {
      const { code } = error as { code?: unknown };
      // while the line is down a request may run out of patience; a false grant is caught by assertExclusive()
      const expected = error instanceof RangeError || code === "LOCK_TIMEOUT" || code === "DRIVER_FAILED";
      if (!expected) throw error;
    }
  }
}

function randomLockable({ random, traits }: FaultRun, locks: Locks): [Mode, Lockable] {
  const roll = random.next();
  if (roll < 0.2 && traits.permits !== "one") return ["read", locks.rw(random.pick(["a", "b"])).read];
  if (roll < 0.4 && traits.permits === "any") return ["permit", locks.semaphore("c", PERMIT_LIMIT)];
  return ["write", roll < 0.6 ? locks.all("a", "b") : locks.mutex(random.pick(["a", "b"]))];
}

async function assertExclusive({ scene: context, occupancy, traits }: FaultRun, lock: Lock, mode: Mode): Promise<void> {
  lock.throwIfLost();
  for (const key of lock.keys) {
    const room = occupancy.get(key) ?? { writers: 0, readers: 0, lastWriter: 0n, lastToken: 0n };
    occupancy.set(key, room);
    const maxPermits = mode === "write" ? 0 : mode === "permit" ? PERMIT_LIMIT - 1 : Number.POSITIVE_INFINITY;
    assert.ok(room.writers === 0 && room.readers <= maxPermits, `too many hold "${key}"`);
    if (mode === "write") room.writers++;
    else room.readers++;
    if (!traits.fencing) continue;
    const token = lock.tokenOf(key);
    // those who share a key may be told of their grants in another order than they were granted
    assert.ok(token > (mode === "write" ? room.lastToken : room.lastWriter), `the tokens of "${key}" rise`);
    if (mode === "write") room.lastWriter = token;
    if (token > room.lastToken) room.lastToken = token;
  }
  await context.sleep(1);
  lock.throwIfLost();
  for (const key of lock.keys) {
    const room = occupancy.get(key) as KeyOccupancy;
    if (mode === "write") room.writers--;
    else room.readers--;
  }
}

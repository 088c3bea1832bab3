/** Everything at once, from a seed: lost, late and repeated calls and pushes, broken connections, aborts, short waits. */

import assert from "node:assert/strict";
import type { Lock } from "../../client/lock.ts";
import type { Lockable } from "../../client/lockable.ts";
import type { Locks } from "../../client/locks.ts";
import type { ChaosOptions } from "../chaos.ts";
import type { Random } from "../random.ts";
import { randomOf } from "../random.ts";
import type { Scene } from "../scene.ts";
import type { Check, Subject } from "../subject.ts";
import type { Player } from "./players.ts";
import { empty, player } from "./players.ts";

const STORM: ChaosOptions = {
  loseCall: 0.05,
  loseReply: 0.08,
  repeatCall: 0.1,
  delayCall: 0.3,
  losePush: 0.03,
  delayPush: 0.3,
  repeatPush: 0.2,
  blurPush: 0.3,
  disconnect: 0.02,
  longestMs: 8,
};

/** A key as its holders see it. */
interface Room {
  writers: number;
  readers: number;
  /** The highest token of a writer, and of anybody. */
  lastWriter: bigint;
  last: bigint;
}

interface Stage {
  readonly scene: Scene;
  readonly random: Random;
  readonly rooms: Map<string, Room>;
  readonly traits: Subject["traits"];
}

/** How a key is locked in a storm. */
type Mode = "write" | "read" | "permit";

const LIMIT = 2;

export function storms(check: Check, { random, traits }: Subject): void {
  for (let index = 0; index < random.seeds; index++) {
    const seed = random.from + index;
    check(`seed ${seed}: nobody overlaps, tokens rise, and nothing is left`, (scene) =>
      storm({ scene, random: randomOf(seed), rooms: new Map(), traits }, seed, random.steps),
    );
  }
}

async function storm(stage: Stage, seed: number, steps: number): Promise<void> {
  const { scene } = stage;
  // leases long against the storm: who holds keeps what it holds, so that an overlap is a fault
  const options = { ttl: scene.lease(1_200), wait: scene.ms(5_000) };
  const players = [
    await player(scene, options, { ...STORM, seed: seed * 3 }),
    await player(scene, options, { ...STORM, seed: seed * 3 + 1 }),
    await player(scene, { ...options, handoffs: 1 }, { ...STORM, seed: seed * 3 + 2 }),
  ];
  const each = Math.ceil(steps / 12);
  await Promise.all(players.flatMap((one) => [flow(stage, one, each), flow(stage, one, each)]));
  for (const { line } of players) line.heal();
  await empty(scene);
  await Promise.all(players.map(({ locks }) => locks.close()));
}

async function flow(stage: Stage, { locks }: Player, rounds: number): Promise<void> {
  const { random, scene } = stage;
  for (let round = 0; round < rounds; round++) {
    const [mode, lockable] = wanted(stage, locks);
    const abort = new AbortController();
    if (random.chance(0.2)) void scene.pause(random.next() * 15).then(() => abort.abort(new RangeError("enough")));
    try {
      const lock = await lockable.acquire({ signal: abort.signal });
      await hold(stage, lock, mode);
      await lock.release();
    } catch (error) {
      const { code } = error as { code?: unknown };
      // while the line is down a request may run out of patience; a false grant is caught by hold()
      const expected = error instanceof RangeError || code === "LOCK_TIMEOUT" || code === "DRIVER_FAILED";
      if (!expected) throw error;
    }
  }
}

function wanted({ random, traits }: Stage, locks: Locks): [Mode, Lockable] {
  const roll = random.next();
  if (roll < 0.2 && traits.permits !== "one") return ["read", locks.rw(random.pick(["a", "b"])).read];
  if (roll < 0.4 && traits.permits === "any") return ["permit", locks.semaphore("c", LIMIT)];
  return ["write", roll < 0.6 ? locks.all("a", "b") : locks.mutex(random.pick(["a", "b"]))];
}

async function hold({ scene, rooms, traits }: Stage, lock: Lock, mode: Mode): Promise<void> {
  lock.throwIfLost();
  for (const key of lock.keys) {
    const room = rooms.get(key) ?? { writers: 0, readers: 0, lastWriter: 0n, last: 0n };
    rooms.set(key, room);
    const most = mode === "write" ? 0 : mode === "permit" ? LIMIT - 1 : Number.POSITIVE_INFINITY;
    assert.ok(room.writers === 0 && room.readers <= most, `too many hold "${key}"`);
    if (mode === "write") room.writers++;
    else room.readers++;
    if (!traits.fencing) continue;
    const token = lock.tokenOf(key);
    // those who share a key may be told of their grants in another order than they were granted
    assert.ok(token > (mode === "write" ? room.last : room.lastWriter), `the tokens of "${key}" rise`);
    if (mode === "write") room.lastWriter = token;
    if (token > room.last) room.last = token;
  }
  await scene.pause(1);
  lock.throwIfLost();
  for (const key of lock.keys) {
    const room = rooms.get(key) as Room;
    if (mode === "write") room.writers--;
    else room.readers--;
  }
}

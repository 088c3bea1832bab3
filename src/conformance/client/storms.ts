/** Everything at once, from a seed: lost, late and repeated calls and pushes, broken connections, aborts, short waits. */

import assert from "node:assert/strict";
import type { Lock } from "../../client/lock.ts";
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

interface Stage {
  readonly scene: Scene;
  readonly random: Random;
  readonly inside: Map<string, Lock>;
  readonly last: Map<string, bigint>;
}

export function storms(check: Check, subject: Subject): void {
  const { random, traits } = subject;

  for (let index = 0; index < random.seeds; index++) {
    const seed = random.from + index;
    check(`seed ${seed}: nobody overlaps, tokens rise, and nothing is left`, (scene) =>
      storm(scene, seed, traits.fencing, random.steps),
    );
  }
}

async function storm(scene: Scene, seed: number, fencing: boolean, steps: number): Promise<void> {
  const stage: Stage = { scene, random: randomOf(seed), inside: new Map(), last: new Map() };
  // leases long against the storm: who holds keeps what it holds, so that an overlap is a fault
  const options = { ttl: scene.lease(1_200), wait: scene.ms(5_000) };
  const players = [
    await player(scene, options, { ...STORM, seed: seed * 3 }),
    await player(scene, options, { ...STORM, seed: seed * 3 + 1 }),
    await player(scene, { ...options, handoffs: 1 }, { ...STORM, seed: seed * 3 + 2 }),
  ];
  const each = Math.ceil(steps / 12);
  await Promise.all(players.flatMap((one) => [flow(stage, one, each, fencing), flow(stage, one, each, fencing)]));
  for (const { line } of players) line.heal();
  await empty(scene);
  await Promise.all(players.map(({ locks }) => locks.close()));
}

async function flow(stage: Stage, { locks }: Player, rounds: number, fencing: boolean): Promise<void> {
  const { random, scene } = stage;
  for (let round = 0; round < rounds; round++) {
    const keys = random.chance(0.3) ? ["a", "b"] : [random.pick(["a", "b"])];
    const abort = new AbortController();
    const impatient = random.chance(0.2);
    if (impatient) void scene.pause(random.next() * 15).then(() => abort.abort(new RangeError("enough")));
    try {
      const lock = await locks.all(...keys).acquire({ signal: abort.signal });
      await hold(stage, lock, fencing);
      await lock.release();
    } catch (error) {
      const { code } = error as { code?: unknown };
      // while the line is down a request may run out of patience; a false grant is caught by hold()
      const expected = error instanceof RangeError || code === "LOCK_TIMEOUT" || code === "DRIVER_FAILED";
      if (!expected) throw error;
    }
  }
}

async function hold({ scene, inside, last }: Stage, lock: Lock, fencing: boolean): Promise<void> {
  lock.throwIfLost();
  for (const key of lock.keys) {
    assert.ok(!inside.has(key), `two hold "${key}"`);
    inside.set(key, lock);
    if (!fencing) continue;
    const token = lock.tokenOf(key);
    assert.ok(token > (last.get(key) ?? 0n), `the tokens of "${key}" rise`);
    last.set(key, token);
  }
  await scene.pause(1);
  lock.throwIfLost();
  for (const key of lock.keys) inside.delete(key);
}

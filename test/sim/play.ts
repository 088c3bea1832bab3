/** Plays one seed. */

import { createLocks } from "../../src/client/locks.ts";
import { memory } from "../../src/drivers/memory.ts";
import { Scene } from "./scene.ts";
import type { WorldOptions } from "./world.ts";
import { World } from "./world.ts";

export interface Result {
  readonly failure: string | null;
  readonly lines: readonly string[];
  readonly digest: number;
  readonly happened: number;
  readonly grants: number;
}

/** The client loads some of its parts at their first use, which takes real time; virtual time would go on meanwhile. */
const loaded: Promise<void> = useAll();

async function useAll(): Promise<void> {
  const locks = createLocks(memory());
  const lock = await locks.acquire("key");
  await (await locks.attach(await lock.detach())).release();
  await locks.close();
}

export async function play(seed: number, options: WorldOptions = {}): Promise<Result> {
  await loaded;
  const world = new World(seed, options);
  const onRejection = (reason: unknown): void =>
    world.fail(`nobody handled: ${reason instanceof Error ? reason.stack : String(reason)}`);
  process.on("unhandledRejection", onRejection);
  let scene: Scene | null = null;
  try {
    scene = new Scene(world);
    await scene.run();
  } catch (error) {
    world.fail(error instanceof Error ? (error.stack ?? error.message) : String(error));
  } finally {
    scene?.end();
    process.off("unhandledRejection", onRejection);
  }
  const { failure, digest, happened } = world;
  return { failure, lines: world.lastLines(), digest, happened, grants: scene?.watch.grants ?? 0 };
}

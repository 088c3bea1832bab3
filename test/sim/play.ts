/** Plays one seed. */

import { createLocks } from "../../src/client/locks.ts";
import { memory } from "../../src/drivers/memory.ts";
import { Scene } from "./scene.ts";
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

export async function play(seed: number, trace = false): Promise<Result> {
  await loaded;
  const world = new World(seed, trace);
  const onRejection = (reason: unknown): void =>
    world.fail(`nobody handled: ${reason instanceof Error ? reason.stack : String(reason)}`);
  process.on("unhandledRejection", onRejection);
  let grants = 0;
  try {
    const scene = new Scene(world);
    await scene.run();
    grants = scene.watch.grants;
  } catch (error) {
    world.fail(error instanceof Error ? (error.stack ?? error.message) : String(error));
  } finally {
    process.off("unhandledRejection", onRejection);
  }
  return { failure: world.failure, lines: world.lastLines(), digest: world.digest, happened: world.happened, grants };
}

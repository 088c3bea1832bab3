/** Plays one seed. */

// loaded on demand by the client, which would take real time while virtual time goes on
import "../../src/client/attach.ts";
import { Scene } from "./scene.ts";
import { World } from "./world.ts";

export interface Result {
  readonly failure: string | null;
  readonly lines: readonly string[];
  readonly digest: number;
  readonly happened: number;
  readonly grants: number;
}

export async function play(seed: number, trace = false): Promise<Result> {
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

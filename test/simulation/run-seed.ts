/** Plays one seed. */

import { createLocks } from "../../src/client/locks.ts";
import { memory } from "../../src/drivers/memory.ts";
import type { EventQueueOptions } from "./event-queue.ts";
import { EventQueue } from "./event-queue.ts";
import { Simulation } from "./simulation.ts";

export interface SeedResult {
  readonly failure: string | null;
  readonly lines: readonly string[];
  readonly digest: number;
  readonly eventCount: number;
  readonly grants: number;
}

/** The client loads some of its parts at their first use, which takes real time; virtual time would go on meanwhile. */
const isLoaded: Promise<void> = preloadLazyModules();

async function preloadLazyModules(): Promise<void> {
  const locks = createLocks(memory());
  const lock = await locks.acquire("key");
  await (await locks.attach(await lock.detach())).release();
  await locks.close();
}

export async function runSeed(seed: number, options: EventQueueOptions = {}): Promise<SeedResult> {
  await isLoaded;
  const eventQueue = new EventQueue(seed, options);
  const onRejection = (reason: unknown): void =>
    eventQueue.fail(`nobody handled: ${reason instanceof Error ? reason.stack : String(reason)}`);
  process.on("unhandledRejection", onRejection);
  let simulation: Simulation | null = null;
  try {
    simulation = new Simulation(eventQueue);
    await simulation.run();
  } catch (error) {
    eventQueue.fail(error instanceof Error ? (error.stack ?? error.message) : String(error));
  } finally {
    simulation?.end();
    process.off("unhandledRejection", onRejection);
  }
  const { failure, digest, eventCount } = eventQueue;
  return { failure, lines: eventQueue.lastLines(), digest, eventCount, grants: simulation?.checker.grants ?? 0 };
}

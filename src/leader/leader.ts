/** Who leads, as the store's queue shows it: read once, or watched. */

import type { Client } from "../client/client.ts";
import { isEachExclusive } from "../client/lock-spec.ts";
import type { Scheduler } from "../client/scheduler.ts";
import { ClosedError, StoreError, UnsupportedError, wrapStoreError } from "../errors.ts";

/** A leader, as the store shows it to everyone. */
export interface Leader {
  /** The `label` of the candidate that leads. */
  readonly label: string;
  /** The fencing token of its term. */
  readonly token: bigint;
}

/**
 * Returns the leader, or null if there is none. @throws ClosedError; StoreError; StoreRefusedError; UnsupportedError if the
 * store does not list the claims of other clients
 */
export async function readLeader(client: Client, name: string): Promise<Leader | null> {
  const { traits, queueReader } = await client.open();
  if (traits.list === "own") {
    throw new UnsupportedError(`${client.driver.name} shows no claims of other clients, so it cannot show the leader`, {
      keys: [name],
    });
  }
  const key = client.settings.prefix + name;
  const { views } = await queueReader.read(key, true).catch((error: unknown) => {
    throw wrapStoreError(error, `could not read who leads ${JSON.stringify(name)}`, [name]);
  });
  for (const { answer, label, locks } of views) {
    // readers and holders of permits lead nothing
    const isLeader = answer.state === "held" && isEachExclusive(locks.filter((spec) => spec.key === key));
    if (isLeader) return { label, token: answer.token };
  }
  return null;
}

/**
 * Yields the leader, and each other one that a later read finds. A read that fails is repeated after the interval.
 * @throws as readLeader(), except StoreError; ends when the client is closed or the signal aborted
 */
export async function* watchLeader(
  client: Client,
  name: string,
  intervalMs: number,
  signal: AbortSignal,
): AsyncGenerator<Leader | null, void, void> {
  if (signal.aborted) return;
  const { scheduler } = (await client.open()).engine;
  let shown: Leader | null | undefined;
  let nextReadAt = scheduler.now();
  while (!signal.aborted) {
    // a process that only observes has no claim that would keep it alive
    scheduler.ref();
    let leader: Leader | null | undefined;
    try {
      if (scheduler.now() < nextReadAt) await waitUntil(scheduler, nextReadAt, signal);
      nextReadAt = scheduler.now() + intervalMs;
      leader = signal.aborted ? undefined : await readLeader(client, name);
    } catch (error) {
      if (error instanceof ClosedError) return;
      if (!(error instanceof StoreError)) throw error;
    } finally {
      scheduler.unref();
    }
    if (leader === undefined || (shown !== undefined && leader?.token === shown?.token)) continue;
    shown = leader;
    yield leader;
  }
}

function waitUntil(scheduler: Scheduler, dueAt: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = scheduler.timer(settle);
    signal.addEventListener("abort", settle, { once: true });
    if (signal.aborted) settle();
    else timer.set(Math.ceil(dueAt));
    function settle(): void {
      timer.stop();
      signal.removeEventListener("abort", settle);
      resolve();
    }
  });
}

// What such a server promises beside speed: the right reference unlocks from anywhere, any other does not, and is told why;
// nobody holds or waits for longer than was said.

import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { Locks } from "holdfast";
import { connect, createLocks, LockLostError, LockTimeoutError } from "holdfast";
import { memory } from "holdfast/memory";

/** What the process tells that locks and ends. */
export interface DetachedLock {
  /** A secret, so it travels by a pipe and is never printed. */
  readonly reference: string;
  readonly token: string;
}

export async function showSemantics(url: string): Promise<void> {
  await using locks = await connect(url);
  await showReleaseElsewhere(locks, url);
  await showLeaseExpiry(locks, url);
  await showWaitTimeout(locks);
}

/** One process locks and ends; here the lock is released, once. */
async function showReleaseElsewhere(locks: Locks, url: string): Promise<void> {
  const { reference, token } = await lockInChildProcess(url, "order:1", "30s");
  console.log(`locked by a process that has ended: ${(await locks.tryAcquire("order:1")) === null}`);
  const alteredReference = reference.slice(0, -1) + (reference.endsWith("A") ? "B" : "A");
  console.log(`an altered reference: ${await attachRefusal(locks, alteredReference)}`);
  console.log(`a reference of another server: ${await attachRefusal(locks, await createForeignReference())}`);
  console.log(`still locked: ${(await locks.tryAcquire("order:1")) === null}`);

  const lock = await locks.attach(reference);
  console.log(`taken up with its token: ${lock.token === BigInt(token)}, released: ${await lock.release()}`);
  console.log(`released once more: ${await lock.release()}, nothing happens`);
  console.log(`taken up once more: ${await attachRefusal(locks, reference)}`);
}

/** Nobody renews what a process has left behind: its lease ends, and then its reference is worth nothing. */
async function showLeaseExpiry(locks: Locks, url: string): Promise<void> {
  const startedAt = performance.now();
  const { reference, token } = await lockInChildProcess(url, "order:2", "2s");
  const next = await locks.acquire("order:2"); // waits until the lease has ended
  const hasWaited = performance.now() - startedAt >= 2_000;
  console.log(`a lease of 2 s has lasted 2 s: ${hasWaited}, the next token is higher: ${next.token > BigInt(token)}`);
  console.log(`the stale reference: ${await attachRefusal(locks, reference)}`);
  next.throwIfLost();
  console.log(`the next holder holds on: ${await next.release()}`);
}

async function showWaitTimeout(locks: Locks): Promise<void> {
  const holder = await locks.acquire("order:3", { ttl: "session" }); // no lease: held while this process lives
  const otherLockable = locks.mutex("order:3");
  const startedAt = performance.now();
  const error = await otherLockable.acquire({ wait: "200ms" }).catch((reason: unknown) => reason);
  if (!(error instanceof LockTimeoutError)) throw new Error("the lock was granted twice", { cause: error });
  const waitedMs = performance.now() - startedAt;
  console.log(
    `waited 200 ms and no longer: ${error.code} ${waitedMs >= 199 && waitedMs < 5_000 ? "in time" : `after ${waitedMs} ms`}`,
  );
  await holder.release();
}

async function lockInChildProcess(url: string, key: string, ttl: string): Promise<DetachedLock> {
  const child = fork(fileURLToPath(new URL("detach.child.js", import.meta.url)), [url, key, ttl]);
  const exit = once(child, "exit");
  const [detachedLock] = (await once(child, "message")) as [DetachedLock];
  await exit;
  return detachedLock;
}

/** Why the reference is refused. */
async function attachRefusal(locks: Locks, reference: string): Promise<string> {
  const answer = await locks.attach(reference).catch((error: unknown) => error);
  if (answer instanceof LockLostError) return `${answer.code}, ${answer.reason}`;
  if (answer instanceof TypeError) return answer.message;
  throw new Error("the reference was taken", { cause: answer });
}

/** A good reference, but this server has never heard of it. */
async function createForeignReference(): Promise<string> {
  await using otherLocks = createLocks(memory());
  const lock = await otherLocks.acquire("order:1");
  return await lock.detach();
}

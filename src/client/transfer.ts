/** Detaches locks; loaded on first use. */

import { isFatalError, LockLostError, UnsupportedError } from "../errors.ts";
import { encodeReference } from "../protocol/lock-reference.ts";
import type { Claim, Driver } from "../spi/driver.ts";
import type { Duration } from "../util/duration.ts";
import { describeValue, formatDuration, parseDuration } from "../util/duration.ts";
import { callWithTimeout, sleep } from "../util/timeout.ts";
import { wrapDriverError } from "./driver-error.ts";
import type { Engine } from "./engine.ts";
import { formatKeys, lockLostError } from "./local-hold.ts";
import type { Lock } from "./lock.ts";
import { LockHandle } from "./lock.ts";

/** The options of detach(). */
export interface DetachOptions {
  /**
   * How long the lock stays held from now on. Attaching it restarts its full lease. At most the lock's own ttl, which is the
   * default.
   */
  readonly ttl?: Duration | undefined;
}

/** The interval of retries if the store does not confirm a shortened lease. */
const RETRY_INTERVAL_MS = 100;

/** See Lock.detach(). */
export async function detach(lock: LockHandle, options: DetachOptions = {}): Promise<string> {
  const { keys, localHolds } = lock;
  const newTtlMs = parseTtlOption(options, lock);
  lock.throwIfLost();
  const { engine } = localHolds[0].queue.parent;
  for (const { activeClaim, refCount, openFlows } of localHolds) {
    const problem = detachProblem(engine.driver, activeClaim.claim.ttlMs, refCount, openFlows);
    if (problem !== null) throw new UnsupportedError(`cannot detach ${formatKeys(keys)}: ${problem}`, { keys });
  }
  const claims = localHolds.map(({ activeClaim }) => activeClaim.claim);
  // the store may extend the lease even if its answer is lost: a later release is repeated for a full ttl from now
  for (const { activeClaim } of localHolds) {
    activeClaim.lastSentAt = engine.clock.now();
    activeClaim.isShortened = newTtlMs !== undefined;
  }
  let wereHeld: readonly boolean[];
  try {
    wereHeld =
      newTtlMs === undefined
        ? await callWithTimeout(engine.scheduler, lock.remainingMs, () => detachClaims(engine.driver, claims))
        : await detachWithTtl(engine, claims, newTtlMs, lock.remainingMs);
  } catch (error) {
    // the store may have shortened the lease even if its answer was lost: the lock must not be used here any more
    if (newTtlMs !== undefined) lock.transferOut(lockLostError("unknown", keys));
    throw wrapDriverError(error, `could not detach ${formatKeys(keys)}`, keys);
  }
  if (wereHeld.includes(false)) throw lockLostError("unknown", keys);
  if (newTtlMs === undefined) lock.throwIfLost();
  const reference = toReference(lock);
  const message = `the lock on ${formatKeys(keys)} was detached and is no longer held by this lock object`;
  lock.transferOut(new LockLostError(message, "released", { keys }));
  return reference;
}

/** Returns a lock's secret reference without detaching it: for the command line, which passes it to its child process. */
export function toReference(lock: Lock): string {
  if (!(lock instanceof LockHandle)) throw new TypeError("lock must come from acquire()");
  const { prefix } = lock.localHolds[0].queue.parent.settings;
  return encodeReference(
    lock.localHolds.map(({ activeClaim, token }) => {
      const firstToken = activeClaim.state.status === "held" ? activeClaim.state.token : token;
      return { claim: activeClaim.claim, firstToken, token, prefix };
    }),
  );
}

/** @throws TypeError naming the option */
function parseTtlOption(options: unknown, { localHolds }: LockHandle): number | undefined {
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    throw new TypeError(`options of detach must be an object, not ${describeValue(options)}`);
  }
  const { ttl, ...unknownOptions } = options as DetachOptions;
  const [name] = Object.keys(unknownOptions);
  if (name !== undefined) throw new TypeError(`detach has no option ${describeValue(name)}`);
  if (ttl === undefined) return undefined;
  const newTtlMs = parseDuration(ttl, "ttl", 1);
  for (const { activeClaim } of localHolds) {
    const { ttlMs } = activeClaim.claim;
    if (ttlMs === "session" || newTtlMs <= ttlMs) continue;
    throw new TypeError(`ttl must be at most the lock's own of ${formatDuration(ttlMs)}, not ${describeValue(ttl)}`);
  }
  return newTtlMs;
}

/**
 * Detaches with newTtlMs of the lease left, counted from now. Repeats the call until the store confirms it, each time with
 * the remainder. It stops at the earlier end of both leases, so the lock is never assumed longer than the store keeps it,
 * whichever of the calls the store has received.
 */
async function detachWithTtl(
  engine: Engine,
  claims: readonly Claim[],
  newTtlMs: number,
  remainingMs: number,
): Promise<readonly boolean[]> {
  const startedAt = engine.clock.now();
  const timeoutMs = Math.min(newTtlMs, remainingMs);
  for (;;) {
    const elapsedMs = engine.clock.now() - startedAt;
    try {
      const call = (): Promise<readonly boolean[]> =>
        detachClaims(engine.driver, claims, Math.max(Math.ceil(newTtlMs - elapsedMs), 1));
      return await callWithTimeout(engine.scheduler, timeoutMs - elapsedMs, call);
    } catch (error) {
      if (isFatalError(error) || engine.clock.now() - startedAt + RETRY_INTERVAL_MS >= timeoutMs) throw error;
      await sleep(engine.scheduler, RETRY_INTERVAL_MS);
    }
  }
}

/** Without Driver.detach no claim belongs to a session: renewing gives it a full lease. */
async function detachClaims(driver: Driver, claims: readonly Claim[], newTtlMs?: number): Promise<readonly boolean[]> {
  if (driver.detach !== undefined) return driver.detach(claims, newTtlMs);
  const answers = await driver.renew(claims);
  return answers.map((answer) => {
    // unknown is not lost
    if (answer === undefined) throw new Error(`${driver.name}: no answer for this claim`);
    return answer.state === "held";
  });
}

function detachProblem(driver: Driver, ttl: number | "session", refCount: number, openFlows: number): string | null {
  if (!driver.traits.lease.claim)
    return `${driver.name} has only session leases: all locks end with the client's session`;
  if (ttl === "session") return 'a "session" lease ends with its session';
  if (openFlows > 0) return "it is held by using() or run()";
  return refCount > 1 ? "another request has joined it" : null;
}

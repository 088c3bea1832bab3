/** Lets a lock travel (design A.23); loaded when one does. */

import type { Duration } from "../duration.ts";
import { durationMs, shown, shownDuration } from "../duration.ts";
import { isFatal, LockLostError, UnsupportedError } from "../errors.ts";
import { makeReference } from "../reference.ts";
import type { Claim, Driver } from "../spi/driver.ts";
import type { Engine } from "./engine.ts";
import { inTime } from "./in-time.ts";
import type { Lock } from "./lock.ts";
import { LockHandle } from "./lock.ts";
import { lostError, named } from "./tenure.ts";
import { within } from "./within.ts";
import { wrapped } from "./wrap-error.ts";

/** What may be said of one detach. */
export interface DetachOptions {
  /**
   * How long the lock stays held from now on unless it is attached, which restarts its full lease. At most the lock's own
   * ttl, which is the default.
   */
  readonly ttl?: Duration | undefined;
}

/** How often a store that does not answer is asked to shorten a lease. */
const AGAIN_MS = 100;

/** See Lock.detach(). */
export async function detach(lock: LockHandle, options: DetachOptions = {}): Promise<string> {
  const { keys, tenures } = lock;
  const leftMs = leftOf(options, lock);
  lock.throwIfLost();
  const { engine } = tenures[0].lane.host;
  for (const { tracked, handles, contexts } of tenures) {
    const why = whyNot(engine.driver, tracked.claim.ttlMs, handles, contexts);
    if (why !== null) throw new UnsupportedError(`cannot detach ${named(keys)}: ${why}`, { keys });
  }
  const claims = tenures.map(({ tracked }) => tracked.claim);
  // the store may have lengthened the lease although its answer was lost: a release is repeated for as long
  for (const { tracked } of tenures) {
    tracked.lastSentAt = engine.clock.now();
    tracked.isShortened = leftMs !== undefined;
  }
  let there: readonly boolean[];
  try {
    there =
      leftMs === undefined
        ? await inTime(engine, lock.remainingMs, () => letGo(engine.driver, claims))
        : await shortened(engine, claims, leftMs, lock.remainingMs);
  } catch (error) {
    // the store may have shortened the lease although its answer was lost: nothing here may rely on it any more
    if (leftMs !== undefined) lock.letGo(lostError("unknown", keys));
    throw wrapped(error, `could not detach ${named(keys)}`, keys);
  }
  if (there.includes(false)) throw lostError("unknown", keys);
  if (leftMs === undefined) lock.throwIfLost();
  const reference = referenceOf(lock);
  const message = `the lock on ${named(keys)} was detached: it is held by whoever has the reference`;
  lock.letGo(new LockLostError(message, "released", { keys }));
  return reference;
}

/** A lock's reference without detaching it: for the command line, which gives it to its child. A secret. */
export function referenceOf(lock: Lock): string {
  if (!(lock instanceof LockHandle)) throw new TypeError("lock must come from acquire()");
  const { prefix } = lock.tenures[0].lane.host.settings;
  return makeReference(
    lock.tenures.map(({ tracked, token }) => {
      const run = tracked.state.at === "held" ? tracked.state.token : token;
      return { claim: tracked.claim, run, token, prefix };
    }),
  );
}

/** @throws TypeError naming the option */
function leftOf(options: unknown, { tenures }: LockHandle): number | undefined {
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    throw new TypeError(`options of detach must be an object, not ${shown(options)}`);
  }
  const { ttl, ...unknown } = options as DetachOptions;
  const [name] = Object.keys(unknown);
  if (name !== undefined) throw new TypeError(`detach has no option ${shown(name)}`);
  if (ttl === undefined) return undefined;
  const leftMs = durationMs(ttl, "ttl", 1);
  for (const { tracked } of tenures) {
    const { ttlMs } = tracked.claim;
    if (ttlMs === "session" || leftMs <= ttlMs) continue;
    throw new TypeError(`ttl must be at most the lock's own of ${shownDuration(ttlMs)}, not ${shown(ttl)}`);
  }
  return leftMs;
}

/**
 * Detaches with so much of the lease left, counted from now. Asked again until it is known: meanwhile nothing is believed
 * longer than the store holds it, whichever of the calls it has heard.
 */
async function shortened(
  engine: Engine,
  claims: readonly Claim[],
  leftMs: number,
  remainingMs: number,
): Promise<readonly boolean[]> {
  const start = engine.clock.now();
  const patienceMs = Math.min(leftMs, remainingMs);
  for (;;) {
    const passedMs = engine.clock.now() - start;
    try {
      const call = (): Promise<readonly boolean[]> =>
        letGo(engine.driver, claims, Math.max(Math.ceil(leftMs - passedMs), 1));
      return await inTime(engine, patienceMs - passedMs, call);
    } catch (error) {
      if (isFatal(error) || engine.clock.now() - start + AGAIN_MS >= patienceMs) throw error;
      await within(engine, AGAIN_MS, new Promise<void>(() => undefined), () => undefined);
    }
  }
}

/** Where claims belong to no session a full lease is all there is to give. */
async function letGo(driver: Driver, claims: readonly Claim[], leftMs?: number): Promise<readonly boolean[]> {
  if (driver.detach !== undefined) return driver.detach(claims, leftMs);
  const answers = await driver.renew(claims);
  return answers.map((answer) => {
    // unknown is not lost
    if (answer === undefined) throw new Error(`${driver.name}: no answer for this claim`);
    return answer.state === "held";
  });
}

function whyNot(driver: Driver, ttl: number | "session", handles: number, contexts: number): string | null {
  if (!driver.traits.lease.claim) return `${driver.name} has no lease of one lock: all end with the client's session`;
  if (ttl === "session") return 'a "session" lease ends with its session';
  if (contexts > 0) return "it is held by using() or run()";
  return handles > 1 ? "another request has joined it" : null;
}

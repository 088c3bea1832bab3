/** Lets a lock travel (design A.23); loaded when one does. */

import { UnsupportedError } from "../errors.ts";
import { makeReference } from "../reference.ts";
import type { Claim, Driver } from "../spi/driver.ts";
import { inTime } from "./in-time.ts";
import type { Lock } from "./lock.ts";
import { LockHandle } from "./lock.ts";
import { lostError, named } from "./tenure.ts";
import { wrapped } from "./wrap-error.ts";

/** See Lock.detach(). */
export async function detach(lock: LockHandle): Promise<string> {
  const { keys, tenures } = lock;
  lock.throwIfLost();
  const { engine } = tenures[0].lane.host;
  for (const { tracked, handles, contexts } of tenures) {
    const why = whyNot(tracked.claim.ttlMs, handles, contexts);
    if (why !== null) throw new UnsupportedError(`cannot detach ${named(keys)}: ${why}`, { keys });
  }
  const claims = tenures.map(({ tracked }) => tracked.claim);
  // the store may have lengthened the lease although its answer was lost: a release is repeated for as long
  for (const { tracked } of tenures) tracked.lastSentAt = engine.clock.now();
  let there: readonly boolean[];
  try {
    there = await inTime(engine, lock.remainingMs, () => letGo(engine.driver, claims));
  } catch (error) {
    throw wrapped(error, `could not detach ${named(keys)}`, keys);
  }
  if (there.includes(false)) throw lostError("unknown", keys);
  lock.throwIfLost();
  const reference = referenceOf(lock);
  lock.letGo();
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

/** Where claims belong to no session a full lease is all there is to give. */
async function letGo(driver: Driver, claims: readonly Claim[]): Promise<readonly boolean[]> {
  if (driver.detach !== undefined) return driver.detach(claims);
  const answers = await driver.renew(claims);
  return answers.map((answer) => {
    // unknown is not lost
    if (answer === undefined) throw new Error(`${driver.name}: no answer for this claim`);
    return answer.state === "held";
  });
}

function whyNot(ttl: number | "session", handles: number, contexts: number): string | null {
  if (ttl === "session") return 'a "session" lease ends with its session';
  if (contexts > 0) return "it is held by using() or run()";
  return handles > 1 ? "another request has joined it" : null;
}

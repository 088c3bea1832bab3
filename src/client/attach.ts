/** Takes up detached locks (design A.23). */

import type { LostReason } from "../errors.ts";
import { LockLostError } from "../errors.ts";
import type { Acquirer } from "./acquire.ts";
import { KeyLane } from "./key-lane.ts";
import type { Lock } from "./lock.ts";
import { LockHandle } from "./lock.ts";
import type { Referenced } from "./reference.ts";
import { readReference } from "./reference.ts";
import { lostError, named, Tenure } from "./tenure.ts";
import type { ClaimOwner, Tracked } from "./tracked.ts";
import { wrapped } from "./wrap-error.ts";

/**
 * The lock of a reference, if the store confirms that it is still held.
 * @throws TypeError for a damaged reference; LockLostError with the reason; DriverError if the store did not answer
 */
export async function attach(acquirer: Acquirer, reference: unknown): Promise<Lock> {
  const parts = readReference(reference);
  const settled = await Promise.allSettled(parts.map((part) => attachPart(acquirer, part)));
  const tenures: Tenure[] = [];
  for (const result of settled) if (result.status === "fulfilled") tenures.push(result.value);
  const failure = settled.find((result) => result.status === "rejected");
  if (failure !== undefined) {
    // nothing is given back here: who holds the reference may try again
    for (const tenure of tenures) tenure.lane.letGo(tenure);
    throw failure.reason;
  }
  const keys = tenures.flatMap(({ target }) => target.keys);
  return new LockHandle(tenures as [Tenure, ...Tenure[]], keys, acquirer.context);
}

function attachPart({ host }: Acquirer, { claim, run, token, prefix }: Referenced): Promise<Tenure> {
  const keys = claim.holds.map(({ key }) => key.slice(prefix.length));
  const target = { holds: claim.holds, keys };
  const lane = new KeyLane(host, target, claim.ttlMs, null);
  return new Promise((resolve, reject) => {
    let tracked: Tracked | null = null;
    const settle = (tenure: Tenure): void => {
      lane.takeUp(tenure);
      resolve(tenure);
    };
    const owner = new Adopter(
      lane,
      () => settle(new Tenure(lane, tracked as Tracked, target, token, host.engine.clock.now())),
      (reason) => {
        const error = (tracked as Tracked).error;
        if (tracked !== null) host.engine.forget(tracked);
        reject(
          reason === "expired" && error !== null
            ? wrapped(error, `could not ask for ${named(keys)}`, keys)
            : gone(reason, keys),
        );
      },
    );
    tracked = host.engine.adopt(claim, host.termsOf(claim.ttlMs, true), owner, run, 1);
  });
}

function gone(reason: LostReason, keys: readonly string[]): LockLostError {
  if (reason !== "unknown") return lostError(reason, keys);
  const message = `no such lock on ${named(keys)}: it was released, or its lease ended long ago`;
  return new LockLostError(message, reason, { keys });
}

/** Hears of an adopted claim: first whether it is ours, then, like a lane, how it fares. */
class Adopter implements ClaimOwner {
  readonly lane: KeyLane;
  readonly #confirmed: () => void;
  readonly #gone: (reason: LostReason) => void;
  #isOurs = false;

  constructor(lane: KeyLane, confirmed: () => void, gone: (reason: LostReason) => void) {
    this.lane = lane;
    this.#confirmed = confirmed;
    this.#gone = gone;
  }

  unsure(on: boolean): void {
    if (this.#isOurs) return this.lane.unsure(on);
    if (on) return;
    this.#isOurs = true;
    this.#confirmed();
  }

  lost(reason: LostReason): void {
    if (this.#isOurs) this.lane.lost(reason);
    else this.#gone(reason);
  }

  // an adopted claim begins as held: it is never granted, refused, or over without being lost
  granted(): void {}
  refused(): void {}
  expired(): void {}
  rejected(): void {}
  waits(): void {}
}

/** A claim made elsewhere while it is being taken up (design A.23): ours once the store has confirmed it. */

import { LockLostError } from "../errors.ts";
import type { Referenced } from "../reference.ts";
import type { LostReason } from "../spi/driver.ts";
import { KeyLane } from "./key-lane.ts";
import type { LaneHost } from "./lane-host.ts";
import { lostError, named, Tenure } from "./tenure.ts";
import type { Tracked } from "./tracked.ts";
import { wrapped } from "./wrap-error.ts";

export class Adoption {
  readonly tracked: Tracked;
  /** @throws (rejects) LockLostError with the reason; DriverError if the store did not answer for as long as the lease */
  readonly settled: Promise<Tenure>;
  readonly #lane: KeyLane;
  readonly #token: bigint;
  #resolve!: (tenure: Tenure) => void;
  #reject!: (error: unknown) => void;

  constructor(host: LaneHost, { claim, run, token, prefix }: Referenced) {
    const keys = claim.holds.map(({ key }) => key.slice(prefix.length));
    this.#lane = new KeyLane(host, { holds: claim.holds, keys }, claim.ttlMs, null);
    this.#token = token;
    this.settled = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.tracked = host.engine.adopt(claim, host.termsOf(claim.ttlMs, true), this.#lane, run, 1);
    this.#lane.adopt(this);
  }

  confirmed(): void {
    const lane = this.#lane;
    const tenure = new Tenure(lane, this.tracked, lane.target, this.#token, lane.host.engine.clock.now());
    lane.adopted(tenure);
    lane.host.witness.saw(lane.target.holds, this.#token);
    this.#resolve(tenure);
  }

  lost(reason: LostReason): void {
    const { keys } = this.#lane.target;
    const { error } = this.tracked;
    const silent = reason === "expired" && error !== null;
    this.refused(silent ? wrapped(error, `could not ask for ${named(keys)}`, keys) : gone(reason, keys));
  }

  /** Nothing is released: whoever has the reference may try again. */
  refused(error: unknown): void {
    this.#lane.adopted(null);
    this.#lane.host.engine.forget(this.tracked);
    this.#reject(error);
  }
}

function gone(reason: LostReason, keys: readonly string[]): LockLostError {
  if (reason !== "unknown") return lostError(reason, keys);
  const message = `no such lock on ${named(keys)}: it was released, or its lease ended long ago`;
  return new LockLostError(message, reason, { keys });
}

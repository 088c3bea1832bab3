/** Takes up detached locks (design A.23). */

import { UnsupportedError } from "../errors.ts";
import { readReference } from "../read-reference.ts";
import type { Acquirer } from "./acquire.ts";
import { Adoption } from "./adoption.ts";
import type { Lock } from "./lock.ts";
import { LockHandle } from "./lock.ts";
import type { Tenure } from "./tenure.ts";
import { named } from "./tenure.ts";

/**
 * The lock of a reference, if the store confirms that it is still held.
 * @throws TypeError for a damaged reference; UnsupportedError if this client has it already; LockLostError with the
 * reason; DriverError if the store did not answer
 */
export async function attach(acquirer: Acquirer, reference: unknown): Promise<Lock> {
  const parts = readReference(reference);
  const { engine } = acquirer.host;
  for (const { claim, prefix } of parts) {
    // two that run one claim would be told of its end by turns
    if (!engine.all().some((tracked) => tracked.claim.id === claim.id)) continue;
    const keys = claim.holds.map(({ key }) => key.slice(prefix.length));
    throw new UnsupportedError(`this client has taken up ${named(keys)} already`, { keys });
  }
  const settled = await Promise.allSettled(parts.map((part) => new Adoption(acquirer.host, part).settled));
  const tenures: Tenure[] = [];
  for (const result of settled) if (result.status === "fulfilled") tenures.push(result.value);
  const failure = settled.find((result) => result.status === "rejected");
  if (failure !== undefined) {
    // nothing is given back here: who holds the reference may try again
    for (const tenure of tenures) tenure.lane.letGo(tenure);
    throw failure.reason;
  }
  const lost = tenures.find(({ isHeld }) => !isHeld);
  if (lost !== undefined) {
    // while another part was asked about
    for (const tenure of tenures) if (tenure !== lost) tenure.lane.letGo(tenure);
    throw lost.lostError();
  }
  const keys = tenures.flatMap(({ target }) => target.keys);
  return new LockHandle(tenures as [Tenure, ...Tenure[]], keys, acquirer.context);
}

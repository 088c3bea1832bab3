/** Takes up detached locks (design A.23). */

import { readReference } from "../read-reference.ts";
import type { Acquirer } from "./acquire.ts";
import { Adoption } from "./adoption.ts";
import type { Lock } from "./lock.ts";
import { LockHandle } from "./lock.ts";
import type { Tenure } from "./tenure.ts";

/**
 * The lock of a reference, if the store confirms that it is still held.
 * @throws TypeError for a damaged reference; LockLostError with the reason; DriverError if the store did not answer
 */
export async function attach(acquirer: Acquirer, reference: unknown): Promise<Lock> {
  const parts = readReference(reference);
  const settled = await Promise.allSettled(parts.map((part) => new Adoption(acquirer.host, part).settled));
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

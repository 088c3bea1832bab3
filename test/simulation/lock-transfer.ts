/** A lock transfer: detached by one client, attached by another. */

import { ClosedError, LockLostError, StoreError, UnsupportedError } from "../../src/errors.ts";
import type { LockSpec } from "../../src/spi/driver.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import type { HeldLock } from "./invariant-checker.ts";
import { LockUser } from "./workload.ts";

/** Detaches the lock, and another client attaches it. */
export async function transferLock(lockUser: LockUser, heldLock: HeldLock | null, random: SeededRandom): Promise<void> {
  if (heldLock === null) return;
  const { context, clientProcess, name } = lockUser;
  let reference: string;
  try {
    reference = await heldLock.lock.detach();
  } catch (error) {
    const expected = error instanceof LockLostError || error instanceof StoreError || error instanceof UnsupportedError;
    if (!expected) throw error;
    return lockUser.useLock(heldLock);
  }
  context.checker.recordEnd(heldLock);
  context.checker.recordDetach(reference);
  clientProcess.machine.note(`${name} detached ${heldLock.lock.keys.join(" ")}`);
  await lockUser.sleep(random.next() * context.scenario.ttlMs * 0.7);
  const next = context.pickClient();
  if (next === null) return;
  // in its own process: it may be killed while this one lives
  const nextUser = new LockUser(`${name}>${next.machine.name}`, next, context);
  void nextUser.runCounted(() => attachLock(nextUser, reference, heldLock.holds));
}

async function attachLock(lockUser: LockUser, reference: string, lockSpecs: readonly LockSpec[]): Promise<void> {
  const { clientProcess, context, name } = lockUser;
  try {
    const heldLock = lockUser.createHolding(await clientProcess.locks.attach(reference), lockSpecs);
    clientProcess.machine.note(`${name} took up ${heldLock.lock.keys.join(" ")}`);
    context.checker.recordAttach(heldLock);
    await lockUser.useLock(heldLock);
  } catch (error) {
    const expected = error instanceof LockLostError || error instanceof StoreError || error instanceof ClosedError;
    if (!expected) throw error;
    clientProcess.machine.note(`${name}: ${error.message}`);
  }
}

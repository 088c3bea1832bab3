/**
 * using(), and what is asked for again inside: it joins what the flow holds, at once and with the same token, and what
 * is held ends with its last handle, whichever that is.
 */

import {
  ClosedError,
  DeadlockError,
  LockLostError,
  LockTimeoutError,
  StoreError,
  StorePausedError,
} from "../../src/errors.ts";
import type { Lock } from "../../src/index.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import type { HeldLock } from "./invariant-checker.ts";
import type { LockRequest } from "./lock-requests.ts";
import { mutexRequest, readRequest } from "./lock-requests.ts";
import type { LockUser } from "./workload.ts";

/** What happens inside. */
type NestedAction = (lockUser: LockUser, heldLock: HeldLock, random: SeededRandom) => Promise<void>;

/** Holds the first key by using(). */
export async function runReentrant(lockUser: LockUser, random: SeededRandom): Promise<void> {
  const { clientProcess, context } = lockUser;
  const { keys, ttlMs } = context.scenario;
  const { locks, machine } = clientProcess;
  const key = keys[0] as string;
  const isReader = random.chance(0.3);
  const { lockable, holds } = isReader ? readRequest(locks, key) : mutexRequest(locks, key);
  const lease = lockUser.pickLease();
  const request = lockUser.beginRequest("uses", holds, "", lease);
  const nestedAction = random.pick<NestedAction>([
    joinAndRelease,
    joinAndRelease,
    joinAndKeep,
    (own, heldLock, chance) => (isReader ? attemptUpgrade(own, heldLock) : useNested(own, heldLock, chance)),
    acquireLastKey,
  ]);
  let finishRelease: ((was: boolean) => void) | null = null;
  let wasHeld = true;
  try {
    await lockable.using({ ttl: lease, wait: ttlMs * 3 }, async (lock) => {
      const heldLock = lockUser.recordHolding(lock, holds, request) as HeldLock;
      let kept = false;
      try {
        await lockUser.sleep(random.next() * ttlMs * 0.2);
        expectThat(lockUser, lock.remainingMs === 0 || locks.holds(key), "holds() is false inside");
        await nestedAction(lockUser, heldLock, random);
      } catch (error) {
        // a lock lost meanwhile cannot be joined
        if (!(error instanceof LockLostError) || lock.remainingMs > 0) throw error;
        machine.note(`${lockUser.name}: ${error.message}`);
      } finally {
        kept = keptHoldings.has(heldLock);
        if (kept) context.checker.recordEnd(heldLock);
        else finishRelease = lockUser.beginRelease(heldLock);
      }
    });
  } catch (error) {
    const expected =
      error instanceof LockLostError ||
      error instanceof LockTimeoutError ||
      error instanceof StoreError ||
      error instanceof ClosedError;
    if (!expected) throw error;
    machine.note(`${lockUser.name}: ${error.message}`);
    wasHeld = false;
  }
  expectThat(lockUser, !locks.holds(key), "holds() is true outside");
  (finishRelease as ((wasHeld: boolean) => void) | null)?.(wasHeld);
}

/** Holds that continue with another handle when their first one is released. */
const keptHoldings = new WeakSet<HeldLock>();

/** Requests again what it holds. */
async function reacquire(lockUser: LockUser, { lockable }: LockRequest, { lock, holds }: HeldLock): Promise<Lock> {
  const { machine } = lockUser.clientProcess;
  const startedAt = machine.now;
  const innerLock = await lockable.acquire({ wait: 0 });
  expectThat(lockUser, machine.now === startedAt, "a request that joins had to wait");
  for (const { key } of holds)
    expectThat(lockUser, innerLock.tokenOf(key) === lock.tokenOf(key), "joined with another token");
  return innerLock;
}

const joinAndRelease: NestedAction = async (lockUser, heldLock, random) => {
  const { locks } = lockUser.clientProcess;
  const key = (heldLock.holds[0] as { readonly key: string }).key;
  const request = heldLock.holds[0]?.permits === 1 ? readRequest(locks, key) : mutexRequest(locks, key);
  const innerLock = await reacquire(lockUser, request, heldLock);
  await lockUser.sleep(random.next() * lockUser.context.scenario.ttlMs * 0.3);
  const wasBelievedHeld = heldLock.lock.remainingMs > 0;
  const wasHeld = await innerLock.release();
  expectThat(
    lockUser,
    !wasBelievedHeld || wasHeld || lockUser.clientProcess.isClosing,
    "release() of a joined lock said false while the outer one stands",
  );
};

/** The joined lock outlives the body: it is held until that is released, too. */
const joinAndKeep: NestedAction = async (lockUser, heldLock, random) => {
  const { locks, machine } = lockUser.clientProcess;
  const key = (heldLock.holds[0] as { readonly key: string }).key;
  const request = heldLock.holds[0]?.permits === 1 ? readRequest(locks, key) : mutexRequest(locks, key);
  const lock = await reacquire(lockUser, request, heldLock);
  const joinedLock: HeldLock = { ...heldLock, name: `${heldLock.name}+`, lock };
  keptHoldings.add(heldLock);
  machine.note(`${lockUser.name} keeps ${key} beyond the body`);
  void lockUser.runCounted(async () => {
    // after the body's end, which comes in this turn
    await lockUser.sleep(0);
    lockUser.context.checker.recordAttach(joinedLock);
    await lockUser.sleep(random.next() * lockUser.context.scenario.ttlMs * 0.5);
    await lockUser.release(joinedLock);
  });
};

/** Inside reading, writing could only wait for itself. */
async function attemptUpgrade(lockUser: LockUser, { holds }: HeldLock): Promise<void> {
  const { locks } = lockUser.clientProcess;
  try {
    await locks.mutex((holds[0] as { readonly key: string }).key).acquire();
    expectThat(lockUser, false, "a reader's flow was granted the writer's lock");
  } catch (error) {
    if (!(error instanceof DeadlockError || error instanceof ClosedError)) throw error;
  }
}

/** Reading inside writing, by using() again. */
const useNested: NestedAction = async (lockUser, { lock, holds }, random) => {
  const { locks } = lockUser.clientProcess;
  const key = (holds[0] as { readonly key: string }).key;
  await locks.rw(key).read.using(async (inner) => {
    expectThat(lockUser, inner.tokenOf(key) === lock.tokenOf(key), "joined with another token");
    await lockUser.sleep(random.next() * lockUser.context.scenario.ttlMs * 0.3);
  });
};

/** Both keys together: one is joined, the other claimed. */
const acquireLastKey: NestedAction = async (lockUser, { holds }, random) => {
  const { locks } = lockUser.clientProcess;
  const { keys, ttlMs } = lockUser.context.scenario;
  const [first, last] = [keys[0], keys.at(-1)] as [string, string];
  if (first === last || holds[0]?.permits === 1) return;
  const { lockable, holds: innerSpecs } = mutexRequest(locks, last);
  const request = lockUser.beginRequest("also asks for", innerSpecs, "", ttlMs);
  const wait = random.pick([0, ttlMs, ttlMs * 3]);
  try {
    const lock = await locks.all(first, lockable).acquire({ wait });
    const heldLock = lockUser.recordHolding(lock, innerSpecs, request) as HeldLock;
    await lockUser.sleep(random.next() * ttlMs * 0.2);
    await lockUser.release(heldLock);
  } catch (error) {
    const expected = error instanceof LockTimeoutError || error instanceof StoreError || error instanceof ClosedError;
    const isPaused = error instanceof StorePausedError && wait === 0;
    if (!(expected || isPaused)) throw error;
    lockUser.clientProcess.machine.note(`${lockUser.name}: ${error.message}`);
  }
};

function expectThat(lockUser: LockUser, holds: boolean, message: string): void {
  if (!holds) lockUser.clientProcess.machine.events.fail(`${lockUser.name}: ${message}`);
}

/**
 * The acquire path: async context, local queue, engine, lock. Every primitive goes through it.
 */

import { DeadlockError, DriverError, LockTimeoutError } from "../errors.ts";
import { formatDuration } from "../util/duration.ts";
import type { LocalHold } from "./local-hold.ts";
import { formatKeys, lockLostError } from "./local-hold.ts";
import type { LocalQueues } from "./local-queues.ts";
import { LockHandle } from "./lock.ts";
import { resolveNesting } from "./lock-spec.ts";
import type { LockTarget } from "./lock-target.ts";
import { checkSupported } from "./lock-target.ts";
import type { AcquireSettings } from "./options.ts";
import type { FlowHolds } from "./reentrancy.ts";

export class Acquirer {
  readonly queues: LocalQueues;
  readonly flowHolds: FlowHolds;
  readonly #createHandle = (localHold: LocalHold): LockHandle =>
    new LockHandle([localHold], localHold.target.keys, this.flowHolds);

  constructor(queues: LocalQueues, flowHolds: FlowHolds) {
    this.queues = queues;
    this.flowHolds = flowHolds;
  }

  /** Returns the lock, or null if `isTry` and it was busy. Throws errors known before anything is sent, rejects with others. */
  acquire(target: LockTarget, settings: AcquireSettings, isTry: boolean): Promise<LockHandle | null> {
    const { driver } = this.queues.engine;
    checkSupported(target, driver.traits, driver.name);
    settings.signal?.throwIfAborted();
    if (this.flowHolds.isEmpty && (driver.traits.manyKeys || target.locks.length === 1)) {
      return this.queues.acquire(target, settings, isTry, this.#createHandle);
    }
    return this.#acquireInParts(target, settings, isTry);
  }

  /**
   * Joins the locks that this flow holds and claims the other keys: in one claim if the store supports that, else one key
   * after another. A key may be lost while the acquire waits for another one: then it releases all keys and starts over.
   */
  async #acquireInParts(target: LockTarget, settings: AcquireSettings, isTry: boolean): Promise<LockHandle | null> {
    const joinedByKey = this.#findJoined(target);
    const parts = splitParts(target, joinedByKey, this.queues.engine.driver.traits.manyKeys);
    const joinedHolds = [...new Set(joinedByKey.values())];
    const startedAt = this.queues.engine.clock.now();
    // before the first await: otherwise the outer holder could release the lock while this request waits
    for (const localHold of joinedHolds) localHold.refCount++;
    try {
      for (;;) {
        const acquired = await this.#acquireParts(parts, settings, startedAt + settings.waitMs, isTry);
        if (acquired === null) {
          await releaseAll(joinedHolds);
          return null;
        }
        const localHolds = [...joinedHolds, ...acquired];
        if (localHolds.every(({ isHeld }) => isHeld))
          return new LockHandle(localHolds as [LocalHold], target.keys, this.flowHolds);
        await releaseAll(acquired);
        for (const localHold of joinedHolds) if (!localHold.isHeld) throw localHold.toLostError();
        this.#checkDeadline(target, settings, startedAt);
      }
    } catch (error) {
      await releaseAll(joinedHolds);
      throw error;
    }
  }

  /** Acquires one local hold per part; null if `isTry` and a part was busy. */
  async #acquireParts(
    parts: readonly LockTarget[],
    settings: AcquireSettings,
    deadline: number,
    isTry: boolean,
  ): Promise<LocalHold[] | null> {
    const { clock } = this.queues.engine;
    const localHolds: LocalHold[] = [];
    try {
      for (const part of parts) {
        // a signal that is already aborted fires no event any more
        settings.signal?.throwIfAborted();
        // all parts share one deadline; 0 would mean "do not wait", so a part that starts late still gets one try
        const waitMs = settings.waitMs === 0 ? 0 : Math.max(deadline - clock.now(), 1);
        const localHold = await this.queues.acquire(part, { ...settings, waitMs }, isTry, (granted) => granted);
        if (localHold === null) {
          await releaseAll(localHolds);
          return null;
        }
        localHolds.push(localHold);
      }
      return localHolds;
    } catch (error) {
      await releaseAll(localHolds);
      throw error;
    }
  }

  /** Called when a key was lost before all were held. @throws LockTimeoutError, DriverError if no time is left to retry */
  #checkDeadline({ keys }: LockTarget, { waitMs }: AcquireSettings, startedAt: number): void {
    const { clock, driver } = this.queues.engine;
    if (waitMs === 0) throw new DriverError(`${driver.name} answered too late for ${formatKeys(keys)}`, { keys });
    const waitedMs = clock.now() - startedAt;
    if (waitedMs < waitMs) return;
    const waited = `waited ${formatDuration(waitedMs)} for ${formatKeys(keys)}`;
    throw new LockTimeoutError(`${waited}: some locks were lost while waiting for the others`, {}, { keys });
  }

  /** Finds the local holds of this flow that the request can join, by key. @throws DeadlockError, LockLostError */
  #findJoined(target: LockTarget): Map<string, LocalHold> {
    const joinedByKey = new Map<string, LocalHold>();
    const { reentrant } = this.queues.settings;
    for (const [index, spec] of target.locks.entries()) {
      const heldByFlow = this.flowHolds.find(spec.key);
      if (heldByFlow.length === 0) continue;
      const nesting = resolveNesting(
        heldByFlow.map((flowHold) => flowHold.spec),
        spec,
        reentrant,
      );
      if (nesting === "deadlock") {
        const key = target.keys[index] as string;
        throw new DeadlockError(
          `deadlock: this async flow already holds ${formatKeys([key])} and would wait for itself; acquire the stronger lock first`,
          { keys: [key] },
        );
      }
      if (nesting === "beside") continue;
      const servingHold = heldByFlow.find(
        (flowHold) => flowHold.spec.limit === spec.limit && flowHold.spec.permits >= spec.permits,
      );
      const localHold = (servingHold as (typeof heldByFlow)[number]).localHold;
      if (localHold.lostReason !== null) throw lockLostError(localHold.lostReason, localHold.target.keys);
      joinedByKey.set(spec.key, localHold);
    }
    return joinedByKey;
  }
}

function splitParts(target: LockTarget, joinedByKey: ReadonlyMap<string, LocalHold>, manyKeys: boolean): LockTarget[] {
  const parts: LockTarget[] = [];
  for (const [index, spec] of target.locks.entries()) {
    if (!joinedByKey.has(spec.key)) parts.push({ locks: [spec], keys: [target.keys[index] as string] });
  }
  const [first, ...rest] = parts;
  if (!manyKeys || first === undefined) return parts;
  return [{ locks: [first.locks[0], ...rest.map(({ locks }) => locks[0])], keys: parts.flatMap(({ keys }) => keys) }];
}

async function releaseAll(localHolds: readonly LocalHold[]): Promise<void> {
  await Promise.all(localHolds.map(async (localHold) => localHold.release()));
}

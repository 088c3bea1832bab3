/**
 * THE acquire path: context, lane, engine, lock. Every primitive goes through it.
 */

import { relation } from "../core/holds.ts";
import { shownDuration } from "../duration.ts";
import { DeadlockError, DriverError, LockTimeoutError } from "../errors.ts";
import type { Context } from "./context.ts";
import type { LaneHost } from "./lane-host.ts";
import { LockHandle } from "./lock.ts";
import type { Wish } from "./options.ts";
import type { Target } from "./target.ts";
import { checkSupported } from "./target.ts";
import type { Tenure } from "./tenure.ts";
import { lostError, named } from "./tenure.ts";

export class Acquirer {
  readonly host: LaneHost;
  readonly context: Context;
  readonly #handle = (tenure: Tenure): LockHandle => new LockHandle([tenure], tenure.target.keys, this.context);

  constructor(host: LaneHost, context: Context) {
    this.host = host;
    this.context = context;
  }

  /** The lock, or null if `quiet` and it was busy. Throws what can be said at once, rejects with the rest. */
  acquire(target: Target, wish: Wish, quiet: boolean): Promise<LockHandle | null> {
    const { driver } = this.host.engine;
    checkSupported(target, driver.traits, driver.name);
    wish.signal?.throwIfAborted();
    if (this.context.isEmpty && (driver.traits.manyKeys || target.holds.length === 1)) {
      return this.host.request(target, wish, quiet, this.#handle);
    }
    return this.#inParts(target, wish, quiet);
  }

  /**
   * Joins what this flow holds and claims the rest: together where the store can, else one key after another. A key may be
   * lost again while another is waited for: then all are given back and asked for again.
   */
  async #inParts(target: Target, wish: Wish, quiet: boolean): Promise<LockHandle | null> {
    const joined = this.#joined(target);
    const parts = partsOf(target, joined, this.host.engine.driver.traits.manyKeys);
    const outer = [...new Set(joined.values())];
    const startedAt = this.host.engine.clock.now();
    // joined before anything is waited for: the outer holder must not be the last to let go meanwhile
    for (const tenure of outer) tenure.handles++;
    try {
      for (;;) {
        const own = await this.#collect(parts, wish, startedAt + wish.waitMs, quiet);
        if (own === null) {
          await giveUp(outer);
          return null;
        }
        const tenures = [...outer, ...own];
        if (tenures.every(({ isHeld }) => isHeld))
          return new LockHandle(tenures as [Tenure], target.keys, this.context);
        await giveUp(own);
        for (const tenure of outer) if (!tenure.isHeld) throw tenure.lostError();
        this.#checkTime(target, wish, startedAt);
      }
    } catch (error) {
      await giveUp(outer);
      throw error;
    }
  }

  /** One tenure for each part, or null if `quiet` and one was not free. */
  async #collect(parts: readonly Target[], wish: Wish, until: number, quiet: boolean): Promise<Tenure[] | null> {
    const { clock } = this.host.engine;
    const tenures: Tenure[] = [];
    try {
      for (const part of parts) {
        // a signal that is aborted already tells nobody any more
        wish.signal?.throwIfAborted();
        // one deadline for all parts; what has run out still asks once
        const waitMs = wish.waitMs === 0 ? 0 : Math.max(until - clock.now(), 1);
        const tenure = await this.host.request(part, { ...wish, waitMs }, quiet, (granted) => granted);
        if (tenure === null) {
          await giveUp(tenures);
          return null;
        }
        tenures.push(tenure);
      }
      return tenures;
    } catch (error) {
      await giveUp(tenures);
      throw error;
    }
  }

  /** Some of the keys were lost again before all were held. @throws LockTimeoutError, DriverError if there is no time left */
  #checkTime({ keys }: Target, { waitMs }: Wish, startedAt: number): void {
    const { clock, driver } = this.host.engine;
    if (waitMs === 0) throw new DriverError(`${driver.name} answered too late for ${named(keys)}`, { keys });
    const waitedMs = clock.now() - startedAt;
    if (waitedMs < waitMs) return;
    const waited = `waited ${shownDuration(waitedMs)} for ${named(keys)}`;
    throw new LockTimeoutError(`${waited}: some were lost again while others were waited for`, {}, { keys });
  }

  /** The tenures of this flow that serve some of the keys. @throws DeadlockError, LockLostError */
  #joined(target: Target): Map<string, Tenure> {
    const joined = new Map<string, Tenure>();
    const { reentrant } = this.host.settings;
    for (const [index, hold] of target.holds.entries()) {
      const held = this.context.held(hold.key);
      if (held.length === 0) continue;
      const how = relation(
        held.map((one) => one.hold),
        hold,
        reentrant,
      );
      if (how === "deadlock") {
        const key = target.keys[index] as string;
        throw new DeadlockError(
          `this flow holds ${named([key])} already and would wait for itself: take the wider lock first`,
          { keys: [key] },
        );
      }
      if (how === "beside") continue;
      const serving = held.find((one) => one.hold.limit === hold.limit && one.hold.permits >= hold.permits);
      const tenure = (serving as (typeof held)[number]).tenure;
      if (tenure.lostReason !== null) throw lostError(tenure.lostReason, tenure.target.keys);
      joined.set(hold.key, tenure);
    }
    return joined;
  }
}

function partsOf(target: Target, joined: ReadonlyMap<string, Tenure>, manyKeys: boolean): Target[] {
  const parts: Target[] = [];
  for (const [index, hold] of target.holds.entries()) {
    if (!joined.has(hold.key)) parts.push({ holds: [hold], keys: [target.keys[index] as string] });
  }
  const [first, ...rest] = parts;
  if (!manyKeys || first === undefined) return parts;
  return [{ holds: [first.holds[0], ...rest.map(({ holds }) => holds[0])], keys: parts.flatMap(({ keys }) => keys) }];
}

async function giveUp(tenures: readonly Tenure[]): Promise<void> {
  await Promise.all(tenures.map(async (tenure) => tenure.drop()));
}

/**
 * THE acquire path: context, lane, engine, lock. Every primitive goes through it.
 */

import { relation } from "../core/holds.ts";
import { DeadlockError } from "../errors.ts";
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

  /** Joins what this flow holds and claims the rest: together where the store can, else one key after another. */
  async #inParts(target: Target, wish: Wish, quiet: boolean): Promise<LockHandle | null> {
    const joined = this.#joined(target);
    const parts = partsOf(target, joined, this.host.engine.driver.traits.manyKeys);
    const tenures = [...new Set(joined.values())];
    const { clock } = this.host.engine;
    const until = clock.now() + wish.waitMs;
    // joined before anything is waited for: the outer holder must not be the last to let go meanwhile
    for (const tenure of tenures) tenure.handles++;
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
    } catch (error) {
      await giveUp(tenures);
      throw error;
    }
    return new LockHandle(tenures as [Tenure, ...Tenure[]], target.keys, this.context);
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
        throw new DeadlockError(`this flow holds ${named([key])} already and would wait for itself`, { keys: [key] });
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

/** Locks within one process: the lock table of a MemoryStore. The oracle compares the other drivers with this one. */

import { StoreRefusedError } from "../errors.ts";
import { listTable } from "../lock-table/listing.ts";
import type { Timestamps } from "../lock-table/table.ts";
import type { Claim, Driver, DriverEvents, Traits } from "../spi/driver.ts";
import { publicTag } from "../util/ids.ts";
import { runInMicrotask } from "../util/microtask.ts";
import { isObject, validateOptions } from "../util/validate.ts";
import type { MemoryStore, NotifyOwner } from "./memory-store.ts";
import { memoryStore, tableOf } from "./memory-store.ts";

export { type MemoryStore, memoryStore };

/** Options of the memory driver. */
export interface MemoryOptions {
  /** The store to use. Default: a new one, which no other driver shares. */
  readonly store?: MemoryStore;
}

const TRAITS: Traits = {
  lease: { claim: true },
  manyKeys: true,
  permits: "any",
  fencing: true,
  fifo: true,
  durability: "process",
  recall: "push",
};

/**
 * A driver that keeps its claims in this process. It costs no round trips; its claims end with the process.
 * A grant to a waiting claim, and a recall, are announced on the next turn of the microtask queue.
 * @throws TypeError naming the option that is wrong or unknown
 */
export function memory(options: MemoryOptions = {}): Driver {
  validateOptions("memory", options, {
    store: (value) => (isObject(value) && "table" in value ? null : "a memoryStore()"),
  });
  const store = options.store ?? memoryStore();
  const { clock } = store;
  const table = tableOf(store);
  let events: DriverEvents | null = null;
  const notifyOwner: NotifyOwner = (id, answer) => {
    runInMicrotask(() => {
      if (answer === "recalled") events?.recalled(id);
      else if (answer === "recheck") events?.recheck(id);
      else events?.pushed(id, answer);
    });
  };
  const readTime = (): Timestamps => ({ now: clock.now(), micros: Math.floor(clock.wall() * 1_000) });

  function deliverNotifications(): void {
    // owner is null for a detached claim
    for (const { id, owner, answer } of table.drainNotifications()) owner?.(id, answer);
  }

  return {
    name: "memory",

    async open(driverEvents) {
      events = driverEvents;
      return TRAITS;
    },

    async claim(claim: Claim) {
      const time = readTime();
      if (!table.acceptsFloor(claim, claim.floor, time.micros)) {
        throw new StoreRefusedError("memory: the token floor is more than a day ahead of this machine's clock");
      }
      const answer = table.claim(claim, { owner: notifyOwner }, time);
      deliverNotifications();
      return answer;
    },

    async renew(claims, tokenCounts) {
      const time = readTime();
      const answers = claims.map((claim, index) => table.renew(claim.id, notifyOwner, time, tokenCounts?.[index]));
      deliverNotifications();
      return answers;
    },

    async release(releases) {
      const time = readTime();
      const wasPresent = releases.map(({ claim, hasUnansweredClaim }) =>
        table.release(claim.id, time, hasUnansweredClaim ? claim.ttlMs : undefined),
      );
      deliverNotifications();
      return wasPresent;
    },

    async detach(claims, remainingMs) {
      const time = readTime();
      const wereHeld = claims.map(({ id }) => table.detach(id, time, remainingMs));
      deliverNotifications();
      return wereHeld;
    },

    async revoke(targets) {
      const time = readTime();
      const wasPresent = targets.map(({ key, token, now }) => table.revoke(key, Number(token), now, time));
      deliverNotifications();
      return wasPresent;
    },

    async list(query, options) {
      const time = readTime();
      table.advance(time);
      deliverNotifications();
      return listTable(table, publicTag, { query, ...options }, time.now);
    },

    async close() {
      events = null;
    },
  };
}

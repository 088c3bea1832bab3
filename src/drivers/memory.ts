/** Locks within one process: the lock table and a clock. The oracle compares the other drivers with this one. */

import { FatalDriverError } from "../errors.ts";
import { listTable } from "../lock-table/listing.ts";
import { LockTable } from "../lock-table/table.ts";
import type { Answer, Claim, ClaimId, Driver, DriverEvents, Traits } from "../spi/driver.ts";
import type { Clock } from "../util/clock.ts";
import { systemClock } from "../util/clock.ts";
import { publicTag } from "../util/ids.ts";
import { runInMicrotask } from "../util/microtask.ts";
import { isObject, validateOptions } from "../util/validate.ts";

/** A store that several memory drivers share, so that their claims exclude each other. */
export interface MemoryStore {
  /** Its lock table. Internal: may change. */
  readonly table: LockTable;
  /** The clock of its leases and tokens. */
  readonly clock: Clock;
}

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

/** Makes a store that several memory drivers of one process can share. */
export function memoryStore(clock: Clock = systemClock): MemoryStore {
  return { table: new LockTable(), clock };
}

/**
 * A driver that keeps its claims in this process. It costs no round trips; its claims end with the process.
 * A grant to a waiting claim, and a recall, are announced on the next turn of the microtask queue.
 * @throws TypeError naming the option that is wrong or unknown
 */
export function memory(options: MemoryOptions = {}): Driver {
  validateOptions("memory", options, {
    store: (value) => (isObject(value) && "table" in value ? null : "a memoryStore()"),
  });
  const { table, clock } = options.store ?? memoryStore();
  let events: DriverEvents | null = null;
  // each grant returns it as its owner: the table serves several drivers
  const notifyOwner = (id: ClaimId, answer: Answer | "recalled"): void => {
    runInMicrotask(() => (answer === "recalled" ? events?.recalled(id) : events?.answered(id, answer)));
  };
  const wallMicros = (): number => Math.floor(clock.wall() * 1_000);

  function deliverNotifications(): void {
    // owner is null for a detached claim
    for (const { id, owner, answer } of table.drainNotifications()) (owner as typeof notifyOwner | null)?.(id, answer);
  }

  return {
    name: "memory",

    async open(driverEvents) {
      events = driverEvents;
      return TRAITS;
    },

    async claim(claim: Claim) {
      const wall = wallMicros();
      if (!table.tokenIssuer.acceptsFloor(claim.floor, wall)) {
        throw new FatalDriverError("memory: the token floor is more than a day ahead of this machine's clock");
      }
      const answer = table.claim(claim, notifyOwner, clock.now(), wall);
      deliverNotifications();
      return answer;
    },

    async renew(claims, tokenCounts) {
      const wall = wallMicros();
      const answers = claims.map((claim, index) =>
        table.renew(claim.id, notifyOwner, clock.now(), wall, tokenCounts?.[index]),
      );
      deliverNotifications();
      return answers;
    },

    async release(releases) {
      const wall = wallMicros();
      const wasPresent = releases.map(({ claim, hasUnansweredClaim }) =>
        table.release(claim.id, clock.now(), wall, hasUnansweredClaim ? claim.ttlMs : undefined),
      );
      deliverNotifications();
      return wasPresent;
    },

    async detach(claims, leftMs) {
      const wall = wallMicros();
      return claims.map(({ id }) => table.detach(id, clock.now(), wall, leftMs));
    },

    async revoke(targets) {
      const wall = wallMicros();
      const wasPresent = targets.map(({ key, token, now }) => table.revoke(key, Number(token), now, clock.now(), wall));
      deliverNotifications();
      return wasPresent;
    },

    async list(query, options) {
      table.advance(clock.now(), wallMicros());
      deliverNotifications();
      return listTable(table, publicTag, { query, ...options }, clock.now());
    },

    async close() {
      events = null;
    },
  };
}

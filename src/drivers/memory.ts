/** Locks within one process: core/table and a clock. Also the oracle that other drivers are held to. */

import { checkOptions, isObject } from "../checks.ts";
import type { Clock } from "../clock.ts";
import { systemClock } from "../clock.ts";
import { listTable } from "../core/listing.ts";
import { Table } from "../core/table.ts";
import { FatalDriverError } from "../errors.ts";
import { tagOf } from "../ids.ts";
import type { Answer, Claim, ClaimId, Driver, Notify, Traits } from "../spi/driver.ts";

/** What several memory drivers share so that their claims meet. */
export interface MemoryStore {
  /** Its lock table. Internal: may change. */
  readonly table: Table;
  /** Leases end, and tokens rise, by this clock. */
  readonly clock: Clock;
}

/** What may be said of a memory driver. */
export interface MemoryOptions {
  /** The store to use; default: one of its own, which nobody else sees. */
  readonly store?: MemoryStore;
}

const TRAITS: Traits = {
  lease: { claim: true },
  manyKeys: true,
  permits: "any",
  fencing: true,
  fifo: true,
  survives: "process",
};

/** A store to be shared by several memory drivers of one process. */
export function memoryStore(clock: Clock = systemClock): MemoryStore {
  return { table: new Table(), clock };
}

/**
 * A driver that keeps its claims in this process. Costs no round trip; outlives nothing.
 * A grant to a waiting claim is announced on the next turn of the microtask queue.
 * @throws TypeError naming the option that is wrong, or none
 */
export function memory(options: MemoryOptions = {}): Driver {
  checkOptions("memory", options, {
    store: (value) => (isObject(value) && "table" in value ? null : "a memoryStore()"),
  });
  const { table, clock } = options.store ?? memoryStore();
  let notify: Notify = () => undefined;
  let isOpen = false;
  // grants carry it back as their owner: the table serves several drivers
  const announce = (id: ClaimId, answer: Answer): void => {
    queueMicrotask(() => {
      if (isOpen) notify(id, answer);
    });
  };
  const micros = (): number => Math.floor(clock.wall() * 1_000);

  function passOn(): void {
    // a detached claim has no owner
    for (const { id, owner, answer } of table.takeGrants()) (owner as typeof announce | null)?.(id, answer);
  }

  return {
    name: "memory",
    traits: TRAITS,

    async open(sink) {
      notify = sink;
      isOpen = true;
    },

    async claim(claim: Claim) {
      const wall = micros();
      if (!table.mint.reaches(claim.floor, wall)) {
        throw new FatalDriverError("memory: the token floor is more than a day ahead of this machine's clock");
      }
      const answer = table.claim(claim, announce, clock.now(), wall);
      passOn();
      return answer;
    },

    async renew(claims) {
      const wall = micros();
      const answers = claims.map((claim) => table.renew(claim.id, announce, clock.now(), wall));
      passOn();
      return answers;
    },

    async release(claims, unanswered) {
      const wall = micros();
      const there = claims.map(({ id, ttlMs }) =>
        table.release(id, clock.now(), wall, unanswered?.has(id) ? ttlMs : undefined),
      );
      passOn();
      return there;
    },

    async detach(claims, leftMs) {
      const wall = micros();
      return claims.map(({ id }) => table.detach(id, clock.now(), wall, leftMs));
    },

    async revoke(targets) {
      const wall = micros();
      const there = targets.map(({ key, token, now }) => table.revoke(key, Number(token), now, clock.now(), wall));
      passOn();
      return there;
    },

    async list(filter, max, after) {
      table.advance(clock.now(), micros());
      passOn();
      return listTable(table, tagOf, { filter, max, ...(after !== undefined && { after }) }, clock.now());
    },

    async close() {
      isOpen = false;
      notify = () => undefined;
    },
  };
}

/** Claims that may be held only for so long (`maxHold`, design A.25), by when their time is over. */

import type { Entry } from "../core/entry.ts";
import { Schedule } from "../core/schedule.ts";
import type { Table } from "../core/table.ts";
import type { Principal } from "./access.ts";

class Outstay {
  readonly entry: Entry;
  dueAt = 0;
  heapIndex = -1;
  constructor(entry: Entry) {
    this.entry = entry;
  }
}

export class Outstays {
  readonly #due = new Schedule<Outstay>();

  /** It has been granted to somebody whose rules may bound it. Nothing happens if that is known already. */
  granted(entry: Entry, principal: Principal, now: number): void {
    if (entry.outstay !== null) return;
    const most = principal.maxHoldMs(keysOf(entry));
    if (most !== Number.POSITIVE_INFINITY) this.until(entry, now + most);
  }

  until(entry: Entry, at: number): void {
    const outstay = new Outstay(entry);
    entry.outstay = outstay;
    this.#due.set(outstay, at);
  }

  /** It is gone. */
  forget(entry: Entry): void {
    if (entry.outstay !== null) this.#due.remove(entry.outstay as Outstay);
    entry.outstay = null;
  }

  next(): number {
    return this.#due.next() ?? Number.POSITIVE_INFINITY;
  }

  /** Revokes those whose time is over. */
  advance(table: Table, now: number, micros: number): void {
    for (let due = this.#due.takeDue(now); due !== null; due = this.#due.takeDue(now)) {
      // it keeps the mark, so that it is not bounded again
      table.outstayed(due.entry, now, micros);
    }
  }
}

function* keysOf({ claim }: Entry): Generator<string> {
  for (const { key } of claim.holds) yield key;
}

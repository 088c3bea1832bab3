/**
 * Lists of the keeper's table, made a little at a time: however many keys there are and however many ask, the server is
 * never at them for more than `listMs`, and then serves others for as long.
 */

import type { Clock } from "../clock.ts";
import type { Entry } from "../core/entry.ts";
import { listing, viewOf } from "../core/listing.ts";
import type { Table } from "../core/table.ts";
import { tagOf } from "../ids.ts";
import type { ListFilter } from "../spi/driver.ts";
import type { Principal } from "./access.ts";
import { ANYBODY } from "./access.ts";
import type { Page, Soon } from "./backend.ts";
import { cutPage, Refusal } from "./backend.ts";

/** Ends of pages remembered, so that the next one need not be looked for. */
const MOST_CURSORS = 1_000;
/** Lists that wait, of all clients. */
const MOST_WAITING = 1_000;

interface Job {
  readonly steps: Generator<void, Entry[], void>;
  readonly finish: (entries: readonly Entry[]) => Page;
  readonly resolve: (page: Page) => void;
  /** What is to be told, found; null: not yet. */
  entries: readonly Entry[] | null;
}

export class Lister {
  readonly #table: Table;
  readonly #clock: Clock;
  readonly #listMs: number;
  readonly #jobs: Job[] = [];
  readonly #cursors = new Map<string, Entry>();
  #restUntil = 0;

  constructor(table: Table, clock: Clock, listMs: number) {
    this.#table = table;
    this.#clock = clock;
    this.#listMs = listMs;
  }

  /** At once if it takes no long time and no other waits. @throws Refusal if too many wait */
  list(principal: Principal, filter: ListFilter, max: number, after: string | undefined): Soon<Page> {
    const may = principal === ANYBODY ? undefined : (key: string): boolean => principal.may("inspect", key);
    const query = { filter, max: max + 1, ...(after !== undefined && { after }), ...(may !== undefined && { may }) };
    const steps = listing(this.#table, tagOf, query, this.#known(after));
    const finish = (entries: readonly Entry[]): Page => {
      const now = this.#clock.now();
      // what has gone meanwhile is not shown any more
      const live = entries.filter(({ claim }) => this.#table.entries.has(claim.id));
      const page = cutPage(
        live.map((entry) => viewOf(this.#table, tagOf, entry, now, may)),
        max,
      );
      if (page.more) this.#remember(page, live);
      return page;
    };
    if (this.#jobs.length === 0 && this.#clock.now() >= this.#restUntil) {
      const entries = this.#work(steps);
      if (entries !== null) return finish(entries);
    }
    if (this.#jobs.length >= MOST_WAITING) throw new Refusal("LIMIT", `at most ${MOST_WAITING} lists at once`);
    return new Promise((resolve) => this.#jobs.push({ steps, finish, resolve, entries: null }));
  }

  /** When advance() has work. */
  nextDue(): number {
    return this.#jobs.length === 0 ? Number.POSITIVE_INFINITY : this.#restUntil;
  }

  advance(now: number): void {
    const job = this.#jobs[0];
    if (job === undefined || now < this.#restUntil) return;
    // to find them and to tell of them are two turns: each takes about as long as a turn may
    if (job.entries === null) {
      job.entries = this.#work(job.steps);
      return;
    }
    this.#jobs.shift();
    job.resolve(job.finish(job.entries));
  }

  /** Goes on for a while; null: it is not done. Then others are served for as long. */
  #work(steps: Generator<void, Entry[], void>): Entry[] | null {
    const began = this.#clock.now();
    const end = began + this.#listMs;
    let step = steps.next();
    while (step.done !== true && this.#clock.now() < end) step = steps.next();
    const now = this.#clock.now();
    this.#restUntil = now + (now - began);
    return step.done === true ? step.value : null;
  }

  /** The claim at the end of a page, even if it has gone meanwhile, unless another one has its id now. */
  #known(after: string | undefined): Entry | undefined {
    const entry = after === undefined ? undefined : this.#cursors.get(after);
    return entry !== undefined && (this.#table.entries.get(entry.claim.id) ?? entry) === entry ? entry : undefined;
  }

  #remember({ views }: Page, entries: readonly Entry[]): void {
    const last = views.length - 1;
    const tag = views[last]?.tag;
    if (tag === undefined) return;
    this.#cursors.delete(tag);
    this.#cursors.set(tag, entries[last] as Entry);
    if (this.#cursors.size > MOST_CURSORS) this.#cursors.delete(this.#cursors.keys().next().value as string);
  }
}

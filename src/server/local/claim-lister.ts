/**
 * Lists the claims of the local backend in slices: however many keys and callers there are, listing never takes more
 * than a slice at a stretch, with as much time for other work in between.
 */

import type { Principal } from "../../auth/access-control.ts";
import { ANONYMOUS } from "../../auth/access-control.ts";
import { visibleKeys } from "../../auth/authorize.ts";
import { truncatePage } from "../../auth/visible-page.ts";
import type { ClaimRecord } from "../../lock-table/key-queue.ts";
import type { TableQuery } from "../../lock-table/listing.ts";
import { listSteps, toView } from "../../lock-table/listing.ts";
import type { LockTable } from "../../lock-table/table.ts";
import type { ClaimView, ListQuery, Page } from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";
import { publicTag } from "../../util/ids.ts";
import type { MaybePromise } from "../../util/maybe-promise.ts";
import { RequestError } from "../request-error.ts";
import type { Session } from "../session/session.ts";
import { TimeSlicer } from "../time-slicer.ts";

/** Maximum number of remembered page ends: the next page starts there without a search. */
const MAX_CURSORS = 1_000;
/** Maximum number of waiting lists of all clients. */
const MAX_JOBS = 1_000;

interface ListJob {
  readonly steps: Generator<void, ClaimRecord<Session>[], void>;
  readonly finish: (records: readonly ClaimRecord<Session>[]) => Page<ClaimView>;
  readonly resolve: (page: Page<ClaimView>) => void;
  /** The records of the page; null until they were found. */
  records: readonly ClaimRecord<Session>[] | null;
}

export class ClaimLister {
  readonly #table: LockTable<Session>;
  readonly #clock: Clock;
  readonly #slicer: TimeSlicer;
  readonly #jobs: ListJob[] = [];
  readonly #cursors = new Map<string, ClaimRecord<Session>>();

  constructor(table: LockTable<Session>, clock: Clock) {
    this.#table = table;
    this.#clock = clock;
    this.#slicer = new TimeSlicer(clock);
  }

  /** Lists at once if that is quick and no other list waits. @throws RequestError if too many wait */
  list(principal: Principal, query: ListQuery, max: number, cursor: string | undefined): MaybePromise<Page<ClaimView>> {
    const filters = principal === ANONYMOUS ? {} : toFilters(principal, query);
    const tableQuery = { query, max: max + 1, ...(cursor !== undefined && { after: cursor }), ...filters };
    const steps = listSteps(this.#table, publicTag, tableQuery, this.#resumeAfter(cursor));
    const finish = (records: readonly ClaimRecord<Session>[]): Page<ClaimView> => {
      const now = this.#clock.now();
      // skips claims that have ended meanwhile
      const live = records.filter(({ claim }) => this.#table.records.has(claim.id));
      const page = truncatePage(
        live.map((record) => withKeeper(toView(this.#table, publicTag, record, now, filters.canSee), record)),
        max,
      );
      if (page.next !== undefined) this.#rememberCursor(page, live);
      return page;
    };
    if (this.#jobs.length === 0 && this.#slicer.hasTime()) {
      const records = this.#find(steps);
      if (records !== null) return finish(records);
    }
    if (this.#jobs.length >= MAX_JOBS) throw new RequestError("LIMIT", `at most ${MAX_JOBS} lists at once`);
    return new Promise((resolve) => this.#jobs.push({ steps, finish, resolve, records: null }));
  }

  /** When advance() has work to do. */
  nextDueAt(): number {
    return this.#jobs.length === 0 ? Number.POSITIVE_INFINITY : this.#slicer.idleUntil;
  }

  advance(): void {
    const job = this.#jobs[0];
    if (job === undefined || !this.#slicer.hasTime()) return;
    // finding the records and converting them are two slices, since each may take as long as a slice may
    if (job.records === null) {
      job.records = this.#find(job.steps);
      return;
    }
    this.#jobs.shift();
    job.resolve(job.finish(job.records));
  }

  /** Runs for one slice; null: not finished. */
  #find(steps: Generator<void, ClaimRecord<Session>[], void>): ClaimRecord<Session>[] | null {
    return this.#slicer.run((endAt) => {
      let step = steps.next();
      while (step.done !== true && this.#clock.now() < endAt) step = steps.next();
      return step.done === true ? step.value : null;
    });
  }

  /** The claim at the end of the previous page, even if it has ended, unless a new claim has its id. */
  #resumeAfter(cursor: string | undefined): ClaimRecord<Session> | undefined {
    const record = cursor === undefined ? undefined : this.#cursors.get(cursor);
    return record !== undefined && (this.#table.records.get(record.claim.id) ?? record) === record ? record : undefined;
  }

  #rememberCursor({ items }: Page<ClaimView>, records: readonly ClaimRecord<Session>[]): void {
    const last = items.length - 1;
    const tag = items[last]?.tag;
    if (tag === undefined) return;
    this.#cursors.delete(tag);
    this.#cursors.set(tag, records[last] as ClaimRecord<Session>);
    if (this.#cursors.size > MAX_CURSORS) this.#cursors.delete(this.#cursors.keys().next().value as string);
  }
}

/** In the queue of a key that it may not inspect, an account sees its own claims: so it can check what it holds. */
function toFilters(
  principal: Principal,
  { key: ofKey }: ListQuery,
): Pick<TableQuery<Session>, "canSee" | "canSeeClaim"> {
  const canInspect = visibleKeys(principal);
  if (ofKey === undefined || canInspect(ofKey)) return { canSee: canInspect };
  return {
    canSee: (key) => key === ofKey || canInspect(key),
    canSeeClaim: ({ account }) => account === principal.name,
  };
}

/**
 * The label of a run names its wrapper. If that has ended, people who look for the holder need the process that works.
 */
function withKeeper(view: ClaimView, { owner }: ClaimRecord<Session>): ClaimView {
  const state = owner?.state;
  const keeper = state?.kind === "running" ? state.run.keeper : null;
  return keeper === null ? view : { ...view, label: `${view.label}, kept by ${keeper}` };
}

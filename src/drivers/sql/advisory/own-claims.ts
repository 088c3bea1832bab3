/**
 * The claims of this process: an entry for each, from its first call until its end, in the queue of its lock. What the
 * server does for them is the driver's matter (driver.ts).
 */

import type { Answer, Claim, ClaimId, ClaimView, ListOptions, ListQuery, Page } from "../../../spi/driver.ts";
import { ALL_PERMITS } from "../../../spi/driver.ts";
import { toPage } from "../../../util/chunk.ts";
import type { Clock } from "../../../util/clock.ts";
import { publicTag } from "../../../util/ids.ts";
import type { ServerLock } from "./dialect.ts";
import type { Entry } from "./lock-queue.ts";
import { LockQueue } from "./lock-queue.ts";
import type { Session } from "./session.ts";

/** How often a claim that waits without a connection of its own asks again. */
const POLL_MS = 250;

export const NONE: Answer = { state: "none" };
export const EXPIRED: Answer = { state: "none", reason: "expired" };

export class OwnClaims {
  readonly #clock: Clock;
  readonly #sessionMs: number;
  /** Of claims without one. */
  readonly #label: string;
  readonly #entries = new Map<ClaimId, Entry>();
  readonly #ended = new WeakMap<Claim, Answer>();
  readonly #queues = new Map<string, LockQueue>();

  constructor(clock: Clock, sessionMs: number, label: string) {
    this.#clock = clock;
    this.#sessionMs = sessionMs;
    this.#label = label;
  }

  get isEmpty(): boolean {
    return this.#entries.size === 0;
  }

  get(id: ClaimId): Entry | undefined {
    return this.#entries.get(id);
  }

  /** Not released, and not over, since it was added. */
  has(entry: Entry): boolean {
    return this.#entries.get(entry.claim.id) === entry;
  }

  heldBy(session: Session): readonly Entry[] {
    return [...this.#entries.values()].filter(({ hold }) => hold?.session === session);
  }

  add(claim: Claim, lock: ServerLock): Entry {
    let queue = this.#queues.get(lock.name);
    if (queue === undefined) {
      queue = new LockQueue(lock.name);
      this.#queues.set(lock.name, queue);
    }
    const mode = { lock, isShared: claim.locks[0].permits < ALL_PERMITS };
    const entry: Entry = { claim, mode, queue, createdAt: this.#clock.now(), attempt: null, hold: null };
    this.#entries.set(claim.id, entry);
    return entry;
  }

  remove(entry: Entry): void {
    this.#entries.delete(entry.claim.id);
    entry.queue.remove(entry);
  }

  clear(): void {
    this.#entries.clear();
    this.#queues.clear();
  }

  deleteIfEmpty(queue: LockQueue): void {
    if (queue.isEmpty && this.#queues.get(queue.name) === queue) this.#queues.delete(queue.name);
  }

  /** From now on the answer for this claim, which has ended: a late call must not lock again. */
  setEnd(claim: Claim, answer: Answer): void {
    this.#ended.set(claim, answer);
  }

  /** undefined: the claim has not ended. */
  endOf(claim: Claim): Answer | undefined {
    return this.#ended.get(claim);
  }

  toAnswer(entry: Entry): Answer {
    const { hold, queue } = entry;
    if (hold === null) {
      const hasConnection = queue.wait !== null || queue.waiting[0] !== entry;
      const recheckMs = hasConnection ? this.#sessionMs / 2 : POLL_MS;
      return { state: "waiting", remainingMs: this.#sessionMs, recheckMs };
    }
    const { remainingMs } = hold.session;
    return remainingMs > 0 ? { state: "held", token: 0n, tokenCount: 1, remainingMs } : EXPIRED;
  }

  list(query: ListQuery, { max, after }: ListOptions): Page<ClaimView> {
    const matches = ({ locks: [{ key }] }: Claim): boolean =>
      query.key === undefined ? key.startsWith(query.prefix) : key === query.key;
    const rankOf = (entry: Entry): number => (entry.hold === null ? entry.queue.waiting.indexOf(entry) + 1 : 0);
    const views = [...this.#entries.values()]
      .filter(({ claim, attempt }) => attempt === null && matches(claim))
      .sort((one, other) => compareKeys(one.claim, other.claim) || rankOf(one) - rankOf(other))
      .map((entry) => this.#toView(entry));
    const start = after === undefined ? 0 : views.findIndex(({ tag }) => tag === after) + 1;
    return toPage(views.slice(start), max);
  }

  #toView(entry: Entry): ClaimView {
    const { id, locks, ttlMs, tokenCount, floor, wait, label } = entry.claim;
    const now = this.#clock.now();
    return {
      ...{ locks, ttlMs, tokenCount, floor, wait, label: label || this.#label },
      tag: publicTag(id),
      answer: this.toAnswer(entry),
      ageMs: now - entry.createdAt,
      ...(entry.hold !== null && { heldMs: now - entry.hold.grantedAt }),
    };
  }
}

function compareKeys({ locks: [one] }: Claim, { locks: [other] }: Claim): number {
  return one.key < other.key ? -1 : Number(one.key > other.key);
}

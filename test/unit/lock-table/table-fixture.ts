/** Claims and tables for the tests of the lock table. */

import { listTable } from "../../../src/lock-table/listing.ts";
import { LockTable } from "../../../src/lock-table/table.ts";
import type { Answer, Claim, ClaimView, LockSpec } from "../../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../../src/spi/driver.ts";

export const SECOND_MS = 1_000;
export const TTL_MS = 30 * SECOND_MS;

export function lockSpec(key: string, permits: number = ALL_PERMITS, limit: number = ALL_PERMITS): LockSpec {
  return { key, permits, limit };
}

/** A waiting mutex claim on the keys, unless overridden. */
export function makeClaim(id: string, keys: string | readonly LockSpec[], change: Partial<Claim> = {}): Claim {
  const lockSpecs = typeof keys === "string" ? keys.split(" ").map((key) => lockSpec(key)) : keys;
  return {
    id,
    locks: lockSpecs as unknown as Claim["locks"],
    ttlMs: TTL_MS,
    tokenCount: 1,
    floor: 0n,
    wait: true,
    label: "test",
    ...change,
  };
}

/** A table whose clock the test advances; its wall clock follows from the year 2020. */
export class TableFixture {
  readonly table: LockTable;
  now = 0;
  wallMicros = 1_577_836_800_000_000;
  readonly granted: string[] = [];
  readonly revoked: string[] = [];
  readonly recalled: string[] = [];
  readonly tokens = new Map<string, number>();

  constructor(table: LockTable = new LockTable()) {
    this.table = table;
  }

  advance(ms: number): this {
    this.now += ms;
    this.wallMicros += ms * 1_000;
    this.table.advance({ now: this.now, micros: this.wallMicros });
    this.collectGrants();
    return this;
  }

  claim(claim: Claim, owner: unknown = "owner", arrival = 0): Answer {
    return this.#recordToken(
      claim.id,
      this.table.claim(claim, { owner, arrival }, { now: this.now, micros: this.wallMicros }),
    );
  }

  /** Claims and returns only the state. */
  claimState(id: string, keys: string | readonly LockSpec[], change: Partial<Claim> = {}): Answer["state"] {
    return this.claim(makeClaim(id, keys, change)).state;
  }

  renew(id: string, owner: unknown = "owner", tokenCount?: number): Answer {
    return this.#recordToken(id, this.table.renew(id, owner, { now: this.now, micros: this.wallMicros }, tokenCount));
  }

  /** Takes the ids of the claims that were recalled since the last call. */
  takeRecalled(): readonly string[] {
    this.collectGrants();
    return this.recalled.splice(0);
  }

  /** Is the claim, which is held, wanted back, as the answer to a renewal says? */
  isRecalled(id: string): boolean {
    const answer = this.renew(id);
    return answer.state === "held" && answer.recalled === true;
  }

  release(id: string, unanswered?: number | "session"): boolean {
    const wasPresent = this.table.release(id, { now: this.now, micros: this.wallMicros }, unanswered);
    this.collectGrants();
    return wasPresent;
  }

  revoke(key: string, token: number, removed = false): boolean {
    const wasPresent = this.table.revoke(key, token, removed, { now: this.now, micros: this.wallMicros });
    this.collectGrants();
    return wasPresent;
  }

  detach(id: string, remainingMs?: number): boolean {
    return this.table.detach(id, { now: this.now, micros: this.wallMicros }, remainingMs);
  }

  /** Takes the announced grants: their ids since the last call. */
  collectGrants(): readonly string[] {
    const notifications = this.table.drainNotifications();
    const idsWith = (state: Answer["state"] | "recalled"): string[] =>
      notifications
        .filter(({ answer }) => (typeof answer === "string" ? answer : answer.state) === state)
        .map(({ id }) => id);
    for (const { id, answer } of notifications) if (typeof answer !== "string") this.#recordToken(id, answer);
    const ids = idsWith("held");
    this.granted.push(...ids);
    this.revoked.push(...idsWith("none"));
    this.recalled.push(...idsWith("recalled"));
    return ids;
  }

  #recordToken(id: string, answer: Answer): Answer {
    if (answer.state === "held") this.tokens.set(id, Number(answer.token));
    return answer;
  }

  /** The first claim of a list. */
  listFirst(): ClaimView {
    const { items } = listTable(this.table, (id) => id, { query: { prefix: "" }, max: 1 }, this.now);
    if (items[0] === undefined) throw new Error("the table is empty");
    return items[0];
  }

  token(id: string): number {
    const token = this.tokens.get(id);
    if (token === undefined) throw new Error(`${id} was never granted`);
    return token;
  }
}

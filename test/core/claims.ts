/** Claims and tables for the tests of core. */

import { ALL_PERMITS } from "../../src/core/line.ts";
import { Table } from "../../src/core/table.ts";
import type { Answer, Claim, Hold } from "../../src/spi/driver.ts";

export const SECOND = 1_000;
export const TTL = 30 * SECOND;

export function hold(key: string, permits: number = ALL_PERMITS, limit: number = ALL_PERMITS): Hold {
  return { key, permits, limit };
}

/** A waiting mutex claim on the keys, unless said otherwise. */
export function claimOf(id: string, keys: string | readonly Hold[], change: Partial<Claim> = {}): Claim {
  const holds = typeof keys === "string" ? keys.split(" ").map((key) => hold(key)) : keys;
  return {
    id,
    holds: holds as unknown as Claim["holds"],
    ttlMs: TTL,
    tokens: 1,
    floor: 0n,
    wait: true,
    label: "test",
    ...change,
  };
}

/** A table whose clock is moved by hand; its wall clock follows it from the year 2020. */
export class Bench {
  readonly table: Table;
  now = 0;
  wall = 1_577_836_800_000_000;
  readonly granted: string[] = [];
  readonly revoked: string[] = [];
  readonly tokens = new Map<string, number>();

  constructor(table: Table = new Table()) {
    this.table = table;
  }

  pass(ms: number): this {
    this.now += ms;
    this.wall += ms * 1_000;
    this.table.advance(this.now, this.wall);
    this.collect();
    return this;
  }

  claim(claim: Claim, owner: unknown = "owner", arrival?: number): Answer {
    return this.#noted(claim.id, this.table.claim(claim, owner, this.now, this.wall, arrival));
  }

  /** Claims and says only where it stands. */
  stands(id: string, keys: string | readonly Hold[], change: Partial<Claim> = {}): Answer["state"] {
    return this.claim(claimOf(id, keys, change)).state;
  }

  renew(id: string, owner: unknown = "owner"): Answer {
    return this.#noted(id, this.table.renew(id, owner, this.now, this.wall));
  }

  release(id: string, unanswered?: number | "session"): boolean {
    const there = this.table.release(id, this.now, this.wall, unanswered);
    this.collect();
    return there;
  }

  revoke(key: string, token: number, removed = false): boolean {
    const there = this.table.revoke(key, token, removed, this.now, this.wall);
    this.collect();
    return there;
  }

  detach(id: string, leftMs?: number): boolean {
    return this.table.detach(id, this.now, this.wall, leftMs);
  }

  /** Takes the announced grants: their ids since the last call. */
  collect(): readonly string[] {
    const told = this.table.takeGrants();
    for (const { id, answer } of told) this.#noted(id, answer);
    const ids = told.filter(({ answer }) => answer.state === "held").map(({ id }) => id);
    this.granted.push(...ids);
    this.revoked.push(...told.filter(({ answer }) => answer.state === "none").map(({ id }) => id));
    return ids;
  }

  #noted(id: string, answer: Answer): Answer {
    if (answer.state === "held") this.tokens.set(id, Number(answer.token));
    return answer;
  }

  token(id: string): number {
    const token = this.tokens.get(id);
    if (token === undefined) throw new Error(`${id} was never granted`);
    return token;
  }
}

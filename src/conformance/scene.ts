/** What one test works with: a fresh store, its clients, claims, and waits with a bound. */

import assert from "node:assert/strict";
import { setTimeout as delay } from "node:timers/promises";
import { MIN_TTL_MS } from "../duration.ts";
import { newId } from "../ids.ts";
import type { Answer, Claim, ClaimId, Driver, Hold } from "../spi/driver.ts";
import { ALL_PERMITS } from "../spi/driver.ts";
import { delegate } from "./delegate.ts";
import type { Pace } from "./pace.ts";
import { watchPace } from "./pace.ts";
import type { Store, Subject } from "./subject.ts";

/** The answer of a granted claim. */
export type Held = Extract<Answer, { state: "held" }>;

/** The answer of a claim in line. */
type Waiting = Extract<Answer, { state: "waiting" }>;

/** One word of the store to a client. */
interface Push {
  readonly id: ClaimId | null;
  readonly answer: Answer | undefined;
}

/** One opened driver, with what the store said by itself, and short forms of its verbs. */
export interface Client {
  readonly driver: Driver;
  readonly pushes: readonly Push[];
  claim(claim: Claim): Promise<Answer>;
  /** Where the claim stands, by a renewal. */
  ask(claim: Claim): Promise<Answer>;
  release(...claims: readonly Claim[]): Promise<readonly boolean[]>;
  /** Places the claim; it must be granted at once. */
  hold(claim: Claim): Promise<Held>;
  /** Places the claim; it must have to wait. */
  queue(claim: Claim): Promise<Waiting>;
  /** Asks until the claim is granted. */
  granted(claim: Claim): Promise<Held>;
  /** Could a claim have this key now? Asks without waiting, and gives it back. */
  isFree(key: string, terms?: Terms): Promise<boolean>;
}

/** What a claim wants besides one key for itself alone. */
export type Terms = Partial<Omit<Claim, "id" | "holds">> & { readonly permits?: number; readonly limit?: number };

export interface Scene {
  readonly subject: Subject;
  readonly store: Store;
  /** Another client of the store. */
  client(): Promise<Client>;
  /** Another driver of the store, not opened; closed by the scene only if the test does not. */
  driver(): Promise<Driver>;
  /** A new claim of one key or several, exclusive unless its terms or holds say otherwise. */
  claim(target: string | readonly Hold[], terms?: Terms): Claim;
  /** Milliseconds, stretched for this store. */
  ms(ms: number): number;
  /** Milliseconds of a lease, stretched for this store, and never too short for a client. */
  lease(ms: number): number;
  /** A lease short enough to be waited for: 300 ms, stretched. */
  readonly brief: number;
  pause(ms: number): Promise<void>;
  /** Waits until a fact holds and gives it; what is waited for is named in the failure. */
  until<T>(what: string, fact: () => T | Promise<T>, withinMs?: number): Promise<NonNullable<T>>;
  /** Looks at the store's own state, where it lets itself be inspected: what is wrong there fails the test at its end. */
  inspect(): Promise<void>;
  /** Called when the test is over, latest first, before it is checked that the store is empty. */
  afterwards(work: () => Promise<unknown>): void;
}

const BRIEF_MS = 300;
const BOUND_MS = 5_000;
const POLL_MS = 4;
const LONG_LEASE_MS = 60_000;

/**
 * A failure is blamed on the machine if a turn of the event loop, or a call, took so long a part of a brief lease: less
 * than the eighth of it after which a majority gives up on a call.
 */
const SLOW = 0.12;
const MOST_ATTEMPTS = 3;

/**
 * Runs one test. Leases in tests are short: when one failed while the machine was busy for a good part of a lease, that
 * says nothing about the driver, so it is run again, on a fresh store.
 */
export async function perform(subject: Subject, body: (scene: Scene) => Promise<void>): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const pace = watchPace();
    try {
      return await performOnce(subject, pace, body);
    } catch (error) {
      if (
        error instanceof StoreViolation ||
        attempt === MOST_ATTEMPTS ||
        pace.slowestMs() < SLOW * leaseOf(subject, BRIEF_MS)
      )
        throw error;
    } finally {
      pace.stop();
    }
  }
}

/** The store's own state is wrong, which no slow machine excuses. */
class StoreViolation extends Error {}

/** Runs the body on a fresh store, closes everything, and checks that nothing is left there. */
async function performOnce(subject: Subject, pace: Pace, body: (scene: Scene) => Promise<void>): Promise<void> {
  const store = await subject.open();
  const drivers: Driver[] = [];
  const later: (() => Promise<unknown>)[] = [];
  const violations = new Set<string>();
  const scene = sceneOn({ subject, store, pace, drivers, later, violations });
  try {
    await body(scene);
    for (const work of later.reverse()) await work();
    await nothingLeft(scene);
    await scene.inspect();
    if (violations.size > 0) throw violationOf(violations);
  } catch (error) {
    const found = violations.size === 0 || error instanceof StoreViolation ? error : violationOf(violations, error);
    await cleared([...later, ...drivers.map((driver) => () => driver.close()), closing(store)], found);
  }
  for (const driver of drivers) await driver.close();
  await closing(store)();
}

function violationOf(violations: ReadonlySet<string>, cause?: unknown): StoreViolation {
  return new StoreViolation(`the store's own state is wrong:\n  ${[...violations].join("\n  ")}`, { cause });
}

/** Throws the test's error, with those of clearing up after it, if any. */
async function cleared(works: readonly (() => Promise<unknown>)[], error: unknown): Promise<never> {
  const others: unknown[] = [];
  for (const work of works) {
    await work().catch((other: unknown) => others.push(other));
  }
  if (others.length === 0) throw error;
  throw new AggregateError([error, ...others], `${String(error)} (and clearing up failed)`);
}

const closing = (store: Store) => async (): Promise<void> => {
  await store.close?.();
};

/** A list may be a little stale, so it is read until it is empty, for a second; leases in tests are longer or over. */
async function nothingLeft(scene: Scene): Promise<void> {
  const { driver } = await scene.client();
  const end = performance.now() + scene.ms(1_000);
  for (;;) {
    const late = performance.now() >= end;
    const left = await driver.list({ prefix: "" }, 20);
    if (left.length === 0) return;
    if (late) assert.deepEqual(left, [], "the test left claims behind");
    await delay(POLL_MS);
  }
}

interface Stage {
  readonly subject: Subject;
  readonly store: Store;
  readonly pace: Pace;
  readonly drivers: Driver[];
  readonly later: (() => Promise<unknown>)[];
  /** What was found in the store's own state. */
  readonly violations: Set<string>;
}

function sceneOn({ subject, store, pace, drivers, later, violations }: Stage): Scene {
  const ms = (count: number): number => Math.round(count * subject.timeScale);
  const lease = (count: number): number => leaseOf(subject, count);

  async function driver(): Promise<Driver> {
    const made = await store.driver();
    let closed: Promise<void> | undefined;
    // a driver need not bear being closed twice
    const own = delegate(pace.timed(made), { close: () => (closed ??= made.close()) });
    drivers.push(own);
    return own;
  }

  async function until<T>(what: string, fact: () => T | Promise<T>, withinMs?: number): Promise<NonNullable<T>> {
    const end = performance.now() + (withinMs ?? ms(BOUND_MS));
    for (;;) {
      const late = performance.now() >= end; // asked once more after the bound: the machine may have stood still
      const value = await fact();
      if (value) return value;
      if (late) assert.fail(`waited in vain for ${what}`);
      await delay(POLL_MS);
    }
  }

  return {
    subject,
    store,
    driver,
    async client() {
      const opened = await driver();
      const pushes: Push[] = [];
      await opened.open((id, answer) => pushes.push({ id, answer }));
      return clientOf(subject, opened, pushes, until);
    },
    claim: (target, terms) => claimOf(subject, target, terms),
    ms,
    lease,
    brief: lease(BRIEF_MS),
    pause: (count) => delay(count),
    until,
    async inspect() {
      for (const violation of (await store.inspect?.()) ?? []) violations.add(violation);
    },
    afterwards: (work) => later.push(work),
  };
}

function leaseOf({ timeScale }: Subject, ms: number): number {
  return Math.max(Math.round(ms * timeScale), MIN_TTL_MS + 20);
}

function claimOf({ traits }: Subject, target: string | readonly Hold[], terms: Terms = {}): Claim {
  const { permits = ALL_PERMITS, limit = ALL_PERMITS, ...rest } = terms;
  const holds = typeof target === "string" ? [{ key: target, permits, limit }] : [...target].sort(byKey);
  return {
    id: newId(),
    holds: holds as unknown as Claim["holds"],
    ttlMs: traits.lease.claim ? LONG_LEASE_MS : "session",
    tokens: 1,
    floor: 0n,
    wait: true,
    label: "conformance",
    ...rest,
  };
}

function byKey(one: Hold, other: Hold): number {
  return one.key < other.key ? -1 : 1;
}

function clientOf(subject: Subject, driver: Driver, pushes: readonly Push[], until: Scene["until"]): Client {
  const claim = (wanted: Claim): Promise<Answer> => driver.claim(wanted);
  const ask = async (wanted: Claim): Promise<Answer> => {
    const answers = await driver.renew([wanted]);
    assert.equal(answers.length, 1, "renew gives one answer for each claim");
    assert.ok(answers[0], "renew leaves out no answer");
    return answers[0];
  };
  return {
    driver,
    pushes,
    claim,
    ask,
    release: (...claims) => driver.release(claims),
    hold: async (wanted) => heldOf(await claim(wanted), wanted),
    async queue(wanted) {
      const answer = await claim(wanted);
      assert.equal(answer.state, "waiting", "a claim of a busy key waits");
      return answer as Waiting;
    },
    granted: (wanted) =>
      until(`the grant of a claim of ${keysOf(wanted)}`, async () => {
        const answer = await ask(wanted);
        assert.notEqual(answer.state, "none", `a waiting claim of ${keysOf(wanted)} lost its place`);
        return answer.state === "held" ? answer : null;
      }),
    async isFree(key, terms) {
      const wanted = claimOf(subject, key, { ...terms, wait: false });
      const answer = await claim(wanted);
      if (answer.state === "none") return false;
      heldOf(answer, wanted);
      assert.deepEqual(await driver.release([wanted]), [true]);
      return true;
    },
  };
}

/** The answer as that of a granted claim, with all that such an answer promises. */
export function heldOf(answer: Answer, claim: Claim): Held {
  assert.equal(answer.state, "held", `a claim of ${keysOf(claim)} is granted`);
  const held = answer as Held;
  assert.ok(held.tokens >= 1 && held.tokens <= claim.tokens, `1 to ${claim.tokens} tokens, not ${held.tokens}`);
  assert.ok(held.ttlMs > 0, "a held claim has some of its lease left");
  // clocks with fractions round
  if (claim.ttlMs !== "session") assert.ok(held.ttlMs <= claim.ttlMs + 1, "no more is left than was asked for");
  return held;
}

/** The keys of a claim, for messages. */
function keysOf(claim: Claim): string {
  return claim.holds.map(({ key }) => JSON.stringify(key)).join(", ");
}

/** All of a key. */
export function exclusive(key: string): Hold {
  return { key, permits: ALL_PERMITS, limit: ALL_PERMITS };
}

/** A reader's share of a key. */
export function shared(key: string): Hold {
  return { key, permits: 1, limit: ALL_PERMITS };
}

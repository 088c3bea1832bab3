/** The context of one test: a fresh store, its clients and claims, and waits with a timeout. */

import assert from "node:assert/strict";
import { setTimeout as delay } from "node:timers/promises";
import type { Answer, Claim, ClaimId, ClaimView, Driver, LockSpec, Traits } from "../spi/driver.ts";
import { ALL_PERMITS, StoreRefusedError } from "../spi/driver.ts";
import { delegate } from "../testing/delegate.ts";
import { MIN_TTL_MS } from "../util/duration.ts";
import { randomId } from "../util/ids.ts";
import type { ConformanceSettings, TestStore } from "./options.ts";
import type { SlowMachineDetector } from "./slow-machine.ts";
import { detectSlowMachine } from "./slow-machine.ts";

/** The answer of a granted claim. */
export type HeldAnswer = Extract<Answer, { state: "held" }>;

/** The answer of a waiting claim. */
type WaitingAnswer = Extract<Answer, { state: "waiting" }>;

/** One push of the store to a client. */
interface Push {
  readonly id: ClaimId | null;
  readonly answer: Answer | undefined;
}

/** One opened driver, with the pushes it got, and short forms of its verbs. */
export interface DriverClient {
  readonly driver: Driver;
  readonly traits: Traits;
  readonly pushes: readonly Push[];
  /** The claims that the store has recalled, one entry for each push. */
  readonly recalls: readonly ClaimId[];
  claim(claim: Claim): Promise<Answer>;
  /** The claim's answer, by a renewal. */
  renew(claim: Claim): Promise<Answer>;
  release(...claims: readonly Claim[]): Promise<readonly boolean[]>;
  /** Makes the claim; it must be granted at once. */
  claimHeld(claim: Claim): Promise<HeldAnswer>;
  /** Makes the claim; it must wait. */
  claimWaiting(claim: Claim): Promise<WaitingAnswer>;
  /** Renews until the claim is granted. */
  waitForGrant(claim: Claim): Promise<HeldAnswer>;
  /** Could a claim hold this key now? Claims it without waiting, and releases it. */
  isFree(key: string, options?: ClaimOptions): Promise<boolean>;
}

/** How a claim differs from an exclusive one of one key. */
export type ClaimOptions = Partial<Omit<Claim, "id" | "locks">> & {
  readonly permits?: number;
  readonly limit?: number;
};

export interface TestContext {
  readonly settings: ConformanceSettings;
  readonly store: TestStore;
  /** Another client of the store. */
  openClient(): Promise<DriverClient>;
  /** Another driver of the store, not opened. It is closed after the test if the test has not closed it. */
  createDriver(): Promise<Driver>;
  /** At most 100 claims of the store, as its clients list them: each one's own, if traits.list says so. */
  listClaims(): Promise<readonly ClaimView[]>;
  /** A new claim of one key or several, exclusive unless the options or lock specs say otherwise. */
  createClaim(target: string | readonly LockSpec[], options?: ClaimOptions): Claim;
  /** Milliseconds, scaled for this store. */
  scaleMs(ms: number): number;
  /** Milliseconds of a lease, scaled for this store, and never too short for a client. */
  scaleLease(ms: number): number;
  /** A lease short enough to wait for its end: 300 ms, scaled. */
  readonly shortLeaseMs: number;
  sleep(ms: number): Promise<void>;
  /** Waits until the condition returns a value, and returns it. The failure message contains `what`. */
  waitUntil<T>(what: string, condition: () => T | Promise<T>, withinMs?: number): Promise<NonNullable<T>>;
  /** Inspects the store's own state, if the store supports it. Violations fail the test at its end. */
  inspect(): Promise<void>;
  /** Registers work for the end of the test, before the check that the store is empty; the latest runs first. */
  afterTest(work: () => Promise<unknown>): void;
}

/** Defines one test. It gets its own context; at its end the store must be empty. */
export type DefineTest = (name: string, body: (context: TestContext) => Promise<void>) => void;

/** Defines the tests of one topic that apply to this driver. */
export type Topic = (test: DefineTest, settings: ConformanceSettings) => void;

const SHORT_LEASE_MS = 300;
const WAIT_TIMEOUT_MS = 5_000;
const POLL_MS = 4;
const LONG_LEASE_MS = 60_000;

/**
 * A failed test is repeated if a turn of the event loop, or a call, took this share of a short lease. It is less than
 * the eighth of a lease after which the quorum driver gives up on a call.
 */
const SLOW_LEASE_SHARE = 0.12;
const MAX_ATTEMPTS = 3;

/**
 * Runs one test. Leases in tests are short: a failure while the machine was busy for a large share of a lease says
 * nothing about the driver, so the test runs again, on a fresh store, with leases and timeouts twice as long.
 */
export async function runTest(
  settings: ConformanceSettings,
  body: (context: TestContext) => Promise<void>,
): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const slowMachine = detectSlowMachine();
    const scaled = { ...settings, timeScale: settings.timeScale * 2 ** (attempt - 1) };
    try {
      return await runTestOnce(scaled, slowMachine, body);
    } catch (error) {
      if (
        error instanceof Violation ||
        attempt === MAX_ATTEMPTS ||
        slowMachine.slowestMs() < SLOW_LEASE_SHARE * scaleLease(scaled, SHORT_LEASE_MS)
      )
        throw error;
    } finally {
      slowMachine.stop();
    }
  }
}

/** The store's own state is wrong, or two clients hold one lock by their clocks: a slow machine is no excuse. */
export class Violation extends Error {}

/** Runs the body on a fresh store, checks that the store is empty afterwards, and closes everything. */
async function runTestOnce(
  settings: ConformanceSettings,
  slowMachine: SlowMachineDetector,
  body: (context: TestContext) => Promise<void>,
): Promise<void> {
  const store = await settings.open();
  const drivers: Driver[] = [];
  const cleanups: (() => Promise<unknown>)[] = [];
  const violations = new Set<string>();
  const context = createContext({ settings, store, slowMachine, drivers, cleanups, violations });
  try {
    await body(context);
    for (const work of cleanups.reverse()) await work();
    await assertEmpty(context);
    await context.inspect();
    if (violations.size > 0) throw toViolation(violations);
  } catch (error) {
    const failure = violations.size === 0 || error instanceof Violation ? error : toViolation(violations, error);
    await cleanUpAndThrow([...cleanups, ...drivers.map((driver) => () => driver.close()), closeStore(store)], failure);
  }
  for (const driver of drivers) await driver.close();
  await closeStore(store)();
}

function toViolation(violations: ReadonlySet<string>, cause?: unknown): Violation {
  return new Violation(`the store's own state is wrong:\n  ${[...violations].join("\n  ")}`, { cause });
}

/** Throws the test's error, together with those of the cleanups, if any. */
async function cleanUpAndThrow(cleanups: readonly (() => Promise<unknown>)[], error: unknown): Promise<never> {
  const cleanupErrors: unknown[] = [];
  for (const work of cleanups) {
    await work().catch((cleanupError: unknown) => cleanupErrors.push(cleanupError));
  }
  if (cleanupErrors.length === 0) throw error;
  throw new AggregateError([error, ...cleanupErrors], `${String(error)} (and the cleanup failed)`);
}

const closeStore = (store: TestStore) => async (): Promise<void> => {
  await store.close?.();
};

/**
 * A list may be slightly out of date, so it is read until it is empty, for a second. Leases in tests are longer, or
 * have ended.
 */
async function assertEmpty(context: TestContext): Promise<void> {
  await context.openClient();
  const deadline = performance.now() + context.scaleMs(1_000);
  for (;;) {
    const isLate = performance.now() >= deadline;
    const views = await context.listClaims();
    if (views.length === 0) return;
    if (isLate) assert.deepEqual(views, [], "the test left claims behind");
    await delay(POLL_MS);
  }
}

interface ContextParts {
  readonly settings: ConformanceSettings;
  readonly store: TestStore;
  readonly slowMachine: SlowMachineDetector;
  readonly drivers: Driver[];
  readonly cleanups: (() => Promise<unknown>)[];
  /** The violations found in the store's own state. */
  readonly violations: Set<string>;
}

function createContext({ settings, store, slowMachine, drivers, cleanups, violations }: ContextParts): TestContext {
  const scaleMs = (count: number): number => Math.round(count * settings.timeScale);
  const lease = (count: number): number => scaleLease(settings, count);

  const openDrivers = new Set<Driver>();

  async function driver(): Promise<Driver> {
    const inner = await store.driver();
    let closed: Promise<void> | undefined;
    const wrapped = delegate(slowMachine.timeCalls(inner), {
      async open(events) {
        const traits = await inner.open(events);
        openDrivers.add(wrapped);
        return traits;
      },
      // a driver need not support a second close()
      close() {
        openDrivers.delete(wrapped);
        closed ??= inner.close();
        return closed;
      },
    });
    drivers.push(wrapped);
    return wrapped;
  }

  async function listClaims(): Promise<readonly ClaimView[]> {
    const all = [...openDrivers];
    const listing = settings.traits.list === "own" ? all : all.slice(-1);
    const pages = await Promise.all(listing.map((one) => one.list({ prefix: "" }, { max: 100 })));
    return pages.flatMap(({ items }) => items);
  }

  async function until<T>(what: string, condition: () => T | Promise<T>, withinMs?: number): Promise<NonNullable<T>> {
    const deadline = performance.now() + (withinMs ?? scaleMs(WAIT_TIMEOUT_MS));
    for (;;) {
      const isLate = performance.now() >= deadline; // check once more after the deadline: the machine may have stalled
      const value = await condition();
      if (value) return value;
      if (isLate) assert.fail(`timed out waiting for ${what}`);
      await delay(POLL_MS);
    }
  }

  return {
    settings,
    store,
    createDriver: driver,
    async openClient() {
      const opened = await driver();
      const pushes: Push[] = [];
      const recalls: ClaimId[] = [];
      const traits = await opened.open({
        pushed: (id, answer) => void pushes.push({ id, answer }),
        recheck: (id) => void pushes.push({ id, answer: undefined }),
        disconnected: () => undefined,
        reconnected: () => void pushes.push({ id: null, answer: undefined }),
        recalled(id) {
          recalls.push(id);
          if (settings.traits.recall !== "push") violations.add('a claim was recalled, and recall is not "push"');
        },
        heldTokens: () => null,
      });
      return createClient(settings, opened, traits, { pushes, recalls }, until);
    },
    listClaims,
    createClaim: (target, options) => createClaim(settings, target, options),
    scaleMs,
    scaleLease: lease,
    shortLeaseMs: lease(SHORT_LEASE_MS),
    sleep: (count) => delay(count),
    waitUntil: until,
    async inspect() {
      for (const violation of (await store.inspect?.()) ?? []) violations.add(violation);
    },
    afterTest: (work) => cleanups.push(work),
  };
}

function scaleLease({ timeScale }: ConformanceSettings, ms: number): number {
  return Math.max(Math.round(ms * timeScale), MIN_TTL_MS + 20);
}

function createClaim(
  { traits }: ConformanceSettings,
  target: string | readonly LockSpec[],
  options: ClaimOptions = {},
): Claim {
  const { permits = ALL_PERMITS, limit = ALL_PERMITS, ...rest } = options;
  const locks = typeof target === "string" ? [{ key: target, permits, limit }] : [...target].sort(compareKeys);
  return {
    id: randomId(),
    locks: locks as unknown as Claim["locks"],
    ttlMs: traits.lease.claim ? LONG_LEASE_MS : "session",
    tokenCount: 1,
    floor: 0n,
    wait: true,
    label: "conformance",
    ...rest,
  };
}

function compareKeys(a: LockSpec, b: LockSpec): number {
  return a.key < b.key ? -1 : 1;
}

function createClient(
  settings: ConformanceSettings,
  driver: Driver,
  traits: Traits,
  received: Pick<DriverClient, "pushes" | "recalls">,
  waitUntil: TestContext["waitUntil"],
): DriverClient {
  const claim = (target: Claim): Promise<Answer> => driver.claim(target);
  const renew = async (target: Claim): Promise<Answer> => {
    const answers = await driver.renew([target]);
    assert.equal(answers.length, 1, "renew gives one answer for each claim");
    assert.ok(answers[0], "renew leaves out no answer");
    return answers[0];
  };
  return {
    driver,
    traits,
    ...received,
    claim,
    renew,
    release: (...claims) => driver.release(claims.map((claim) => ({ claim, hasUnansweredClaim: false }))),
    claimHeld: async (target) => assertHeld(await claim(target), target),
    async claimWaiting(target) {
      const answer = await claim(target);
      assert.equal(answer.state, "waiting", "a claim of a busy key waits");
      return answer as WaitingAnswer;
    },
    waitForGrant: (target) =>
      waitUntil(`the grant of a claim of ${formatClaimKeys(target)}`, async () => {
        const answer = await renew(target);
        assert.notEqual(answer.state, "none", `a waiting claim of ${formatClaimKeys(target)} lost its entry`);
        return answer.state === "held" ? answer : null;
      }),
    async isFree(key, options) {
      const target = createClaim(settings, key, { ...options, wait: false });
      const answer = await claim(target);
      if (answer.state === "none") return false;
      assertHeld(answer, target);
      assert.deepEqual(await driver.release([{ claim: target, hasUnansweredClaim: false }]), [true]);
      return true;
    },
  };
}

/** Is this the refusal of a claim? Matches errors by code, not by class: a process may contain two copies of the package. */
export function isRefusal(error: unknown): boolean {
  return error instanceof StoreRefusedError || (error as { code?: unknown } | null)?.code === "LOCK_STORE_REFUSED";
}

/** Asserts that the answer is that of a granted claim, and consistent with the claim. */
export function assertHeld(answer: Answer, claim: Claim): HeldAnswer {
  assert.equal(answer.state, "held", `a claim of ${formatClaimKeys(claim)} is granted`);
  const held = answer as HeldAnswer;
  assert.ok(
    held.tokenCount >= 1 && held.tokenCount <= claim.tokenCount,
    `1 to ${claim.tokenCount} tokens, not ${held.tokenCount}`,
  );
  assert.ok(held.remainingMs > 0, "a held claim has some of its lease left");
  // 1 ms of tolerance for rounding
  if (claim.ttlMs !== "session") assert.ok(held.remainingMs <= claim.ttlMs + 1, "no more is left than was asked for");
  return held;
}

/** The keys of a claim, for messages. */
function formatClaimKeys(claim: Claim): string {
  return claim.locks.map(({ key }) => JSON.stringify(key)).join(", ");
}

/** An exclusive lock spec of a key. */
export function exclusive(key: string): LockSpec {
  return { key, permits: ALL_PERMITS, limit: ALL_PERMITS };
}

/** A reader's lock spec of a key. */
export function shared(key: string): LockSpec {
  return { key, permits: 1, limit: ALL_PERMITS };
}

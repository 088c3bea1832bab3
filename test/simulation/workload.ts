/** A user of locks: requests them in every way, holds for a while, releases. */

import type { Lock } from "../../src/client/lock.ts";
import type { AcquireOptions } from "../../src/client/options.ts";
import { ClosedError, LockTimeoutError, StoreError, StorePausedError } from "../../src/errors.ts";
import type { LockSpec } from "../../src/spi/driver.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import type { ClientProcess } from "./client-process.ts";
import type { HeldLock, InvariantChecker } from "./invariant-checker.ts";
import type { LockRequest } from "./lock-requests.ts";
import { multiKeyRequest, mutexRequest, permitRequest, readRequest } from "./lock-requests.ts";
import { transferLock } from "./lock-transfer.ts";
import { runReentrant } from "./reentrancy.ts";
import type { Scenario } from "./scenario.ts";
import { mustKeepLocks, testsLeaseEnd } from "./scenario.ts";

/** How late a wait may end: one look-up of the holders in the way, and a timer's rounding. */
const LOOKUP_MS = 500;
const ROUNDING_MS = 0.01;

/** The state that the simulation shares with its actors. */
export interface SimulationContext {
  readonly scenario: Scenario;
  readonly checker: InvariantChecker;
  /** The faults are over: finish the current work. */
  readonly isCalm: boolean;
  /** A user that can attach a lock. */
  pickClient(): ClientProcess | null;
  /** Keys and tokens an operator has revoked. */
  readonly revoked: ReadonlySet<string>;
}

export class LockUser {
  readonly name: string;
  readonly clientProcess: ClientProcess;
  readonly context: SimulationContext;
  readonly #random: SeededRandom;
  /** Null: no request is repeated inside. */
  readonly extras: SeededRandom | null;
  #requestCount = 0;

  constructor(name: string, clientProcess: ClientProcess, context: SimulationContext) {
    this.name = name;
    this.clientProcess = clientProcess;
    this.context = context;
    const { events } = context.checker;
    this.#random = events.random.fork();
    this.extras = context.scenario.reenters ? (events.extrasRandom?.fork() ?? null) : null;
  }

  /** Uses locks until the faults are over. */
  run(): Promise<void> {
    return this.runCounted(async () => {
      while (!this.context.isCalm && this.clientProcess.isAlive) {
        await this.sleep(this.#random.chance(0.3) ? 0 : this.#random.next() * this.context.scenario.ttlMs * 0.2);
        await this.#step();
      }
    });
  }

  /** Does this as part of the site's work. */
  async runCounted(operation: () => Promise<void>): Promise<void> {
    this.clientProcess.activeUsers++;
    try {
      await operation();
    } catch (error) {
      this.context.checker.events.fail(`${this.name}: ${error instanceof Error ? error.stack : String(error)}`);
    }
    this.clientProcess.activeUsers--;
  }

  sleep(ms: number): Promise<void> {
    return this.clientProcess.machine.sleep(ms);
  }

  async #step(): Promise<void> {
    if (this.extras?.chance(0.3)) return runReentrant(this, this.extras);
    const random = this.#random;
    const { keys } = this.context.scenario;
    const key = random.pick(keys);
    const choice = random.int(20);
    const { locks } = this.clientProcess;
    if (choice < 2) return this.useLock(await this.#tryAcquire(mutexRequest(locks, key)));
    if (choice < 6) return this.useLock(await this.#acquire(readRequest(locks, key)));
    if (choice < 8) return this.useLock(await this.#acquire(permitRequest(locks, key, 1 + random.int(2))));
    if (choice < 11) return this.useLock(await this.#acquire(multiKeyRequest(locks, keys, random)));
    if (choice < 13) return this.#acquireNested();
    if (choice < 14) return transferLock(this, await this.#acquire(mutexRequest(locks, key)), random);
    return this.useLock(await this.#acquire(mutexRequest(locks, key)));
  }

  // --- requesting

  async #tryAcquire({ lockable, holds }: LockRequest): Promise<HeldLock | null> {
    const lease = this.pickLease();
    const request = this.beginRequest("tries", holds, "", lease);
    try {
      const lock = await lockable.tryAcquire({ ttl: lease });
      this.#checkWaitTime(request, 0);
      return lock === null ? null : this.recordHolding(lock, holds, request);
    } catch (error) {
      const isExpected = error instanceof StoreError || error instanceof ClosedError;
      if (!isExpected && !(error instanceof StorePausedError)) throw error;
      return null;
    }
  }

  async #acquire({ lockable, holds }: LockRequest): Promise<HeldLock | null> {
    const random = this.#random;
    const { ttlMs } = this.context.scenario;
    const waitMs = random.chance(0.4) ? null : random.pick([0, 20, ttlMs * 0.3, ttlMs, ttlMs * 2]);
    const abort = random.chance(0.15) ? new AbortController() : null;
    if (abort !== null) void this.sleep(random.next() * ttlMs * 0.5).then(() => abort.abort(ABORT_REASON));
    const lease = this.pickLease();
    const options: AcquireOptions = {
      ttl: lease,
      ...(waitMs !== null && { wait: waitMs }),
      ...(abort !== null && { signal: abort.signal }),
    };
    const request = this.beginRequest("asks for", holds, waitMs === null ? "" : ` within ${waitMs} ms`, lease);
    try {
      const lock = await lockable.acquire(options);
      if (waitMs !== null) this.#checkWaitTime(request, waitMs);
      return this.recordHolding(lock, holds, request);
    } catch (error) {
      this.#refused(error, request, waitMs);
      return null;
    }
  }

  #refused(error: unknown, request: StartedRequest, waitMs: number | null): void {
    const { machine } = this.clientProcess;
    const { events } = machine;
    const waitedMs = machine.now - request.at;
    machine.note(`${this.name}: ${error instanceof Error ? error.message : String(error)} (${waitedMs.toFixed(1)} ms)`);
    if (error === ABORT_REASON || error instanceof ClosedError) return;
    const isPaused = error instanceof StorePausedError;
    if (!(isPaused || error instanceof LockTimeoutError || error instanceof StoreError)) throw error;
    if (isPaused && waitMs !== 0) return events.fail(`${this.name}: a wait ended by a pause: ${error.message}`);
    // a store that was never reached is an error, not a wait
    if (request.isFirst && error instanceof StoreError) return;
    if (waitMs === null) return events.fail(`${this.name}: a wait without end ended: ${error.message}`);
    if (error instanceof LockTimeoutError && waitedMs < waitMs - ROUNDING_MS) {
      events.fail(`${this.name}: a wait of ${waitMs} ms ended after ${waitedMs.toFixed(3)} ms`);
    }
    this.#checkWaitTime(request, waitMs);
  }

  /** Most leases are as the client's are; some are longer, some last as long as the session. */
  pickLease(): number | "session" {
    const { scenario } = this.context;
    if (this.#random.chance(0.7)) return scenario.ttlMs;
    return scenario.store !== "table" && this.#random.chance(0.5) ? "session" : scenario.ttlMs * 2;
  }

  beginRequest(verb: string, lockSpecs: readonly LockSpec[], mode: string, lease: number | "session"): StartedRequest {
    const { machine, client } = this.clientProcess;
    const { scenario } = this.context;
    const lockText = lockSpecs
      .map(({ key, permits, limit }) => (permits === limit ? key : `${key}:${permits}`))
      .join(" ");
    machine.note(`${this.name} ${verb} ${lockText}${mode}${lease === scenario.ttlMs ? "" : `, ttl ${lease}`}`);
    return {
      at: machine.now,
      lateMs: machine.totalStoppedMs,
      before: this.context.checker.highestSeen(lockSpecs),
      lockText,
      leaseMs: lease === "session" ? scenario.sessionMs : lease,
      isFirst: client.context === null,
    };
  }

  /** Whatever the outcome: the time in which a machine did not run is not the client's fault. */
  #checkWaitTime({ at, lateMs, lockText, leaseMs, isFirst }: StartedRequest, waitMs: number): void {
    if (isFirst) return; // connecting has its own bound
    const { machine } = this.clientProcess;
    // a request without a wait waits for that one answer
    const boundMs = Math.max(waitMs, leaseMs / 6);
    const waitedMs = machine.now - at - (machine.totalStoppedMs - lateMs) * machine.rate;
    // keys that are taken one by one are released before the user is notified
    const maxWaitMs = boundMs + LOOKUP_MS + ROUNDING_MS + leaseMs;
    if (waitedMs > maxWaitMs) {
      machine.events.fail(`${this.name}: ${lockText} was settled after ${waitedMs.toFixed(0)} ms, not ${boundMs} ms`);
    }
  }

  recordHolding(
    lock: Lock,
    lockSpecs: readonly LockSpec[],
    { before, lockText, leaseMs }: StartedRequest,
  ): HeldLock | null {
    const { machine } = this.clientProcess;
    const holding = this.createHolding(lock, lockSpecs, leaseMs);
    const tokens = lockSpecs.map(({ key }) => lock.tokenOf(key));
    machine.note(`${this.name} holds ${lockText}, token ${tokens.join(" ")}, ${lock.remainingMs.toFixed(1)} ms left`);
    this.context.checker.recordGrant(holding, before);
    return holding;
  }

  createHolding(lock: Lock, lockSpecs: readonly LockSpec[], leaseMs = 0): HeldLock {
    const { machine } = this.clientProcess;
    const leaseUntil = machine.clock.uptime() + lock.remainingMs;
    const name = `${this.name}.${++this.#requestCount}`;
    return {
      name,
      machine,
      client: this.clientProcess,
      lock,
      holds: lockSpecs,
      leaseMs,
      leaseUntil,
      isStopping: false,
    };
  }

  // --- holding

  async useLock(holding: HeldLock | null): Promise<void> {
    if (holding === null) return;
    await this.#holdLock(holding);
    await this.release(holding);
  }

  async #holdLock({ lock }: HeldLock): Promise<void> {
    const random = this.#random;
    const { scenario } = this.context;
    const { ttlMs } = scenario;
    const isLong = testsLeaseEnd(scenario);
    const workMs = !isLong
      ? random.pick([0, 0, 1, 5, ttlMs * 0.1, ttlMs * 0.3, ttlMs * 1.3]) * random.next()
      : random.pick([0, ttlMs * 0.5, ttlMs * 1.2]);
    if (workMs === 0) return;
    if (random.chance(0.5)) return this.sleep(workMs); // checks nothing while it works
    await Promise.race([this.sleep(workMs), isAborted(lock.signal)]);
    if (lock.signal.aborted) await this.sleep(random.next() * ttlMs * 0.1); // it takes a while to stop
  }

  async release(holding: HeldLock): Promise<void> {
    const leave = this.beginRelease(holding);
    leave(await holding.lock.release());
  }

  /** It is about to be given back; to be told what release() says. */
  beginRelease(holding: HeldLock): (was: boolean) => void {
    const { machine } = this.clientProcess;
    const { events } = machine;
    const { lock, name, holds, leaseMs } = holding;
    const { scenario, checker, revoked } = this.context;
    const isBelievedHeld = lock.remainingMs > 0;
    checker.recordEnd(holding);
    if (!isBelievedHeld && leaseMs >= scenario.ttlMs && mustKeepLocks(scenario)) {
      events.fail(`${name}: lost although the server came back in time`);
    }
    const isOvertaken = checker.isOvertaken(holding);
    machine.note(`${this.name} releases ${lock.keys.join(" ")}${isBelievedHeld ? "" : ", lost"}`);
    return (was) => {
      // in doubt it may have been held all the time, but not if another client has had it meanwhile
      if (was && isOvertaken) events.fail(`${name}: release() said true of a lock that somebody else has had`);
      const isRevoked = holds.some(({ key }) => revoked.has(`${key} ${lock.tokenOf(key)}`));
      if (isBelievedHeld && !was && !isRevoked) events.fail(`${name}: release() said false although nothing was lost`);
    };
  }

  async #acquireNested(): Promise<void> {
    const { keys } = this.context.scenario;
    const [first, second] = [keys[0], keys.at(-1)] as [string, string];
    const { locks } = this.clientProcess;
    const outer = await this.#acquire(
      this.#random.chance(0.2) ? readRequest(locks, first) : mutexRequest(locks, first),
    );
    if (outer === null) return;
    if (first !== second) await this.useLock(await this.#acquire(mutexRequest(locks, second)));
    await this.useLock(outer);
  }
}

/** A request when it was made. */
export interface StartedRequest {
  readonly at: number;
  readonly lateMs: number;
  readonly before: ReadonlyMap<string, bigint>;
  readonly lockText: string;
  readonly leaseMs: number;
  /** Its client has not met the store yet. */
  readonly isFirst: boolean;
}

const ABORT_REASON = new Error("the user gave up");

function isAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

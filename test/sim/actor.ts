/** Somebody who uses locks: asks in every way there is, holds for a while, lets go. */

import type { Lock } from "../../src/client/lock.ts";
import type { AcquireOptions } from "../../src/client/options.ts";
import { ClosedError, DriverError, LockTimeoutError, StorePausedError } from "../../src/errors.ts";
import type { Hold } from "../../src/spi/driver.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import type { Plan } from "./plan.ts";
import { keepsLocks, mattersAtTheEnd } from "./plan.ts";
import { reenter } from "./reentry.ts";
import type { Site } from "./site.ts";
import { travel } from "./travel.ts";
import type { Holding, Watch } from "./watch.ts";
import type { Wanted } from "./wish.ts";
import { mutex, permits, reader, several } from "./wish.ts";

/** How late a wait may end: one look at who stood in the way, and a timer's rounding. */
const LOOK_MS = 500;
const ROUNDING_MS = 0.01;

/** What the simulation shares with its actors. */
export interface Stage {
  readonly plan: Plan;
  readonly watch: Watch;
  /** There is no more trouble: finish what you are at. */
  readonly isQuiet: boolean;
  /** Somebody who can take up a lock. */
  anySite(): Site | null;
  /** Keys and tokens an operator has revoked. */
  readonly revoked: ReadonlySet<string>;
}

export class Actor {
  readonly name: string;
  readonly site: Site;
  readonly stage: Stage;
  readonly #random: SeededRandom;
  /** Null: nothing is asked for again inside. */
  readonly extras: SeededRandom | null;
  #asked = 0;

  constructor(name: string, site: Site, stage: Stage) {
    this.name = name;
    this.site = site;
    this.stage = stage;
    const { world } = stage.watch;
    this.#random = world.random.fork();
    this.extras = stage.plan.reenters ? (world.extras?.fork() ?? null) : null;
  }

  /** Uses locks until there is no more trouble. */
  live(): Promise<void> {
    return this.busy(async () => {
      while (!this.stage.isQuiet && this.site.isAlive) {
        await this.pass(this.#random.chance(0.3) ? 0 : this.#random.next() * this.stage.plan.ttlMs * 0.2);
        await this.#once();
      }
    });
  }

  /** Does this as part of the site's work. */
  async busy(work: () => Promise<void>): Promise<void> {
    this.site.busy++;
    try {
      await work();
    } catch (error) {
      this.stage.watch.world.fail(`${this.name}: ${error instanceof Error ? error.stack : String(error)}`);
    }
    this.site.busy--;
  }

  pass(ms: number): Promise<void> {
    return this.site.machine.sleep(ms);
  }

  async #once(): Promise<void> {
    if (this.extras?.chance(0.3)) return reenter(this, this.extras);
    const random = this.#random;
    const { keys } = this.stage.plan;
    const key = random.pick(keys);
    const choice = random.int(20);
    const { locks } = this.site;
    if (choice < 2) return this.use(await this.#try(mutex(locks, key)));
    if (choice < 6) return this.use(await this.#ask(reader(locks, key)));
    if (choice < 8) return this.use(await this.#ask(permits(locks, key, 1 + random.int(2))));
    if (choice < 11) return this.use(await this.#ask(several(locks, keys, random)));
    if (choice < 13) return this.#nested();
    if (choice < 14) return travel(this, await this.#ask(mutex(locks, key)), random);
    return this.use(await this.#ask(mutex(locks, key)));
  }

  // --- asking

  async #try({ lockable, holds }: Wanted): Promise<Holding | null> {
    const lease = this.lease();
    const began = this.begin("tries", holds, "", lease);
    try {
      const lock = await lockable.tryAcquire({ ttl: lease });
      this.#onTime(began, 0);
      return lock === null ? null : this.holding(lock, holds, began);
    } catch (error) {
      const isExpected = error instanceof DriverError || error instanceof ClosedError;
      if (!isExpected && !(error instanceof StorePausedError)) throw error;
      return null;
    }
  }

  async #ask({ lockable, holds }: Wanted): Promise<Holding | null> {
    const random = this.#random;
    const { ttlMs } = this.stage.plan;
    const waitMs = random.chance(0.4) ? null : random.pick([0, 20, ttlMs * 0.3, ttlMs, ttlMs * 2]);
    const abort = random.chance(0.15) ? new AbortController() : null;
    if (abort !== null) void this.pass(random.next() * ttlMs * 0.5).then(() => abort.abort(GAVE_UP));
    const lease = this.lease();
    const options: AcquireOptions = {
      ttl: lease,
      ...(waitMs !== null && { wait: waitMs }),
      ...(abort !== null && { signal: abort.signal }),
    };
    const began = this.begin("asks for", holds, waitMs === null ? "" : ` within ${waitMs} ms`, lease);
    try {
      const lock = await lockable.acquire(options);
      if (waitMs !== null) this.#onTime(began, waitMs);
      return this.holding(lock, holds, began);
    } catch (error) {
      this.#refused(error, began, waitMs);
      return null;
    }
  }

  #refused(error: unknown, began: Began, waitMs: number | null): void {
    const { machine } = this.site;
    const { world } = machine;
    const waited = machine.now - began.at;
    machine.note(`${this.name}: ${error instanceof Error ? error.message : String(error)} (${waited.toFixed(1)} ms)`);
    if (error === GAVE_UP || error instanceof ClosedError) return;
    const isPaused = error instanceof StorePausedError;
    if (!(isPaused || error instanceof LockTimeoutError || error instanceof DriverError)) throw error;
    if (isPaused && waitMs !== 0) return world.fail(`${this.name}: a wait ended by a pause: ${error.message}`);
    // a store that was never reached is an error, not a wait
    if (began.isFirst && error instanceof DriverError) return;
    if (waitMs === null) return world.fail(`${this.name}: a wait without end ended: ${error.message}`);
    if (error instanceof LockTimeoutError && waited < waitMs - ROUNDING_MS) {
      world.fail(`${this.name}: a wait of ${waitMs} ms ended after ${waited.toFixed(3)} ms`);
    }
    this.#onTime(began, waitMs);
  }

  /** Most leases are as the client's are; some are longer, some last as long as the session. */
  lease(): number | "session" {
    const { plan } = this.stage;
    if (this.#random.chance(0.7)) return plan.ttlMs;
    return plan.store !== "table" && this.#random.chance(0.5) ? "session" : plan.ttlMs * 2;
  }

  begin(verb: string, holds: readonly Hold[], how: string, lease: number | "session"): Began {
    const { machine, client } = this.site;
    const { plan } = this.stage;
    const shown = holds.map(({ key, permits, limit }) => (permits === limit ? key : `${key}:${permits}`)).join(" ");
    machine.note(`${this.name} ${verb} ${shown}${how}${lease === plan.ttlMs ? "" : `, ttl ${lease}`}`);
    return {
      at: machine.now,
      lateMs: machine.lateMs,
      before: this.stage.watch.highestSeen(holds),
      shown,
      leaseMs: lease === "session" ? plan.sessionMs : lease,
      isFirst: client.opened === null,
    };
  }

  /** Whatever came of it: the time a machine did not run is not the client's fault. */
  #onTime({ at, lateMs, shown, leaseMs, isFirst }: Began, waitMs: number): void {
    if (isFirst) return; // connecting has a bound of its own
    const { machine } = this.site;
    // who asks once waits for that one answer
    const boundMs = Math.max(waitMs, leaseMs / 6);
    const waited = machine.now - at - (machine.lateMs - lateMs) * machine.rate;
    // keys that are taken one by one are given back before the user hears of it
    const most = boundMs + LOOK_MS + ROUNDING_MS + leaseMs;
    if (waited > most) {
      machine.world.fail(`${this.name}: ${shown} was settled after ${waited.toFixed(0)} ms, not ${boundMs} ms`);
    }
  }

  holding(lock: Lock, holds: readonly Hold[], { before, shown, leaseMs }: Began): Holding | null {
    const { machine } = this.site;
    const holding = this.holdingOf(lock, holds, leaseMs);
    const tokens = holds.map(({ key }) => lock.tokenOf(key));
    machine.note(`${this.name} holds ${shown}, token ${tokens.join(" ")}, ${lock.remainingMs.toFixed(1)} ms left`);
    this.stage.watch.granted(holding, before);
    return holding;
  }

  holdingOf(lock: Lock, holds: readonly Hold[], leaseMs = 0): Holding {
    const { machine } = this.site;
    const leaseUntil = machine.clock.uptime() + lock.remainingMs;
    const name = `${this.name}.${++this.#asked}`;
    return { name, machine, client: this.site, lock, holds, leaseMs, leaseUntil, stopping: false };
  }

  // --- holding

  async use(holding: Holding | null): Promise<void> {
    if (holding === null) return;
    await this.#work(holding);
    await this.release(holding);
  }

  async #work({ lock }: Holding): Promise<void> {
    const random = this.#random;
    const { plan } = this.stage;
    const { ttlMs } = plan;
    const isLong = mattersAtTheEnd(plan);
    const workMs = !isLong
      ? random.pick([0, 0, 1, 5, ttlMs * 0.1, ttlMs * 0.3, ttlMs * 1.3]) * random.next()
      : random.pick([0, ttlMs * 0.5, ttlMs * 1.2]);
    if (workMs === 0) return;
    if (random.chance(0.5)) return this.pass(workMs); // looks at nothing while it works
    await Promise.race([this.pass(workMs), aborted(lock.signal)]);
    if (lock.signal.aborted) await this.pass(random.next() * ttlMs * 0.1); // it takes a while to stop
  }

  async release(holding: Holding): Promise<void> {
    const leave = this.leaving(holding);
    leave(await holding.lock.release());
  }

  /** It is about to be given back; to be told what release() says. */
  leaving(holding: Holding): (was: boolean) => void {
    const { machine } = this.site;
    const { world } = machine;
    const { lock, name, holds, leaseMs } = holding;
    const { plan, watch, revoked } = this.stage;
    const believed = lock.remainingMs > 0;
    watch.ended(holding);
    if (!believed && leaseMs >= plan.ttlMs && keepsLocks(plan)) {
      world.fail(`${name}: lost although the server came back in time`);
    }
    const isOvertaken = watch.isOvertaken(holding);
    machine.note(`${this.name} releases ${lock.keys.join(" ")}${believed ? "" : ", lost"}`);
    return (was) => {
      // in doubt it may have been ours all the time, but not if somebody else has had it meanwhile
      if (was && isOvertaken) world.fail(`${name}: release() said true of a lock that somebody else has had`);
      const isRevoked = holds.some(({ key }) => revoked.has(`${key} ${lock.tokenOf(key)}`));
      if (believed && !was && !isRevoked) world.fail(`${name}: release() said false although nothing was lost`);
    };
  }

  async #nested(): Promise<void> {
    const { keys } = this.stage.plan;
    const [first, second] = [keys[0], keys.at(-1)] as [string, string];
    const { locks } = this.site;
    const outer = await this.#ask(this.#random.chance(0.2) ? reader(locks, first) : mutex(locks, first));
    if (outer === null) return;
    if (first !== second) await this.use(await this.#ask(mutex(locks, second)));
    await this.use(outer);
  }
}

/** A request when it was made. */
export interface Began {
  readonly at: number;
  readonly lateMs: number;
  readonly before: ReadonlyMap<string, bigint>;
  readonly shown: string;
  readonly leaseMs: number;
  /** Its client has not met the store yet. */
  readonly isFirst: boolean;
}

const GAVE_UP = new Error("the user gave up");

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

/**
 * Clients in strict order, one that hands off freely, readers and locks of several keys use the same keys, over the memory driver and our
 * server, while answers and pushes are lost, processes stop, locks are revoked, detached and attached. Checked with the store's own state.
 */

import { expect, test } from "vitest";
import type { LockHandle } from "../../../src/client/lock.ts";
import { createLocks } from "../../../src/client/locks.ts";
import { memory, memoryStore } from "../../../src/drivers/memory.ts";
import { tableOf } from "../../../src/drivers/memory-store.ts";
import type { Lock, Locks, LocksOptions } from "../../../src/index.ts";
import type { ClaimRecord } from "../../../src/lock-table/key-queue.ts";
import type { LockTable } from "../../../src/lock-table/table.ts";
import type { Driver } from "../../../src/spi/driver.ts";
import { chaos } from "../../../src/testing/chaos/driver.ts";
import { FakeClock, flushEventLoop } from "../../support/fake-clock.ts";
import type { SeededRandom } from "../../support/seeded-random.ts";
import { seededRandom } from "../../support/seeded-random.ts";
import { cleanUpAfterEach } from "../../support/server-fixture.ts";
import { ServerHarness } from "../../support/server-harness.ts";
import { StoppableProcess } from "../../support/stoppable-process.ts";
import { findTableViolations } from "../../support/stores/table-inspector.ts";

// loaded now: what loads them on demand would take turns of the event loop that are not counted
import "../../../src/client/admin.ts";
import "../../../src/client/transfer.ts";

const FIRST_SEED = Number(process.env.HOLDFAST_SEED ?? 1);
const SEEDS = Number(process.env.HOLDFAST_SEEDS ?? 3);
const STEPS = 150;
const KEYS = ["a", "b"] as const;
const CLIENTS: readonly LocksOptions[] = [{ order: "strict" }, { order: "strict" }, {}];

cleanUpAfterEach();

/** A request of a user. */
interface Request {
  readonly client: number;
  readonly key: string;
  readonly abort: AbortController;
  readonly isStrict: boolean;
  readonly claimIds: string[];
  readonly isShared: boolean;
  lock: Lock | null;
  error: unknown;
  token: bigint;
  isSettled: boolean;
  number: number;
  isAcquired: boolean;
  /** Its claim ended before it was granted. */
  isRestarted: boolean;
}

interface Store {
  readonly clock: FakeClock;
  readonly table: LockTable;
  createDriver(process: StoppableProcess): Driver;
  crash?(): Promise<void>;
}

function openMemory(): Store {
  const clock = new FakeClock();
  const store = memoryStore(clock);
  return { clock, table: tableOf(store), createDriver: (process) => process.wrapDriver(memory({ store })) };
}

async function openServer(): Promise<Store> {
  const harness = new ServerHarness({ remote: true });
  await harness.start();
  return {
    clock: harness.clock,
    get table() {
      return harness.inspect().table;
    },
    createDriver: (process) => harness.createDriver(process),
    async crash() {
      harness.crash();
      await harness.start();
    },
  };
}

class Fuzz {
  readonly random: SeededRandom;
  readonly store: Store;
  readonly hasFaults: boolean;
  readonly mayStop: boolean;
  readonly clients: Locks[] = [];
  readonly processes: StoppableProcess[] = [];
  readonly stopped = new Set<number>();
  readonly requests: Request[] = [];
  readonly held = new Set<Lock>();
  readonly problems: string[] = [];
  readonly events: { readonly name: string; readonly request: number; readonly client: number }[] = [];
  /** By claim: when the store has queued it. */
  readonly arrivals = new Map<string, number>();
  readonly lastTokens = new Map<string, bigint>();
  readonly log: string[] = [];
  current: Request | null = null;
  readonly pending: Promise<unknown>[] = [];
  /** Of the clients in strict order. */
  handoffs = 0;
  /** Calls or pushes were lost, locks were revoked, or the server has crashed: a holder may not know yet that it has lost its lock. */
  isDisturbed: boolean;
  hasCrashed = false;
  readonly attachedBy = new Map<Lock, number>();
  /** Most requests have no options, so that many of them follow each other. */
  readonly isPlain: boolean;

  constructor(seed: number, store: Store, hasFaults: boolean) {
    this.random = seededRandom(seed);
    this.store = store;
    this.hasFaults = hasFaults;
    this.isDisturbed = hasFaults;
    this.mayStop = this.random.chance(0.5);
    this.isPlain = this.random.chance(0.5);
    for (const [index, options] of CLIENTS.entries()) this.open(index, options);
  }

  open(index: number, options: LocksOptions): void {
    const process = new StoppableProcess(this.store.clock);
    const loss = this.hasFaults ? 0.03 : 0;
    const inner = this.store.createDriver(process);
    const driver: Driver = chaos(inner, {
      seed: this.random.int(2 ** 30),
      loseCall: loss,
      loseReply: loss,
      losePush: loss * 3,
    });
    const recorder: Driver = Object.assign(Object.create(driver) as Driver, {
      claim: (claim: Parameters<Driver["claim"]>[0]) => {
        if (this.current !== null) this.current.claimIds.push(claim.id);
        return driver.claim(claim);
      },
    });
    const noteReleases = (releases: Parameters<Driver["release"]>[0]): ReturnType<Driver["release"]> => {
      for (const { claim } of releases) this.noteEnd(claim.id);
      return driver.release(releases);
    };
    for (const verb of ["open", "renew", "release", "detach", "revoke", "list", "close", "forget", "setIdle"] as const)
      if (driver[verb] !== undefined) Object.assign(recorder, { [verb]: (driver[verb] as () => unknown).bind(driver) });
    recorder.release = noteReleases;
    const locks = createLocks(recorder, { ttl: "10s", label: "same", clock: process.clock, ...options });
    this.processes.push(process);
    this.clients.push(locks);
    for (const name of ["requested", "acquired", "released", "lost", "detached", "failed", "handedOff"] as const)
      locks.on(name, (event) => {
        this.events.push({ name, request: event.request, client: index });
        if (name === "handedOff" && index !== 2) this.handoffs++;
        if (name === "requested" && this.current !== null) this.current.number = event.request;
        if (name === "acquired")
          for (const request of this.requests) if (request.number === event.request) request.isAcquired = true;
        this.log.push(
          `   [${index}] ${name} #${event.request}${"token" in event ? ` ${String(event.token).slice(-7)}` : ""}`,
        );
        if (name === "acquired" && event.mode === "exclusive" && "token" in event) {
          for (const key of event.keys) {
            const last = this.lastTokens.get(key) ?? 0n;
            // a stopped process receives its grant late
            if (event.token <= last && !this.mayStop)
              this.problems.push(`token ${event.token} of ${key} after ${last}`);
            this.lastTokens.set(key, event.token);
          }
        }
      });
  }

  noteEnd(id: string): void {
    const request = this.requests.find(({ claimIds }) => claimIds[0] === id);
    if (request !== undefined && !request.isAcquired) request.isRestarted = true;
  }

  acquire(): void {
    const { random } = this;
    const client = random.pick([0, 0, 0, 0, 1, 1, 1, 2]);
    const key = random.pick(KEYS);
    const locks = this.clients[client] as Locks;
    const likely = (probability: number): boolean => random.chance(this.isPlain ? probability / 5 : probability);
    const kind = random.int(this.isPlain ? 100 : 20);
    const isShared = kind === 0;
    const isMulti = kind === 1;
    const request: Request = {
      ...{
        client,
        key,
        isShared,
        abort: new AbortController(),
        claimIds: [],
        lock: null,
        error: null,
        token: 0n,
        isSettled: false,
        number: 0,
        isAcquired: false,
        isRestarted: false,
      },
      isStrict: client !== 2 && !isMulti,
    };
    const options = {
      signal: request.abort.signal,
      ...(likely(0.1) && { label: "other" }),
      ...(likely(0.05) && { ttl: "12s" as const }),
      ...(likely(0.05) && { maxHold: "3s" as const }),
      ...(likely(0.08) && { order: "strict" as const }),
      ...(likely(0.15) && { wait: (["50ms", "2s", "7s"] as const)[random.int(3)] }),
      ...(likely(0.05) && { wait: 0 }),
    };
    this.requests.push(request);
    this.log.push(
      `acquire r${this.requests.length - 1} client ${client} ${isMulti ? "a,b" : key}${isShared ? " shared" : ""} ${JSON.stringify({ ...options, signal: undefined })}`,
    );
    this.current = request;
    const promise = isMulti
      ? locks.all(...KEYS).acquire(options)
      : isShared
        ? locks.rw(key).read.acquire(options)
        : locks.acquire(key, options);
    this.current = null;
    this.pending.push(
      promise.then(
        (lock) => {
          request.isSettled = true;
          request.lock = lock;
          request.token = lock.token;
          this.held.add(lock);
        },
        (error: unknown) => {
          request.isSettled = true;
          request.error = error;
        },
      ),
    );
  }

  async step(): Promise<void> {
    const { random } = this;
    const choice = random.int(100);
    if (choice < 45) this.acquire();
    else if (choice < 70) {
      const free = [...this.held].filter((lock) => !this.stopped.has(this.clientOf(lock)));
      if (free.length > 0) this.release(random.pick(free));
    } else if (choice < 76) {
      const waiting = this.requests.filter(({ isSettled, client }) => !isSettled && !this.stopped.has(client));
      if (waiting.length > 0) {
        const request = random.pick(waiting);
        this.log.push(`abort r${this.requests.indexOf(request)}`);
        request.abort.abort(new Error("aborted"));
      }
    } else if (choice < 82) await this.advance(random.pick([1, 50, 500, 3_000]));
    else if (choice < 84) await this.revoke();
    else if (choice < 87) await this.transfer();
    else if (choice < 88) {
      this.log.push("suspend");
      this.store.clock.suspend(random.pick([1_000, 20_000]));
    } else if (choice < 90) {
      const client = random.int(3);
      if (!this.stopped.has(client)) {
        this.log.push(`releaseAll ${client}`);
        this.pending.push((this.clients[client] as Locks).releaseAll());
        for (const lock of this.held) if (this.clientOf(lock) === client) this.held.delete(lock);
      }
    } else if (choice < 92 && this.mayStop) {
      const client = random.int(3);
      const process = this.processes[client] as StoppableProcess;
      this.log.push(`stop or continue ${client}`);
      if (this.stopped.delete(client)) process.continue();
      else {
        this.stopped.add(client);
        process.stop();
      }
    } else if (choice === 92 && this.store.crash !== undefined) {
      this.log.push("crash");
      this.isDisturbed = true;
      this.hasCrashed = true;
      await this.store.crash();
    }
    if (random.chance(0.7)) {
      await flushEventLoop(this.store.crash === undefined ? 3 : 8);
      this.check();
    }
  }

  async advance(ms: number): Promise<void> {
    this.log.push(`advance ${ms}`);
    await this.store.clock.advance(ms);
  }

  clientOf(lock: Lock): number {
    return this.requests.find((request) => request.lock === lock)?.client ?? this.attachedBy.get(lock) ?? -1;
  }

  release(lock: Lock): void {
    this.held.delete(lock);
    const wasHeld = isHeld(lock);
    const record = this.store.table.records.get((lock as LockHandle).localHolds[0].activeClaim.claim.id);
    const wasStored = record !== undefined && record.revokeReason === null;
    this.log.push(`release ${String(lock.token).slice(-7)} of ${this.clientOf(lock)} held ${wasHeld}`);
    this.pending.push(
      lock.release().then((result) => {
        if (result && !wasHeld && !wasStored && !this.hasCrashed)
          this.problems.push(`release of ${lock.token} says it was held`);
        if (!result && wasHeld && !this.isDisturbed) this.problems.push(`release of ${lock.token} says it was lost`);
      }),
    );
  }

  async revoke(): Promise<void> {
    const holders = [...this.store.table.records.values()].filter(({ isHeld, isDetached }) => isHeld && !isDetached);
    if (holders.length === 0) return;
    const record = this.random.pick(holders);
    const key = record.claim.locks[0].key;
    const now = this.random.chance(0.5);
    const token = BigInt(record.token + this.random.int(record.tokenCount));
    this.log.push(`revoke ${key} ${String(token).slice(-7)} now ${now}`);
    this.isDisturbed = true;
    const reader = this.clients.findIndex((_, index) => !this.stopped.has(index));
    if (reader === -1) return;
    this.pending.push((this.clients[reader] as Locks).revoke(key, token, { now }).catch(() => undefined));
  }

  async transfer(): Promise<void> {
    const free = [...this.held].filter((lock) => !this.stopped.has(this.clientOf(lock)) && isHeld(lock));
    if (free.length === 0) return;
    const lock = this.random.pick(free);
    this.held.delete(lock);
    const to = this.random.int(3);
    const ttl = this.random.chance(0.4) ? { ttl: "2s" as const } : {};
    this.log.push(`detach ${String(lock.token).slice(-7)} to ${to} ${JSON.stringify(ttl)}`);
    this.pending.push(
      lock.detach(ttl).then(
        async (reference) => {
          if (this.random.chance(0.2)) return;
          const attached = await (this.clients[to] as Locks).attach(reference).catch(() => null);
          if (attached === null) return;
          if (attached.token !== lock.token) this.problems.push(`attached ${attached.token}, not ${lock.token}`);
          this.attachedBy.set(attached, to);
          this.held.add(attached);
        },
        () => void this.held.add(lock),
      ),
    );
  }

  /** No two requests hold the same key, and the store has the claim of each lock that is held. */
  check(): void {
    this.problems.push(...findTableViolations(this.store.table).filter((text) => !text.includes("has no end")));
    for (const record of this.store.table.records.values())
      if (!this.arrivals.has(record.claim.id)) this.arrivals.set(record.claim.id, record.arrival);
    for (const {
      claimIds: [id],
      isAcquired,
    } of this.requests)
      if (id !== undefined && !isAcquired && this.arrivals.has(id) && !this.store.table.records.has(id))
        this.noteEnd(id);
    if (this.stopped.size > 0) return;
    const users = new Map<string, Lock[]>();
    for (const lock of this.held) {
      if (!isHeld(lock)) continue;
      for (const { key, isExclusive } of lock.grants) {
        const others = users.get(key) ?? [];
        if (
          others.length > 0 &&
          (isExclusive || (others[0] as Lock).grants.some((grant) => grant.key === key && grant.isExclusive))
        )
          if (!this.hasFaults) this.problems.push(`two holders of ${key}: ${others[0]?.token} and ${lock.token}`);
        users.set(key, [...others, lock]);
        const [localHold] = (lock as LockHandle).localHolds;
        const record = this.store.table.records.get(localHold.activeClaim.claim.id) as ClaimRecord | undefined;
        if (record === undefined || !record.isHeld) {
          if (!this.isDisturbed) this.problems.push(`the store does not know the holder ${lock.token} of ${key}`);
        } else if (Number(lock.token) < record.token || Number(lock.token) >= record.token + record.tokenCount)
          this.problems.push(`token ${lock.token} is not of ${record.token}+${record.tokenCount}`);
      }
    }
  }

  /** Requests of one key in strict order were granted as their claims arrived. */
  checkOrder(): void {
    for (const key of KEYS) {
      const granted = this.requests.filter(
        (request) =>
          request.key === key &&
          request.isStrict &&
          request.lock !== null &&
          !request.isRestarted &&
          this.arrivals.has(request.claimIds[0] as string),
      );
      granted.sort(
        (one, other) =>
          (this.arrivals.get(one.claimIds[0] as string) as number) -
          (this.arrivals.get(other.claimIds[0] as string) as number),
      );
      for (const [index, request] of granted.entries()) {
        const next = granted[index + 1];
        if (next !== undefined && next.token < request.token)
          this.problems.push(
            `r${this.requests.indexOf(next)} (${next.token}) before r${this.requests.indexOf(request)} (${request.token})`,
          );
      }
    }
  }

  async end(): Promise<void> {
    for (const client of this.stopped) this.processes[client]?.continue();
    this.stopped.clear();
    this.log.push("END");
    for (let round = 0; round < 400; round++) {
      await this.store.clock.advance(round > 200 ? 1_000 : 20);
      await flushEventLoop(3);
      for (const lock of [...this.held]) this.release(lock);
      if (this.requests.every(({ isSettled }) => isSettled) && this.held.size === 0) break;
    }
    for (const [index, request] of this.requests.entries())
      if (!request.isSettled) this.problems.push(`r${index} is not settled`);
    for (let second = 0; second < 40; second++) {
      await this.store.clock.advance(1_000);
      for (const lock of [...this.held]) this.release(lock);
    }
    // the memory driver removes what has expired at its next call
    void (this.clients[0] as Locks).list("").catch(() => undefined);
    await flushEventLoop();
    this.checkOrder();
    for (const record of this.store.table.records.values())
      this.problems.push(`left: ${record.claim.locks[0].key} held ${record.isHeld}`);
    for (const [client] of this.clients.entries()) {
      const ends = new Map<number, string[]>();
      for (const { name, request, client: of } of this.events)
        if (of === client) ends.set(request, [...(ends.get(request) ?? []), name]);
      for (const [request, names] of ends) {
        const text = names.filter((name) => name !== "handedOff").join(" ");
        if (
          !/^(requested )?(failed|acquired (released|lost|detached))$/.test(text) &&
          !/^(released|lost|detached)$/.test(text)
        )
          this.problems.push(`events of #${request}: ${names.join(" ")}`);
      }
    }
    await Promise.all(this.pending);
    for (const request of this.requests) {
      const { context } = ((request.lock as LockHandle | null)?.localHolds[0].queue ?? {}) as {
        context?: { strictWaits: { has(key: string): boolean }; engine: { size: number } };
      };
      if (context === undefined) continue;
      for (const key of KEYS)
        if (context.strictWaits.has(key)) this.problems.push(`a wait for ${key} is still counted`);
      if (context.engine.size > 0)
        this.problems.push(`${context.engine.size} claims are left in client ${request.client}`);
    }
    const closing = Promise.all(this.clients.map((locks) => locks.close()));
    for (let second = 0; second < 5; second++) await this.store.clock.advance(1_000);
    await closing;
    if (this.store.crash === undefined && this.store.clock.pendingTimers > 0)
      this.problems.push(`${this.store.clock.pendingTimers} timers are left`);
  }
}

function isHeld(lock: Lock): boolean {
  try {
    lock.throwIfLost();
    return true;
  } catch {
    return false;
  }
}

test.each([
  ["memory", openMemory, false],
  ["memory, with lost calls and pushes", openMemory, true],
  ["our server, which crashes", openServer, false],
  ["our server, which crashes, with lost calls and pushes", openServer, true],
] as const)(
  "clients in strict order and others on the same keys: %s",
  { timeout: 30_000 },
  async (_, open, hasFaults) => {
    let handoffs = 0;
    for (let seed = FIRST_SEED; seed < FIRST_SEED + SEEDS; seed++) {
      const fuzz = new Fuzz(seed, await open(), hasFaults);
      for (let step = 0; step < STEPS && fuzz.problems.length === 0; step++) await fuzz.step();
      if (fuzz.problems.length === 0) await fuzz.end();
      handoffs += fuzz.handoffs;
      expect(new Set(fuzz.problems), `seed ${seed}:\n${fuzz.log.slice(-60).join("\n")}`).toEqual(new Set());
    }
    expect(handoffs).toBeGreaterThan(0);
  },
);

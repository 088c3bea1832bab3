/**
 * One client: opened by its first request or by connect(), closed once. Every acquire of every lock type goes through
 * it.
 */

import {
  ClosedError,
  DeadlockError,
  formatKeys,
  isFatalError,
  LockTimeoutError,
  lockLostError,
  StoreError,
  UnsupportedError,
  wrapStoreError,
} from "../errors.ts";
import type { Driver, Traits } from "../spi/driver.ts";
import { Counts } from "../util/counts.ts";
import { formatDuration } from "../util/duration.ts";
import { SlotMap } from "../util/slot-map.ts";
import { CachedLocks, cacheProblem } from "./cached-locks.ts";
import { DeferredStarts } from "./deferred-starts.ts";
import { Engine } from "./engine.ts";
import { Events } from "./events.ts";
import { HandoffChain } from "./handoff-chain.ts";
import { Interceptors } from "./interceptors.ts";
import type { LocalHold } from "./local-hold.ts";
import type { ClientContext } from "./local-queue.ts";
import { LocalQueue } from "./local-queue.ts";
import { LockHandle } from "./lock.ts";
import type { LockTarget } from "./lock-spec.ts";
import { checkSupported, isEachExclusive } from "./lock-spec.ts";
import { logWarning } from "./logger.ts";
import type { AcquireSettings, ClientSettings, QueueKind } from "./options.ts";
import { resolveTtl } from "./options.ts";
import { QueueEvents } from "./queue-events.ts";
import { QueueReader } from "./queue-reader.ts";
import { FlowHolds, resolveNesting } from "./reentrancy.ts";
import { createTokenFloors } from "./token-floors.ts";
import { Waiter } from "./waiter.ts";

/** How long close() waits in all for the store to answer releases. */
const CLOSE_TIMEOUT_MS = 5_000;

export class Client {
  readonly settings: ClientSettings;
  readonly driver: Driver;
  readonly events: Events = new Events();
  readonly interceptors: Interceptors = new Interceptors();
  readonly flowHolds: FlowHolds = new FlowHolds();
  readonly #random: () => number;
  #context: ClientContext | null = null;
  #opening: Promise<ClientContext> | null = null;
  #closing: Promise<void> | null = null;
  #hasWarnedOfTtl = false;
  #isLogging = false;

  constructor(driver: Driver, settings: ClientSettings, random: () => number) {
    this.driver = driver;
    this.settings = settings;
    this.#random = random;
  }

  /** What exists once the client is open; null before. Does not open it. */
  get context(): ClientContext | null {
    return this.#context;
  }

  /** Opens the client if necessary. @throws ClosedError, StoreError */
  open(): ClientContext | Promise<ClientContext> {
    if (this.#closing !== null) return Promise.reject(new ClosedError("this client was closed"));
    if (this.#context !== null) return this.#context;
    this.#opening ??= this.#open();
    return this.#opening;
  }

  /**
   * Returns the lock, or null if it was busy and the settings have `isNullIfBusy`. Not an async function, since an
   * uncontended acquire should cost only one promise: throws errors known before anything is sent, and rejects with
   * others.
   */
  acquire(target: LockTarget, settings: AcquireSettings): Promise<LockHandle | null> {
    const context = this.open();
    if (context instanceof Promise) return context.then((opened) => this.#acquire(opened, target, settings));
    return this.#acquire(context, target, settings);
  }

  /** Continues detached locks. @throws see Locks.attach() */
  async attach(reference: unknown): Promise<LockHandle> {
    // loaded on first use, since few programs attach
    const { attach } = await import("./transfer.ts");
    const localHolds = await attach(await this.open(), reference);
    return new LockHandle(
      localHolds,
      localHolds.flatMap(({ target }) => target.keys),
      this.flowHolds,
    );
  }

  /**
   * Releases all held locks; waiting requests keep waiting. Settles when the store has answered the releases or has
   * certainly dropped the claims.
   */
  async releaseAll(): Promise<void> {
    if (this.#context === null) return;
    const { engine } = this.#context;
    const now = engine.clock.now();
    for (const { listener } of engine.listClaims()) listener.giveBack(now);
    await engine.whenIdle();
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #open(): Promise<ClientContext> {
    const { driver, settings, events } = this;
    if (settings.logger !== undefined && !this.#isLogging) {
      this.#isLogging = true;
      // loaded only when it is needed
      const { logEvents } = await import("./event-log.ts");
      logEvents(events, settings.logger, driver.name);
    }
    const engine = new Engine(driver, settings.clock, this.#random, events);
    let traits: Traits;
    try {
      traits = await driver.open({
        pushed: (id, answer) => engine.pushed(id, answer),
        recheck: (id) => engine.recheck(id),
        disconnected: () => engine.disconnected(),
        reconnected: () => engine.reconnected(),
        recalled: (id) => engine.recalled(id),
        heldTokens: (id) => engine.heldTokens(id),
      });
    } catch (error) {
      this.#opening = null; // so that a later request tries again
      throw isFatalError(error) ? error : wrapStoreError(error, `could not open ${driver.name}`, []);
    }
    this.#context = {
      engine,
      traits,
      settings,
      events,
      queueEvents: new QueueEvents(events, settings.clock, driver.name),
      tokenFloors: createTokenFloors(traits.durability !== "process"),
      queueReader: new QueueReader(engine),
      cachedLocks: new CachedLocks(engine, traits),
      handoffChain: new HandoffChain(),
      deferredStarts: new DeferredStarts(),
      strictWaits: new Counts(),
      queues: new SlotMap(),
    };
    return this.#context;
  }

  async #close(): Promise<void> {
    if (this.#opening === null) return;
    const context = await this.#opening.catch((error: unknown) => {
      if (error instanceof StoreError || isFatalError(error)) return null; // the caller of open() has received it
      throw error;
    });
    if (context === null) return;
    const { engine } = context;
    const closedError = new ClosedError("this client was closed");
    const endsAt = engine.clock.now() + CLOSE_TIMEOUT_MS;
    for (const { listener } of engine.listClaims()) listener.onClose(closedError);
    await engine.scheduler.waitFor(this.releaseAll(), CLOSE_TIMEOUT_MS, () => undefined);
    for (const activeClaim of engine.listClaims()) engine.release(activeClaim);
    const restMs = Math.max(endsAt - engine.clock.now(), 0);
    await engine.scheduler.waitFor(engine.whenIdle(), restMs, () => undefined);
    engine.stop();
    this.flowHolds.close();
    await this.driver.close();
  }

  #acquire(context: ClientContext, target: LockTarget, settings: AcquireSettings): Promise<LockHandle | null> {
    const { traits } = context;
    checkSupported(target, traits, this.driver.name);
    if (settings.cacheMs > 0) this.#checkCache(target, traits);
    settings.signal?.throwIfAborted();
    if (!this.flowHolds.isEmpty || (!traits.manyKeys && target.locks.length > 1)) {
      return this.#acquireInParts(context, target, settings);
    }
    const cached = settings.cacheMs > 0 ? this.#reuse(context, target, settings) : null;
    if (cached !== null) {
      const handle = new LockHandle([cached], target.keys, this.flowHolds);
      const delay = context.handoffChain.delay(cached.grantedAt, false);
      return delay === null ? Promise.resolve(handle) : delay.then(() => handle);
    }
    return new Promise((resolve, reject) => {
      const onGranted = (localHold: LocalHold | null): void =>
        resolve(localHold && new LockHandle([localHold], target.keys, this.flowHolds));
      this.#enqueue(context, target, settings, onGranted, reject);
    });
  }

  /** @throws UnsupportedError if the store cannot recall what the client would keep */
  #checkCache({ locks, keys }: LockTarget, traits: Traits): void {
    const problem = cacheProblem(traits, this.driver);
    if (problem !== null && isEachExclusive(locks)) throw new UnsupportedError(problem, { keys });
  }

  /** The fast path of a cached lock: neither a waiter nor a call. */
  #reuse(context: ClientContext, target: LockTarget, settings: AcquireSettings): LocalHold | null {
    const ttl = context.traits.lease.claim ? settings.ttl : "session";
    const queue = settings.queueKind === "shared" ? context.queues.get(this.#queueName(target, ttl)) : undefined;
    // a reader of the same key has no part in it
    if (queue === undefined || !isEachExclusive(target.locks) || this.events.hasListeners("requested")) return null;
    return queue.reuse(target, settings, context.engine.clock.now());
  }

  #queueName(target: LockTarget, ttl: number | "session"): string {
    return queueName(target, ttl === this.settings.ttl ? "" : ttl);
  }

  #enqueue(
    context: ClientContext,
    target: LockTarget,
    settings: AcquireSettings,
    resolve: (localHold: LocalHold | null) => void,
    reject: (error: unknown) => void,
  ): void {
    const ttl = resolveTtl(settings, context.traits, this.driver.name);
    if (ttl !== settings.ttl && settings.isTtlExplicit && !this.#hasWarnedOfTtl) {
      this.#hasWarnedOfTtl = true;
      const { logger } = this.settings;
      const warning = `${this.driver.name} has only session leases: ttl is ignored`;
      if (logger === undefined) process.emitWarning(warning, "HoldfastWarning");
      else logWarning(logger, warning);
    }
    const startedAt = context.engine.clock.now();
    this.#queueFor(context, target, settings, ttl).enqueue(new Waiter(target, settings, startedAt, resolve, reject));
  }

  #queueFor(
    context: ClientContext,
    target: LockTarget,
    settings: AcquireSettings,
    ttl: number | "session",
  ): LocalQueue {
    const kind = queueKindOf(target, settings);
    if (kind !== "shared") return new LocalQueue(context, target, ttl, kind);
    const name = this.#queueName(target, ttl);
    let queue = context.queues.get(name);
    if (queue === undefined) {
      queue = new LocalQueue(context, target, ttl, kind, name);
      context.queues.add(name, queue);
    }
    return queue;
  }

  /**
   * Joins the locks that this flow holds and claims the other keys: in one claim if the store supports that, else one
   * key after another. A key may be lost while the acquire waits for another one: then it releases all keys and starts
   * over.
   */
  async #acquireInParts(
    context: ClientContext,
    target: LockTarget,
    settings: AcquireSettings,
  ): Promise<LockHandle | null> {
    const { clock } = this.settings;
    const joinedByKey = this.#findJoined(target);
    const parts = splitParts(target, joinedByKey, context.traits.manyKeys);
    const joinedHolds = [...new Set(joinedByKey.values())];
    const partSettings = { ...settings, heldKeys: this.flowHolds.listKeys() };
    const startedAt = clock.now();
    // before the first await: otherwise the outer holder could release the lock while this request waits
    for (const localHold of joinedHolds) localHold.refCount++;
    try {
      for (;;) {
        const acquired = await this.#acquireParts(context, parts, partSettings, startedAt + settings.waitMs);
        if (acquired === null) {
          await releaseAll(joinedHolds);
          return null;
        }
        const localHolds = [...joinedHolds, ...acquired];
        // if the connection broke meanwhile, the store may have lost the keys that were acquired before the last one
        const isVerified = acquired.slice(0, -1).every(({ activeClaim }) => context.engine.isVerified(activeClaim));
        if (isVerified && localHolds.every((localHold) => localHold.isHeld(localHold.observe())))
          return new LockHandle(localHolds as [LocalHold], target.keys, this.flowHolds);
        await releaseAll(acquired);
        for (const localHold of joinedHolds) {
          if (!localHold.isHeld(localHold.observe())) throw localHold.toLostError();
        }
        this.#checkDeadline(target, settings, startedAt);
      }
    } catch (error) {
      await releaseAll(joinedHolds);
      throw error;
    }
  }

  /** Acquires one local hold per part; null if a part was busy and the settings have `isNullIfBusy`. */
  async #acquireParts(
    context: ClientContext,
    parts: readonly LockTarget[],
    settings: AcquireSettings,
    deadline: number,
  ): Promise<LocalHold[] | null> {
    const { clock } = this.settings;
    const localHolds: LocalHold[] = [];
    try {
      for (const part of parts) {
        // a signal that is already aborted fires no event any more
        settings.signal?.throwIfAborted();
        // all parts share one deadline; a part that starts late still asks once
        const waitMs = settings.waitMs === 0 ? 0 : Math.max(deadline - clock.now(), 1);
        const localHold = await new Promise<LocalHold | null>((resolve, reject) =>
          this.#enqueue(context, part, { ...settings, waitMs }, resolve, reject),
        );
        if (localHold === null) {
          await releaseAll(localHolds);
          return null;
        }
        localHolds.push(localHold);
      }
      return localHolds;
    } catch (error) {
      await releaseAll(localHolds);
      throw error;
    }
  }

  /**
   * Called when a key was lost before all were held. @throws LockTimeoutError, StoreError if no time is left to retry
   */
  #checkDeadline({ keys }: LockTarget, { waitMs }: AcquireSettings, startedAt: number): void {
    const { driver, settings } = this;
    if (waitMs === 0) throw new StoreError(`${driver.name} answered too late for ${formatKeys(keys)}`, { keys });
    const waitedMs = settings.clock.now() - startedAt;
    if (waitedMs < waitMs) return;
    const waited = `waited ${formatDuration(waitedMs)} for ${formatKeys(keys)}`;
    throw new LockTimeoutError(`${waited}: some locks were lost while waiting for the others`, {}, { keys });
  }

  /** Finds the local holds of this flow that the request can join, by key. @throws DeadlockError, LockLostError */
  #findJoined(target: LockTarget): Map<string, LocalHold> {
    const joinedByKey = new Map<string, LocalHold>();
    const { reentrant } = this.settings;
    for (const [index, spec] of target.locks.entries()) {
      const heldByFlow = this.flowHolds.find(spec.key);
      if (heldByFlow.length === 0) continue;
      const nesting = resolveNesting(heldByFlow, spec, reentrant);
      if (nesting === "deadlock") {
        const key = target.keys[index] as string;
        throw new DeadlockError(
          `deadlock: this async flow already holds ${formatKeys([key])} and would wait for itself; acquire the stronger lock first`,
          { keys: [key] },
        );
      }
      if (nesting === "separate") continue;
      const { localHold } = nesting;
      if (localHold.lostReason !== null) throw lockLostError(localHold.lostReason, localHold.target.keys);
      joinedByKey.set(spec.key, localHold);
    }
    return joinedByKey;
  }
}

function queueKindOf(target: LockTarget, settings: AcquireSettings): QueueKind {
  // with other holders on a key, the tokens of a range would not be above theirs
  if (!isEachExclusive(target.locks)) return "alone";
  // a store names successors for one key only
  return settings.queueKind === "strict" && target.locks.length > 1 ? "alone" : settings.queueKind;
}

/** Equal for requests with the same locks and ttl. Keys have no control characters, so names cannot collide. */
function queueName({ locks }: LockTarget, ttl: number | string): string {
  const first = locks[0].key;
  if (locks.length === 1 && ttl === "") return first;
  return `${ttl}\n${locks.map(({ key }) => key).join("\n")}`;
}

function splitParts(target: LockTarget, joinedByKey: ReadonlyMap<string, LocalHold>, manyKeys: boolean): LockTarget[] {
  const parts: LockTarget[] = [];
  for (const [index, spec] of target.locks.entries()) {
    if (!joinedByKey.has(spec.key)) parts.push({ locks: [spec], keys: [target.keys[index] as string] });
  }
  const [first, ...rest] = parts;
  if (!manyKeys || first === undefined) return parts;
  return [{ locks: [first.locks[0], ...rest.map(({ locks }) => locks[0])], keys: parts.flatMap(({ keys }) => keys) }];
}

async function releaseAll(localHolds: readonly LocalHold[]): Promise<void> {
  await Promise.all(localHolds.map(async (localHold) => localHold.release()));
}

/** One local holder's time with a claim: from its grant or hand-off until its last handle is released. */

import type { LockLostError, LostReason } from "../errors.ts";
import { lockLostError } from "../errors.ts";
import type { Traits } from "../spi/driver.ts";
import type { ActiveClaim, Engine } from "./engine.ts";
import type { LockEvent } from "./events.ts";
import type { LockTarget } from "./lock-spec.ts";
import type { AcquireSettings, ClientSettings } from "./options.ts";
import type { ScheduledTask } from "./scheduler.ts";

/** Where a local hold comes from: a request, or attach(). */
export interface RequestOrigin {
  readonly target: LockTarget;
  readonly settings: AcquireSettings;
  /** The number of the request. */
  readonly request: number;
}

/** The local queue of a hold. */
export interface HoldQueue {
  readonly context: {
    readonly engine: Engine;
    readonly traits: Traits;
    readonly settings: ClientSettings;
    /** The fields of events about the lock. */
    readonly queueEvents: { describe(localHold: LocalHold): LockEvent & { readonly token: bigint } };
  };
  /** Called when the last handle of the holder is released. True if the lock was held until now. */
  release(localHold: LocalHold): boolean | Promise<boolean>;
  /** Drops the claim without releasing it: its holder has detached it. */
  transferOut(localHold: LocalHold): void;
}

/** A handle that can be watched, in case the program loses it without a release. */
interface WatchableHandle {
  watch(): void;
}

export class LocalHold implements ScheduledTask {
  readonly queue: HoldQueue;
  readonly activeClaim: ActiveClaim;
  readonly target: LockTarget;
  readonly settings: AcquireSettings;
  readonly request: number;
  readonly token: bigint;
  readonly grantedAt: number;
  /** The number of unreleased handles: the first one, and one for each request that joined. */
  refCount = 1;
  /** The number of async contexts entered with this lock: while there is one, the lock cannot be detached. */
  openFlows = 0;
  /** The handle of its request until the first renewal, which begins to watch it. */
  newHandle: WatchableHandle | null = null;
  isRenewed = false;
  lostReason: LostReason | null = null;
  #abort: AbortController | null = null;
  // a scheduled task: due at the end of maxHold
  readonly mayRunEarly = false;
  dueAt = 0;
  heapIndex = -1;

  constructor(
    queue: HoldQueue,
    activeClaim: ActiveClaim,
    { target, request, settings }: RequestOrigin,
    token: bigint,
    grantedAt: number,
  ) {
    this.queue = queue;
    this.activeClaim = activeClaim;
    this.target = target;
    this.settings = settings;
    this.request = request;
    this.token = token;
    this.grantedAt = grantedAt;
  }

  /** Can requests still join it? Says nothing about the lease. */
  get isOpen(): boolean {
    return this.refCount > 0;
  }

  /** Reads the clocks. If they show that the lease has ended, the loss is reported now: the timer may be late. */
  observe(): number {
    const { engine } = this.queue.context;
    const now = engine.clock.now();
    if (this.isOpen && this.lostReason === null) engine.observe(now, this.activeClaim);
    return now;
  }

  isHeld(now: number): boolean {
    return this.isOpen && this.lostReason === null && this.activeClaim.isHeld(now);
  }

  remainingMs(now: number): number {
    return this.isHeld(now) ? this.activeClaim.remainingMs(now) : 0;
  }

  /** Called for each new handle. */
  addHandle(handle: WatchableHandle): void {
    // one that joins a lock of its flow is rare
    if (this.isRenewed || this.newHandle !== null) handle.watch();
    else this.newHandle = handle;
  }

  /** A renewal is about to be sent. From now on the handle must not be reachable from here. */
  onRenewal(): void {
    this.isRenewed = true;
    this.newHandle?.watch();
    this.newHandle = null;
  }

  /** The end of maxHold. */
  onDue(): void {
    if (this.isOpen && this.lostReason === null) this.queue.context.engine.exceedMaxHold(this.activeClaim);
  }

  lose(reason: LostReason): void {
    if (this.lostReason !== null) return;
    this.lostReason = reason;
    this.#abort?.abort(this.toLostError());
  }

  /** Aborted when the lock is lost. Created when first read, and shared by all requests that joined. */
  get signal(): AbortSignal {
    if (this.#abort === null) {
      this.#abort = new AbortController();
      if (this.lostReason !== null) this.#abort.abort(this.toLostError());
    }
    return this.#abort.signal;
  }

  toLostError(): LockLostError {
    const token = this.queue.context.traits.fencing ? this.token : undefined;
    return lockLostError(this.lostReason ?? "expired", this.target.keys, token);
  }

  /** Releases one handle, and the lock with the last one. True if the lock was held until now. */
  release(): boolean | Promise<boolean> {
    this.refCount--;
    return this.isOpen ? this.isHeld(this.observe()) : this.queue.release(this);
  }
}

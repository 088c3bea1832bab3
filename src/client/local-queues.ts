/** The local queues of one client, by name, with what they share: engine, settings, token floors and the events about locks. */

import type { ClaimSettings } from "../claim/state.ts";
import type { LostReason } from "../errors.ts";
import { SlotMap } from "../util/slot-map.ts";
import type { Engine } from "./engine.ts";
import type { Events } from "./events.ts";
import { isExclusive } from "./handoff-budget.ts";
import type { LocalHold } from "./local-hold.ts";
import { LocalQueue } from "./local-queue.ts";
import type { LockTarget } from "./lock-target.ts";
import type { AcquireSettings, ClientSettings } from "./options.ts";
import { resolveTtl } from "./options.ts";
import { QueueReader } from "./queue-reader.ts";
import type { TokenFloors } from "./token-floors.ts";
import { Waiter } from "./waiter.ts";

export class LocalQueues {
  readonly engine: Engine;
  readonly settings: ClientSettings;
  readonly tokenFloors: TokenFloors;
  readonly queues: SlotMap<string, LocalQueue> = new SlotMap();
  readonly queueReader: QueueReader;
  readonly #events: Events;

  constructor(engine: Engine, settings: ClientSettings, tokenFloors: TokenFloors, events: Events) {
    this.engine = engine;
    this.queueReader = new QueueReader(engine);
    this.settings = settings;
    this.tokenFloors = tokenFloors;
    this.#events = events;
  }

  /**
   * Queues a request. Resolves with `toResult` of the local hold, or with null if `isTry` and the keys were busy; rejects
   * like acquire().
   */
  acquire<T>(
    target: LockTarget,
    settings: AcquireSettings,
    isTry: boolean,
    toResult: (localHold: LocalHold) => T,
  ): Promise<T | null> {
    const ttl = resolveTtl(settings, this.engine.driver.traits, this.engine.driver.name);
    return new Promise((resolve, reject) => {
      const startedAt = this.engine.clock.now();
      const settle = resolve as (result: unknown) => void;
      this.#queueFor(target, ttl).enqueue(new Waiter(target, settings, isTry, startedAt, toResult, settle, reject));
    });
  }

  /** The settings of a claim's machine. */
  toClaimSettings(ttl: number | "session", wait: boolean): ClaimSettings {
    const { lease } = this.engine.driver.traits;
    const { renew } = this.settings;
    if (ttl !== "session") return { ttlMs: ttl, wait, survivesSilence: false, renews: renew };
    return {
      ttlMs: lease.sessionMs ?? 30_000,
      wait,
      survivesSilence: lease.endsWithConnection === true,
      renews: renew,
    };
  }

  emitAcquired(localHold: LocalHold, waiter: Waiter): void {
    if (!this.#events.hasListeners("acquired")) return;
    const { label } = waiter.settings;
    const waitedMs = localHold.grantedAt - waiter.startedAt;
    this.#events.emit("acquired", { keys: localHold.target.keys, token: localHold.token, waitedMs, label });
  }

  emitWaiting(waiter: Waiter): void {
    if (!this.#events.hasListeners("waiting")) return;
    this.#events.emit("waiting", { keys: waiter.target.keys, label: waiter.settings.label });
  }

  emitHandedOff(localHold: LocalHold | null): void {
    if (localHold === null || !this.#events.hasListeners("handedOff")) return;
    this.#events.emit("handedOff", { keys: localHold.target.keys, token: localHold.token });
  }

  emitReleased(localHold: LocalHold): void {
    if (!this.#events.hasListeners("released")) return;
    const heldMs = this.engine.clock.now() - localHold.grantedAt;
    this.#events.emit("released", { keys: localHold.target.keys, token: localHold.token, heldMs });
  }

  emitLost(localHold: LocalHold, reason: LostReason): void {
    this.#events.emit("lost", { keys: localHold.target.keys, token: localHold.token, reason });
  }

  emitJeopardy(localHold: LocalHold, isUnconfirmed: boolean): void {
    const { keys } = localHold.target;
    const { token, activeClaim } = localHold;
    const remainingMs = localHold.queue.remainingMs(activeClaim);
    if (isUnconfirmed) this.#events.emit("jeopardy", { keys, token, remainingMs, error: activeClaim.failure });
    else this.#events.emit("restored", { keys, token, remainingMs });
  }

  #queueFor(target: LockTarget, ttl: number | "session"): LocalQueue {
    // only exclusive claims are shared: with other holders on a key, a token range would not rise above their tokens
    if (this.settings.handoffs === 1 || !isExclusive(target.locks)) return new LocalQueue(this, target, ttl, null);
    const name = queueName(target, ttl === this.settings.ttl ? "" : ttl);
    let queue = this.queues.get(name);
    if (queue === undefined) {
      queue = new LocalQueue(this, target, ttl, name);
      this.queues.add(name, queue);
    }
    return queue;
  }
}

/** Equal for requests with the same locks and ttl. Keys have no control characters, so names cannot collide. */
function queueName({ locks }: LockTarget, ttl: number | string): string {
  const first = locks[0].key;
  if (locks.length === 1 && ttl === "") return first;
  return `${ttl}\n${locks.map(({ key }) => key).join("\n")}`;
}

/** What all lanes of one client share: the engine, the settings, the map of lanes, and the events about locks. */

import type { Terms } from "../core/claim-state.ts";
import { isExclusive } from "../core/lane.ts";
import { SlotMap } from "../core/slot-map.ts";
import type { LostReason } from "../spi/driver.ts";
import type { Engine } from "./engine.ts";
import type { Events } from "./events.ts";
import { KeyLane } from "./key-lane.ts";
import { Lookups } from "./lookups.ts";
import type { Settings, Wish } from "./options.ts";
import { leaseAt } from "./options.ts";
import { Request } from "./request.ts";
import type { Target } from "./target.ts";
import type { Tenure } from "./tenure.ts";
import type { Witness } from "./witness.ts";

export class LaneHost {
  readonly engine: Engine;
  readonly settings: Settings;
  readonly witness: Witness;
  readonly lanes: SlotMap<string, KeyLane> = new SlotMap();
  readonly lookups: Lookups;
  readonly #events: Events;

  constructor(engine: Engine, settings: Settings, witness: Witness, events: Events) {
    this.engine = engine;
    this.lookups = new Lookups(engine);
    this.settings = settings;
    this.witness = witness;
    this.#events = events;
  }

  /** What `give` makes of a tenure of these keys, or null if `quiet` and they were not free. Rejects as acquire() does. */
  request<T>(target: Target, wish: Wish, quiet: boolean, give: (tenure: Tenure) => T): Promise<T | null> {
    const ttl = leaseAt(wish, this.engine.driver.traits, this.engine.driver.name);
    return new Promise((resolve, reject) => {
      const startedAt = this.engine.clock.now();
      const settle = resolve as (given: unknown) => void;
      this.#laneFor(target, ttl).add(new Request(target, wish, quiet, startedAt, give, settle, reject));
    });
  }

  /** What a claim's machine must know. */
  termsOf(ttl: number | "session", wait: boolean): Terms {
    const { lease } = this.engine.driver.traits;
    const { renew } = this.settings;
    if (ttl !== "session") return { ttlMs: ttl, wait, endures: false, renews: renew };
    return { ttlMs: lease.sessionMs ?? 30_000, wait, endures: lease.silenceKeeps === true, renews: renew };
  }

  tellAcquired(tenure: Tenure, request: Request): void {
    if (!this.#events.wants("acquired")) return;
    const { label } = request.wish;
    const waitedMs = tenure.since - request.startedAt;
    this.#events.emit("acquired", { keys: tenure.target.keys, token: tenure.token, waitedMs, label });
  }

  tellWaiting(request: Request): void {
    if (!this.#events.wants("waiting")) return;
    this.#events.emit("waiting", { keys: request.target.keys, label: request.wish.label });
  }

  tellHandOff(tenure: Tenure | null): void {
    if (tenure === null || !this.#events.wants("handedOff")) return;
    this.#events.emit("handedOff", { keys: tenure.target.keys, token: tenure.token });
  }

  tellReleased(tenure: Tenure): void {
    if (!this.#events.wants("released")) return;
    const heldMs = this.engine.clock.now() - tenure.since;
    this.#events.emit("released", { keys: tenure.target.keys, token: tenure.token, heldMs });
  }

  tellLost(tenure: Tenure, reason: LostReason): void {
    this.#events.emit("lost", { keys: tenure.target.keys, token: tenure.token, reason });
  }

  tellUnsure(tenure: Tenure, on: boolean): void {
    const { keys } = tenure.target;
    const { token, tracked } = tenure;
    const remainingMs = tenure.lane.remainingMs(tracked);
    if (on) this.#events.emit("jeopardy", { keys, token, remainingMs, error: tracked.failure });
    else this.#events.emit("restored", { keys, token, remainingMs });
  }

  #laneFor(target: Target, ttl: number | "session"): KeyLane {
    // a run of tokens held beside other holders would not rise, so only exclusive claims are shared
    if (this.settings.handoffs === 1 || !isExclusive(target.holds)) return new KeyLane(this, target, ttl, null);
    const name = laneName(target, ttl === this.settings.ttl ? "" : ttl);
    let lane = this.lanes.get(name);
    if (lane === undefined) {
      lane = new KeyLane(this, target, ttl, name);
      this.lanes.add(name, lane);
    }
    return lane;
  }
}

/** The same for requests with the same holds and ttl. Keys have no control characters, so names cannot collide. */
function laneName({ holds }: Target, ttl: number | string): string {
  const first = holds[0].key;
  if (holds.length === 1 && ttl === "") return first;
  return `${ttl}\n${holds.map(({ key }) => key).join("\n")}`;
}

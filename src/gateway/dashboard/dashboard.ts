/**
 * What the pages of the dashboard show: one list of the store for all viewers, and what it and the events say over time.
 * Rights are applied to each answer (routes.ts), never here.
 */

import type { Principal } from "../../auth/access-control.ts";
import type { Check, Pause, RevokeTarget } from "../../spi/driver.ts";
import type { Clock, Timer } from "../../util/clock.ts";
import { EventHistory } from "./event-history.ts";
import type { EventSource } from "./event-sources.ts";
import { SampleHistory } from "./sample-history.ts";
import type { SamplerOptions } from "./store-sampler.ts";
import { ALL_WANTED_MS, StoreSampler } from "./store-sampler.ts";
import { ViewerSessions } from "./viewer-sessions.ts";

/** The settings of the pages, as the program that starts a gateway gives them. */
export interface DashboardSettings {
  /**
   * Start tokens open sessions: for a gateway without accounts, whose only user is the one who started it. Default false:
   * without accounts the pages cannot be opened.
   */
  readonly hasStartTokens?: boolean;
  /** Nothing can be revoked from the pages. Default false. */
  readonly isReadOnly?: boolean;
  /** What `holdfast doctor` says about the store. */
  readonly diagnose?: () => Promise<readonly Check[]>;
}

export interface DashboardOptions extends DashboardSettings {
  readonly clock: Clock;
  /** The store, as messages name it: never with a password. */
  readonly storeName: string;
  readonly list: SamplerOptions["list"];
  /** Where events come from. */
  readonly events: EventSource;
  /** The events are all events of the store from the beginning. Default false. */
  readonly isServer?: boolean;
  /** How long a lock server in this process still recovers after its restart. Default: it does not. */
  readonly recoveryRemainingMs?: () => number;
}

/** The checks are made again after this time. */
const CHECKS_MAX_AGE_MS = 30_000;

export class Dashboard {
  readonly options: DashboardOptions;
  readonly startedAt: number;
  readonly sessions: ViewerSessions;
  readonly sampler: StoreSampler;
  readonly history: EventHistory;
  readonly samples: SampleHistory;
  readonly #timer: Timer;
  /** null: no viewer has been there for a while. */
  #subscription: Disposable | null = null;
  /** From the hello of a lock server, or from the answer to a claim over HTTP. */
  #paused: { readonly reason: Pause["reason"]; readonly endsAt: number } | null = null;
  #checks: { readonly madeAt: number; readonly result: Promise<readonly Check[]> } | null = null;

  constructor(options: DashboardOptions) {
    const { clock, list, isServer = false } = options;
    this.options = options;
    this.startedAt = clock.wall();
    this.sessions = new ViewerSessions(clock);
    this.history = new EventHistory(() => Math.round(clock.wall()));
    if (isServer) this.history.origin = "server";
    this.samples = new SampleHistory(clock, this.history);
    this.sampler = new StoreSampler({
      clock,
      list,
      onAll: (listing) => {
        this.history.addListing(listing);
        this.samples.add(listing);
      },
    });
    this.#timer = clock.timer(() => this.#pause());
  }

  /** A viewer is there: lists and events go on for a while after the last one. */
  watch(): void {
    const { clock, events } = this.options;
    this.#timer.set(clock.now() + ALL_WANTED_MS);
    this.sampler.watch();
    if (this.#subscription !== null) return;
    this.history.markGap();
    const onRecovery = (remainingMs: number): void => this.recordPause({ reason: "recovery", remainingMs });
    this.#subscription = events({ history: this.history, onRecovery });
  }

  /** The checks of `holdfast doctor`; null: the program that started the gateway cannot make them. */
  async checks(): Promise<readonly Check[] | null> {
    const { clock, diagnose } = this.options;
    if (diagnose === undefined) return null;
    const now = clock.now();
    if (this.#checks === null || now - this.#checks.madeAt >= CHECKS_MAX_AGE_MS) {
      const made = { madeAt: now, result: diagnose() };
      this.#checks = made;
      made.result.catch(() => {
        if (this.#checks === made) this.#checks = null;
      });
    }
    return await this.#checks.result;
  }

  /** Why the store grants no new locks for the time being; null: it does, as far as is known. */
  pause(): Pause | null {
    const { clock, recoveryRemainingMs } = this.options;
    const ownMs = recoveryRemainingMs?.() ?? 0;
    if (ownMs > 0) return { reason: "recovery", remainingMs: ownMs };
    const remainingMs = Math.ceil((this.#paused?.endsAt ?? 0) - clock.now());
    return this.#paused === null || remainingMs <= 0 ? null : { reason: this.#paused.reason, remainingMs };
  }

  /** Records that the store grants no new locks for a while. */
  recordPause({ reason, remainingMs }: Pause): void {
    this.#paused = { reason, endsAt: this.options.clock.now() + remainingMs };
  }

  /** Records a revocation from the pages. */
  recordRevocation({ key, token, reason, now }: Required<RevokeTarget>, { name }: Principal): void {
    const { tag = "", label = "" } = this.sampler.findHolder(key, token) ?? {};
    this.history.addRevocation({
      ...{ at: Math.round(this.options.clock.wall()), kind: now ? "removed" : "revoked", source: "reported" },
      ...{ keys: [key], tag, label, token: String(token), account: "", operator: name, reason },
    });
  }

  close(): void {
    this.#timer.stop();
    this.#pause();
    this.sampler.close();
  }

  #pause(): void {
    this.#subscription?.[Symbol.dispose]();
    this.#subscription = null;
  }
}
